"""Spread rate (seed s1, "Throttling Algorithm"): a rate over S windows in which a burst counts as if it had come evenly
over all of them.

In: amounts and monotonic seconds. Out: the average rate, and how long to wait until there is room again.

With a quota of R per second and a burst of B, there are S = floor(B / R) windows of one second, the running one
included. Recording N puts N/S into each of the last S windows, so that from then on every passing window takes away an
S-th of it. The average is the sum over S windows divided by their length. Kafka's own sampled rate keeps N in one
window and drops it at once, S + 1 windows later.

Taken literally this lets continuous traffic reach 2R in the long run (an amount weighs half as long as in a plain
window); a burst followed by waiting holds R. Exact: amounts are whole numbers, and the sum is kept as two integers
instead of S samples. Memory is bounded: beyond `MOST` windows in which something was recorded, older ones are counted
together as of the latest of them, so that they weigh up to S / `GRAINS` windows longer, never shorter."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from math import floor
from typing import Final

from quota.windows import Mark

WINDOW_SECONDS = 1.0
"""controller.quota.window.size.seconds of seed s1."""
RECENT: Final = 64
"""Windows that are always told apart, the latest in which something was recorded."""
GRAINS: Final = 96
MOST: Final = 192
"""Windows with something in them that are kept, 16 bytes each; more than `RECENT` and `GRAINS` and one."""
LARGEST: Final = 1 << 62
"""Units that are told from more: an amount beyond is a claim that no cluster can serve."""


class SpreadRate:
    """The spread rate of one entity. `rate` > 0 is in units per second, `burst` >= `rate` in units; else ValueError.

    >>> window = SpreadRate(rate=5, burst=500)
    >>> _ = window.record(560, now=0.0)
    >>> round(window.average(0.0), 3), round(window.wait(0.0), 3)
    (5.6, 12.0)
    >>> window.admits(10.0), window.admits(11.0)
    (False, True)
    """

    told_after = False
    """A request that cannot be refused is told what others would have been told in its place, before it is recorded."""

    __slots__ = (
        "_amounts",
        "_gone",
        "_merged",
        "_moment",
        "_promise",
        "_since",
        "_total",
        "_turn",
        "_windows",
        "burst",
        "rate",
        "samples",
    )

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst, self.samples = rate, burst, _samples(rate, burst)
        self._windows = array("q")  # indices of the windows in which something was recorded, oldest first
        self._amounts = array("q")  # and how much
        self._total = 0  # sum of the amounts
        self._moment = 0  # sum of amount x index
        self._gone = -LARGEST  # the latest index that was forgotten
        self._merged = -LARGEST  # the latest index that older ones may be counted under
        self._promise: float | None = None
        self._since = 0  # recorded since the promise
        self._turn = 0  # which promise it is

    def change(self, rate: float, burst: float, now: float) -> None:
        """Another limit from now on; what was recorded stays, promises do not."""
        self._advance(now)
        self.rate, self.burst, self.samples = rate, burst, _samples(rate, burst)
        self._promise = None

    def average(self, now: float) -> float:
        """Units per second over the S windows that end with the running one."""
        return self._average(self._advance(now), 0)

    def admits(self, now: float) -> bool:
        """Is there room? True iff the average is below the rate, or a promised instant has come with nothing recorded since."""
        return self.average(now) < self.rate or (self._promise is not None and not self._since and now >= self._promise)

    def refuses(self, amounts: Sequence[int], now: float) -> bool:
        """Would any of these amounts > 0 find no room, each recorded before the next is judged? Nothing is recorded."""
        if not amounts:
            return False
        if not self.admits(now):
            return True
        before = sum(amounts[:-1])  # each makes less room, so the last one decides
        return before > 0 and self._average(self._advance(now), before) >= self.rate

    def wait(self, now: float) -> float:
        """Seconds that a refused request is told to wait, (average - rate) / rate x S windows, one window at least.

        From the earliest such instant on, `admits` is true if nothing else is recorded.
        """
        told = (self.average(now) - self.rate) / self.rate * self.samples * WINDOW_SECONDS
        told = told if told > 0 else WINDOW_SECONDS
        if self._promise is None or self._since:
            self._promise, self._since, self._turn = now + told, 0, self._turn + 1
        else:
            self._promise = min(self._promise, now + told)
        return told

    def left(self, now: float) -> float:
        """Units until the average reaches the rate."""
        return max((self.rate - self.average(now)) * self.samples * WINDOW_SECONDS, 0.0)

    def used(self, now: float) -> float:
        """Units that weigh now: what `left` is short of the burst, or more than that."""
        return self.average(now) * self.samples * WINDOW_SECONDS

    def record(self, amount: int, now: float) -> Mark:
        """Count `amount` >= 0 units as of now. A promise of room that was made before does not hold any more."""
        window = self._advance(now)
        amount = min(amount, LARGEST - self._total)
        if amount > 0:
            if not self._windows or self._windows[-1] != window:
                if len(self._windows) >= MOST:
                    self._merge()
                self._windows.append(window)
                self._amounts.append(0)
            self._add(len(self._windows) - 1, amount)
            self._since += amount
        return window, self._turn

    def credit(self, amount: int, mark: Mark) -> None:
        """Take back what was recorded under this mark and did not happen, unless its window has passed: as if it had never
        been recorded, promises included."""
        window, turn = mark
        at = bisect_left(self._windows, window)  # that window, or the later one that it is counted together with
        if window <= self._gone or at == len(self._windows):
            return
        if self._windows[at] != window and self._windows[at] > self._merged:
            return
        amount = min(max(amount, 0), self._amounts[at])
        self._add(at, -amount)
        if turn == self._turn:
            self._since -= amount
        if not self._amounts[at]:
            del self._windows[at], self._amounts[at]

    def idle(self, now: float) -> bool:
        """Has everything recorded fallen out of the windows?"""
        self._advance(now)
        return not self._windows

    def _average(self, window: int, more: int) -> float:
        """As of a window, if `more` units were recorded in it."""
        # an amount recorded k windows ago still fills S - k of the windows with an S-th of itself
        filled = (self._total + more) * (self.samples - window) + self._moment + more * window
        return filled / (self.samples * self.samples * WINDOW_SECONDS)

    def _add(self, at: int, amount: int) -> None:
        self._amounts[at] += amount
        self._total += amount
        self._moment += amount * self._windows[at]

    def _advance(self, now: float) -> int:
        """The index of the running window, after forgetting what fell out of the S windows that end with it."""
        window = floor(now / WINDOW_SECONDS)
        if not self._windows:
            return window
        window = max(window, self._windows[-1])  # a time before the last record counts as the time of that record
        if window - self._windows[0] >= self.samples:
            passed = bisect_left(self._windows, window - self.samples + 1)
            self._gone = self._windows[passed - 1]
            for at in range(passed):
                self._add(at, -self._amounts[at])
            del self._windows[:passed], self._amounts[:passed]
        return window

    def _merge(self) -> None:
        """Count older windows together, `GRAINS` of them at most: each as of the latest in its grain."""
        grain = -(-self.samples // GRAINS)
        old = len(self._windows) - RECENT
        windows, amounts = array("q"), array("q")
        for window, amount in zip(self._windows[:old], self._amounts[:old], strict=True):
            if windows and windows[-1] // grain == window // grain:
                windows[-1] = window
                amounts[-1] += amount
            else:
                windows.append(window)
                amounts.append(amount)
        self._windows, self._amounts = windows + self._windows[old:], amounts + self._amounts[old:]
        self._merged = windows[-1]
        self._moment = sum(window * amount for window, amount in zip(self._windows, self._amounts, strict=True))


def _samples(rate: float, burst: float) -> int:
    if not 0 < rate <= burst:
        raise ValueError(f"need 0 < rate <= burst, got rate {rate} and burst {burst}")
    return floor(burst / rate + 1e-9)  # 11 x 0.1 / 0.1 is a little less than 11 in binary
