"""Topic ids, their names (KIP-516) and their sizes. In: Metadata responses that pass by. Out: the name of an id, the number of
partitions of a name as far as they are known.

A topic is there if a broker names it without an error. It is not there if a broker says so (error 3 or 100), or if it was in an
answer about all topics and is in the next one no more: then it is gone, or the proxy's identity may not see it any more. So a
topic that a client heard of in between is only taken for gone when the answer after that does not name it either. Any other
error, as that a client may not see a topic (29), says nothing. Of a topic that was just deleted, brokers that are behind still say
that it is there: they are believed again once two answers about all topics have been read.

A large response takes milliseconds to read, so responses wait in a short queue and are read a few topics at a time. One
like the last is not read again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, Protocol, TypeVar

from proxy.wire.metadata import FIRST_TOPIC_ID, Topic, read_topics
from proxy.wire.primitives import BadBytes, Buffer

K = TypeVar("K")
V = TypeVar("V")

ALL: Final = None
"""In the place of the look of a response: it names all topics there are."""
MAX_TOPICS: Final = 200_000
MAX_DELETED: Final = 1000
DOUBTED: Final = 2
"""So many answers about all topics are read before it is believed again that a deleted topic is there."""
MAX_WAITING: Final = 8
MAX_REMEMBERED: Final = 1024
SLICE: Final = 20
"""Topics that are read at once: with a hundred partitions each, about a millisecond and a half."""


class TopicWatch(Protocol):
    """Is told which topics there are."""

    def topic_came(self, name: str) -> None: ...
    def topic_went(self, name: str) -> None: ...


def _nobody(_name: str, _partitions: int, /) -> None: ...


class Topics:
    """Names of topics by id. `watch` is called when topics come and go, `sized` with the partitions whenever they are told, 0 when
    a topic is gone."""

    def __init__(self, watch: TopicWatch | None = None, sized: Callable[[str, int], None] = _nobody) -> None:
        self._watch, self._sized = watch, sized
        self.listed = False
        """True once a response that names all topics was read."""
        self._names: dict[bytes, str] = {}
        self._sizes: dict[str, int] = {}
        self._waiting: deque[tuple[Buffer, int, int | None]] = deque()
        self._reading: Iterator[Topic] | None = None
        self._missing: set[str] | None = None  # listed before, and not yet found in the response that names all
        self._listed: set[str] = set()  # named by the last response that names all, or missing in it for the first time
        self._heard: set[str] = set()  # named without an error since then, by others
        self._deleted: dict[str, int] = {}  # how many more answers about all topics they are doubted for
        self._seen: dict[int, None] = {}
        self._look: int | None = 0  # that of the response which is read

    def __len__(self) -> int:
        return len(self._names)

    def name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def size(self, name: str) -> int | None:
        return self._sizes.get(name)

    def sizes(self) -> dict[str, int]:
        """Partitions of all topics that are known to exist."""
        return dict(self._sizes)

    def learn_size(self, name: str, partitions: int) -> None:
        """A broker that made the topic, or looked at it to change it, says how many partitions it has."""
        self._deleted.pop(name, None)
        self._learn_size(name, partitions)

    def _learn_size(self, name: str, partitions: int) -> None:
        if name in self._listed:
            self._heard.add(name)
        self._keep_size(name, partitions)

    def deleted(self, name: str) -> None:
        """A broker says that it deleted this topic."""
        self.forget(name)
        if self.listed:  # else nothing would end the doubt
            _keep(self._deleted, name, DOUBTED, MAX_DELETED)

    def forget(self, name: str) -> None:
        """It was deleted. Should it come again, the same words may say so that said it before."""
        self._listed.discard(name)
        self._heard.discard(name)
        if self._sizes.pop(name, None) is not None:
            self._seen.clear()
            self._sized(name, 0)
            if self._watch is not None:
                self._watch.topic_went(name)

    def learn(self, frame: Buffer, version: int) -> bool:
        """A Metadata response, to be read by `work`; whether there is something to read."""
        if version < FIRST_TOPIC_ID:
            return False
        look = hash(bytes(frame[8:]))
        if look in self._seen:
            return False
        _keep(self._seen, look, None, MAX_REMEMBERED)
        self._waiting.append((frame, version, look))
        if len(self._waiting) > MAX_WAITING:
            self._drop_one()
        return True

    def _drop_one(self) -> None:
        """The oldest response that waits, but none that names all: clients would keep the proxy from its own answers."""
        for i, (_, _, look) in enumerate(self._waiting):
            if look is not ALL:
                del self._waiting[i]
                self._seen.pop(look, None)  # it is read when it comes again
                break

    def learn_all(self, frame: Buffer, version: int) -> None:
        """A Metadata response that names all topics which the proxy's identity may see, to be read by `work`: those that it named
        before and does not name any more are gone."""
        self._waiting.append((frame, version, ALL))

    def work(self) -> bool:
        """Read a little; whether there is more."""
        if self._reading is None:
            if not self._waiting:
                return False
            frame, version, self._look = self._waiting.popleft()
            self._reading = read_topics(frame, version)
            self._missing = set(self._listed) if self._look is ALL else None
        try:
            for _ in range(SLICE):
                topic = next(self._reading, None)
                if topic is None:
                    self._reading = None
                    self._forget_missing()
                    break
                self._add(topic)
        except BadBytes:  # a newer broker's answer went to its client all the same; its ids stay unknown here
            self._reading = self._missing = None
        return self._reading is not None or bool(self._waiting)

    def _add(self, topic: Topic) -> None:
        name = topic.name.decode()
        if self._missing is not None:
            self._missing.discard(name)
        if self._look is not ALL and topic.absent:  # it may come and go again, and this be said in the same words
            self.forget(name)
            self._seen.pop(self._look or 0, None)
        elif name and not topic.error:
            if any(topic.topic_id):
                _keep(self._names, topic.topic_id, name, MAX_TOPICS)
            if name in self._deleted:
                return
            if self._look is not ALL:
                self._learn_size(name, topic.partitions)
            else:
                if len(self._listed) < MAX_TOPICS:
                    self._listed.add(name)
                self._keep_size(name, topic.partitions)

    def _keep_size(self, name: str, partitions: int) -> None:
        if self._watch is not None and name not in self._sizes:
            self._watch.topic_came(name)
        pushed_out = _keep(self._sizes, name, partitions, MAX_TOPICS)
        if pushed_out is not None:
            self._sized(pushed_out, 0)
        self._sized(name, partitions)

    def _forget_missing(self) -> None:
        """A response that names all topics is read: what it does not name is gone, but for what was heard of since the last one."""
        for name in self._missing or ():
            if name not in self._heard:
                self.forget(name)
        if self._missing is not None:
            self.listed = True
            self._heard.clear()
            self._missing = None
            if self._deleted:
                self._deleted = {name: left - 1 for name, left in self._deleted.items() if left > 1}
                self._seen.clear()  # what was not believed may be said again


def _keep(known: dict[K, V], key: K, value: V, most: int) -> K | None:
    """Remember this, among so many at most; what was pushed out by it, if anything was."""
    pushed_out = None
    if len(known) >= most and key not in known:
        pushed_out = next(iter(known))
        del known[pushed_out]
    known[key] = value
    return pushed_out
