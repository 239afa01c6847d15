"""The time-controlled pair of Bloom filters (seed s2, KIP-936: TimeControlledBloomFilter). Which ids are new?

In: ids with monotonic seconds. Out: whether each is new, and how many the live filters remember. The first id starts a
filter and the clock. Half a window later the next filter starts beside it; each lives one window. Both are read, the
newest is written. An id that a live filter knows is not added again, so that a busy one is new about once a window:

    filter 1  |=========|---------|            = written and read, - read only
    filter 2            |=========|---------|
    filter 3                      |=========|---------|
              0        1/2        1        3/2        2    windows

What is past is dropped when somebody looks, there is no timer. A filter that nothing is written to is not made; when none is
left, the clock stops, and the next id starts it again: the seed's user whose entry is removed."""

from __future__ import annotations

from enum import Enum
from math import inf

from quota.state import BadState, Reader, Writer
from quota.windows.bloom import UNBOUNDED, BloomFilter, Hash


class Novelty(Enum):
    """What became of an id."""

    KNOWN = "known"
    NEW = "new"
    NO_ROOM = "no room"
    """it is new, and was not added"""


class TimedFilter:
    """The filters of one user. `window` > 0 in seconds; `rate` in (0, 1) is how often an id that is new may be taken for known,
    by either filter. ValueError for what is not."""

    __slots__ = ("_hash", "_rate", "epoch", "fresh", "half", "newest", "older", "turn")

    def __init__(self, window: float, rate: float, hash128: Hash) -> None:
        if not (0 < window < inf and 0 < rate < 1):
            raise ValueError(f"need a window > 0 and 0 < rate < 1, got window {window} and rate {rate}")
        self.half = window / 2
        self._rate, self._hash = rate / 2, hash128  # each has half of it, as both are read
        self.older: BloomFilter | None = None
        self.newest: BloomFilter | None = None
        self.fresh = 0
        """ids in the newest that were new then, and not kept from the older"""
        self.turn = -inf
        """when the next filter starts and the older is past"""
        self.epoch = object()
        """another object whenever a filter passes: what was known under the same one is known still"""

    def see(self, id: int, now: float, *, limit: float = inf, keep: bool = False, room: int = UNBOUNDED) -> Novelty:
        """Look for an id, and add it if it is new: unless the live filters remember more than `limit` with it.

        `keep`: one that only the older filter knows is written to the newest too, without being counted again, so that it
        is known as long as it is seen every half window. `room`: bytes that may be taken beyond the first layer of a filter.
        """
        self.dispose(now)
        hashed = self._hash(id)
        if self.newest is not None and self.newest.has(hashed):
            return Novelty.KNOWN
        known = self.older is not None and self.older.has(hashed)
        if known and not keep:
            return Novelty.KNOWN
        if not known:
            if self.count() + 1 > limit:
                return Novelty.NO_ROOM
            self.fresh += 1
        self._written(now).put(hashed, room)
        return Novelty.KNOWN if known else Novelty.NEW

    def add(self, id: int, now: float) -> bool:
        """Look for an id, and add it if it is new. Was it?"""
        return self.see(id, now) is Novelty.NEW

    def holds(self, id: int, now: float) -> bool:
        """Does a live filter know this id, or seem to?"""
        self.dispose(now)
        hashed = self._hash(id)
        return any(one.has(hashed) for one in (self.newest, self.older) if one is not None)

    def count(self) -> int:
        """Ids that the filters remember, as of the last `see` or `dispose`: those that were new within the last half to whole
        window. Each once, so never more than there were within a window."""
        return self.fresh + (0 if self.older is None else self.older.count)

    def estimate(self) -> float:
        """The same, with about those that were taken for known though they were new."""
        older, newest = self.older, self.newest
        fresh = 0.0 if newest is None else newest.estimate() * self.fresh / newest.count
        return fresh + (0.0 if older is None else older.estimate())

    def dispose(self, now: float) -> None:
        """Drop what is past. A time before the last one counts as that one."""
        if now < self.turn or self.idle:
            return
        self.older, self.newest = (self.newest, None) if now < self.turn + self.half else (None, None)
        self.turn += self.half
        self.fresh = 0
        self.epoch = object()

    @property
    def idle(self) -> bool:
        """Is no filter left?"""
        return self.newest is None and self.older is None

    @property
    def size_bytes(self) -> int:
        """Bytes of the bits of both."""
        return sum(one.size_bytes for one in (self.newest, self.older) if one is not None)

    @property
    def overfull(self) -> bool:
        """Does a filter hold more than it has bits for?"""
        return any(one.overfull for one in (self.newest, self.older) if one is not None)

    def _written(self, now: float) -> BloomFilter:
        """The filter that is written to."""
        if self.newest is None:
            if self.older is None:
                self.turn = now + self.half
            self.newest = BloomFilter(self._rate, self._hash)
        return self.newest

    def save(self, out: Writer, wall: float) -> None:
        """All that `restore` needs beside window, rate and hash. `wall` is what wall clock times are ahead of monotonic ones."""
        out.real(self.turn + wall if not self.idle else 0.0)
        out.number(self.fresh)
        for one in (self.newest, self.older):
            out.number(one is not None)
            if one is not None:
                one.save(out)

    def restore(self, data: Reader, now: float, wall: float) -> None:
        """Become what was saved, as of now. BadState where that cannot be."""
        # a wall clock that was set back must not keep a filter for longer than its window
        self.turn = min(data.real() - wall, now + self.half)
        self.fresh = data.number(UNBOUNDED)
        self.newest = BloomFilter.restore(data, self._rate, self._hash) if data.number(1) else None
        self.older = BloomFilter.restore(data, self._rate, self._hash) if data.number(1) else None
        if self.fresh > (0 if self.newest is None else self.newest.count):
            raise BadState("a filter in it has more new ids than ids")
        self.epoch = object()
        self.dispose(now)
