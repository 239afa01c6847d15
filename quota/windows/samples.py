"""Sample windows as Kafka's metrics have them (`SampledStat`, `Rate` and `Avg` of Apache Kafka): to tell, not to limit.

In: amounts with monotonic seconds. Out: their rate per second, and their average. A sample starts with an amount and lasts
`seconds`; it counts until `number` times that have passed since."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from quota.state import BadState, Reader, Writer

MOST: Final = 1000


class Sample(NamedTuple):
    """What was recorded from `start` on: the sum of the amounts, and how many they were."""

    start: float
    total: float
    events: int


class Samples:
    """`number` in 1 to `MOST` samples of `seconds` > 0 each; else ValueError.

    >>> ids = Samples(number=11, seconds=3600)
    >>> ids.record(36, now=0.0)
    >>> ids.rate(0.0), ids.rate(36000.0), ids.rate(39600.0)
    (0.001, 0.001, 0.0)
    """

    __slots__ = ("_kept", "number", "seconds")

    def __init__(self, number: int, seconds: float) -> None:
        if not (1 <= number <= MOST and seconds > 0):
            raise ValueError(f"need 1 to {MOST} samples of more than 0 s, got {number} of {seconds} s")
        self.number, self.seconds = number, seconds
        self._kept: deque[Sample] = deque(maxlen=number)

    def record(self, amount: float, now: float) -> None:
        """Count an amount as of now."""
        if not self._kept or now >= self._kept[-1].start + self.seconds:
            self._kept.append(Sample(now, 0, 0))
        last = self._kept[-1]
        self._kept[-1] = Sample(last.start, last.total + amount, last.events + 1)

    def rate(self, now: float) -> float:
        """Amounts per second since the oldest sample began, as if there had been all but one of the samples at least."""
        kept = self.kept(now)
        if not kept:
            return 0.0
        passed = max(now - kept[0].start, 0.0)
        missing = max(self.number - 1 - passed // self.seconds, 0.0)
        return sum(one.total for one in kept) / max(passed + missing * self.seconds, self.seconds)

    def average(self, now: float) -> float:
        """The average amount; 0 when there is none."""
        kept = self.kept(now)
        return sum(one.total for one in kept) / sum(one.events for one in kept) if kept else 0.0

    def kept(self, now: float) -> list[Sample]:
        """The samples that count now, the oldest first."""
        while self._kept and now - self._kept[0].start >= self.number * self.seconds:
            self._kept.popleft()
        return list(self._kept)

    def save(self, out: Writer, now: float, wall: float) -> None:
        """What counts now. `wall` is what wall clock times are ahead of monotonic ones."""
        kept = self.kept(now)
        out.number(len(kept))
        for one in kept:
            out.real(one.start + wall)
            out.real(one.total)
            out.number(one.events)

    def restore(self, data: Reader, now: float, wall: float) -> None:
        """Become what was saved, as of now. BadState where that cannot be."""
        kept = [Sample(min(data.real() - wall, now), data.real(), data.number()) for _ in range(data.number(self.number))]
        if any(one.total < 0 or not one.events for one in kept):
            raise BadState("a sample in it has nothing recorded")
        self._kept = deque(sorted(kept), maxlen=self.number)
