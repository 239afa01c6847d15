"""Topic ids, their names (KIP-516) and their sizes. In: Metadata responses that pass by. Out: the name of an id, the number of
partitions of a name as far as they are known.

A large response takes milliseconds to read, so responses wait in a short queue and are read a few topics at a time. One
like the last is not read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, Protocol, TypeVar

from proxy.wire.metadata import FIRST_TOPIC_ID, Topic, read_topics
from proxy.wire.primitives import BadBytes, Buffer

K = TypeVar("K")
V = TypeVar("V")

ALL: Final = None
"""In the place of the look of a response: it names all topics there are."""
MAX_TOPICS: Final = 200_000
MAX_WAITING: Final = 8
MAX_REMEMBERED: Final = 1024
SLICE: Final = 20
"""Topics that are read at once: with a hundred partitions each, about a millisecond and a half."""


class TopicWatch(Protocol):
    """Is told which topics there are."""

    def topic_came(self, name: str) -> None: ...
    def topic_went(self, name: str) -> None: ...


class Topics:
    """Names of topics by id. `watch` is told of topics that come and go."""

    def __init__(self, watch: TopicWatch | None = None) -> None:
        self._watch = watch
        self._names: dict[bytes, str] = {}
        self._sizes: dict[str, int] = {}
        self._waiting: deque[tuple[Buffer, int, int | None]] = deque()
        self._reading: Iterator[Topic] | None = None
        self._missing: set[str] | None = None  # known, and not yet found in the response that names all
        self._seen: dict[int, None] = {}
        self._look: int | None = 0  # that of the response which is read

    def __len__(self) -> int:
        return len(self._names)

    def name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def size(self, name: str) -> int | None:
        return self._sizes.get(name)

    def learn_size(self, name: str, partitions: int) -> None:
        if self._watch is not None and name not in self._sizes:
            self._watch.topic_came(name)
        _keep(self._sizes, name, partitions)

    def forget(self, name: str) -> None:
        """It was deleted. Should it come again, the same words may say so that said it before."""
        if self._sizes.pop(name, None) is not None:
            self._seen.clear()
            if self._watch is not None:
                self._watch.topic_went(name)

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
            self._seen.pop(self._waiting.popleft()[2] or 0, None)  # it is read when it comes again
        return True

    def learn_all(self, frame: Buffer, version: int) -> None:
        """A Metadata response that names all topics of the cluster, to be read by `work`: the others are gone."""
        self._waiting.append((frame, version, ALL))

    def work(self) -> bool:
        """Read a little; whether there is more."""
        if self._reading is None:
            if not self._waiting:
                return False
            frame, version, self._look = self._waiting.popleft()
            self._reading = read_topics(frame, version)
            self._missing = set(self._sizes) if self._look is ALL else None
        try:
            for _ in range(SLICE):
                topic = next(self._reading, None)
                if topic is None:
                    self._reading = None
                    for name in self._missing or ():
                        self.forget(name)
                    break
                self._add(topic)
        except BadBytes:  # a newer broker's answer went to its client all the same; its ids stay unknown here
            self._reading = None
        return self._reading is not None or bool(self._waiting)

    def _add(self, topic: Topic) -> None:
        name = topic.name.decode()
        if self._missing is not None:
            self._missing.discard(name)
        if self._look is not ALL and not any(
            topic.topic_id
        ):  # it is not there; it may come and go again, and this be said in the same words
            self.forget(name)
            self._seen.pop(self._look or 0, None)
        elif name:
            if any(topic.topic_id):
                _keep(self._names, topic.topic_id, name)
            self.learn_size(name, topic.partitions)


def _keep(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= MAX_TOPICS and key not in known:
        del known[next(iter(known))]
    known[key] = value
