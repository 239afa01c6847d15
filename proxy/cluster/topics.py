"""Topic ids, their names (KIP-516) and their sizes. In: Metadata responses that pass by. Out: the name of an id, the number of
partitions of a name as far as they are known.

A large response takes milliseconds to read, so responses wait in a short queue and are read a few topics at a time. One
like the last is not read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, TypeVar

from proxy.wire.metadata import FIRST_TOPIC_ID, Topic, read_topics
from proxy.wire.primitives import BadBytes, Buffer

K = TypeVar("K")
V = TypeVar("V")

MAX_TOPICS: Final = 200_000
MAX_WAITING: Final = 8
MAX_REMEMBERED: Final = 1024
SLICE: Final = 20
"""Topics that are read at once: with a hundred partitions each, about a millisecond and a half."""


class Topics:
    """Names of topics by id."""

    def __init__(self) -> None:
        self._names: dict[bytes, str] = {}
        self._sizes: dict[str, int] = {}
        self._waiting: deque[tuple[Buffer, int, int]] = deque()
        self._reading: Iterator[Topic] | None = None
        self._seen: dict[int, None] = {}
        self._look = 0  # that of the response which is read

    def __len__(self) -> int:
        return len(self._names)

    def name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def size(self, name: str) -> int | None:
        return self._sizes.get(name)

    def learn_size(self, name: str, partitions: int) -> None:
        _keep(self._sizes, name, partitions)

    def forget(self, name: str) -> None:
        """It was deleted. Should it come again, the same words may say so that said it before."""
        if self._sizes.pop(name, None) is not None:
            self._seen.clear()

    def learn(self, frame: Buffer, version: int) -> bool:
        """A Metadata response, to be read by `work`; whether there is something to read."""
        if version < FIRST_TOPIC_ID:
            return False
        look = hash(bytes(frame[8:]))
        if look in self._seen:
            return False
        self._seen[look] = None
        if len(self._seen) > MAX_REMEMBERED:
            del self._seen[next(iter(self._seen))]
        self._waiting.append((frame, version, look))
        if len(self._waiting) > MAX_WAITING:
            self._seen.pop(self._waiting.popleft()[2], None)  # it is read when it comes again
        return True

    def work(self) -> bool:
        """Read a little; whether there is more."""
        if self._reading is None:
            if not self._waiting:
                return False
            frame, version, self._look = self._waiting.popleft()
            self._reading = read_topics(frame, version)
        try:
            for _ in range(SLICE):
                topic = next(self._reading, None)
                if topic is None:
                    self._reading = None
                    break
                self._add(topic)
        except BadBytes:  # a newer broker's answer went to its client all the same; its ids stay unknown here
            self._reading = None
        return self._reading is not None or bool(self._waiting)

    def _add(self, topic: Topic) -> None:
        name = topic.name.decode()
        if not any(topic.topic_id):  # it is not there; it may come and go again, and this be said in the same words
            self.forget(name)
            self._seen.pop(self._look, None)
        elif name:
            _keep(self._names, topic.topic_id, name)
            _keep(self._sizes, name, topic.partitions)


def _keep(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= MAX_TOPICS and key not in known:
        del known[next(iter(known))]
    known[key] = value
