"""Spread rate (seed s1, "Throttling Algorithm"): a rate over S windows in which a burst counts as if it had come evenly
over all of them.

In: amounts and monotonic seconds. Out: the average rate, and how long to wait until there is room again.

With a quota of R per second and a burst of B, there are S = floor(B / R) windows of one second, the running one
included. Recording N puts N/S into each of the last S windows, so that from then on every passing window takes away an
S-th of it. The average is the sum over S windows divided by their length. Kafka's own sampled rate keeps N in one
window and drops it at once, S + 1 windows later.

Taken literally this lets continuous traffic reach 2R in the long run (an amount weighs half as long as in a plain
window); a burst followed by waiting holds R. Exact: amounts are whole numbers, and the sum is kept as two integers
instead of S samples."""

from __future__ import annotations

from collections import deque
from math import floor

WINDOW_SECONDS = 1.0
"""controller.quota.window.size.seconds of seed s1."""


class SpreadRate:
    """The spread rate of one entity. `rate` > 0 is in units per second, `burst` >= `rate` in units.

    >>> window = SpreadRate(rate=5, burst=500)
    >>> window.record(560, now=0.0)
    >>> round(window.average(0.0), 3), round(window.wait(0.0), 3)
    (5.6, 12.0)
    >>> window.admits(10.0), window.admits(11.0)
    (False, True)
    """

    __slots__ = ("_moment", "_promise", "_recorded", "_total", "burst", "rate", "samples")

    def __init__(self, rate: float, burst: float) -> None:
        if not 0 < rate <= burst:
            raise ValueError(f"need 0 < rate <= burst, got rate {rate} and burst {burst}")
        self.rate = rate
        self.burst = burst
        self.samples = floor(burst / rate + 1e-9)  # 11 x 0.1 / 0.1 is a little less than 11 in binary
        self._recorded: deque[tuple[int, int]] = deque()  # (index of the window, amount recorded in it), oldest first
        self._total = 0  # sum of the amounts
        self._moment = 0  # sum of amount x index
        self._promise: float | None = None

    def average(self, now: float) -> float:
        """Units per second over the S windows that end with the running one."""
        window = self._advance(now)
        # an amount recorded k windows ago still fills S - k of the windows with an S-th of itself
        filled = self._total * (self.samples - window) + self._moment
        return filled / (self.samples * self.samples * WINDOW_SECONDS)

    def admits(self, now: float) -> bool:
        """Is there room? True iff the average is below the rate, or a promised instant has come with nothing recorded since."""
        return self.average(now) < self.rate or (self._promise is not None and now >= self._promise)

    def wait(self, now: float) -> float:
        """Seconds that a refused request is told to wait, (average - rate) / rate x S windows, one window at least.

        From the earliest such instant on, `admits` is true if nothing else is recorded.
        """
        told = (self.average(now) - self.rate) / self.rate * self.samples * WINDOW_SECONDS
        told = told if told > 0 else WINDOW_SECONDS
        promise = now + told
        self._promise = promise if self._promise is None else min(self._promise, promise)
        return told

    def record(self, amount: int, now: float) -> None:
        """Count `amount` >= 0 units as of now; whoever was promised room before has to ask again."""
        if amount <= 0:
            return
        window = self._advance(now)
        self._promise = None
        self._total += amount
        self._moment += amount * window
        if self._recorded and self._recorded[-1][0] == window:
            self._recorded[-1] = (window, self._recorded[-1][1] + amount)
        else:
            self._recorded.append((window, amount))

    def idle(self, now: float) -> bool:
        """Has everything recorded fallen out of the windows?"""
        self._advance(now)
        return not self._recorded

    def _advance(self, now: float) -> int:
        """The index of the running window, after forgetting what fell out of the S windows that end with it."""
        window = floor(now / WINDOW_SECONDS)
        if self._recorded:
            window = max(window, self._recorded[-1][0])  # a time before the last record counts as the time of that record
        while self._recorded and window - self._recorded[0][0] >= self.samples:
            index, amount = self._recorded.popleft()
            self._total -= amount
            self._moment -= amount * index
        return window
