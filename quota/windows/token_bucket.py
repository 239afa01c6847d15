"""The token bucket of Kafka's controller mutation quota (KIP-599 as it was built; `TokenBucket` of Apache Kafka).

`burst` tokens at first, and `rate` more each second up to that. Whatever is recorded takes its amount out, below zero too:
one is admitted while no debt is left (0 tokens are none), and has to wait until it is paid. In the long run it holds
`rate`, where spreading over windows may let twice as much pass.

In: amounts with monotonic seconds. Out: whether there is room, and the seconds until there is."""

from __future__ import annotations

from collections.abc import Sequence
from math import ulp
from typing import Final

from quota.windows import Mark

MOST: Final = 16
"""Records that are told apart for credits. What was recorded before them is credited with less at worst."""


class TokenBucket:
    """The bucket of one entity. `rate` > 0 is in units per second, `burst` >= `rate` in units; else ValueError.

    >>> bucket = TokenBucket(rate=5, burst=500)
    >>> _ = bucket.record(560, now=0.0)
    >>> bucket.admits(0.0), bucket.wait(0.0), bucket.admits(12.0)
    (False, 12.0, True)
    """

    told_after = True
    """A request that cannot be refused is told what is to be waited once it is recorded, as Kafka does."""

    __slots__ = ("_at", "_gaps", "_records", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float) -> None:
        self.rate, self.burst = _checked(rate, burst)
        self._tokens = burst  # as of `_at`
        self._at: float | None = None
        self._records = 0
        self._gaps: list[tuple[int, float]] = []
        """(number of a record, the least that any record from it on found missing from the bucket), both rising: what was
        recorded before was refilled but for that much, or would have found the bucket full."""

    def change(self, rate: float, burst: float, now: float) -> None:
        """Another limit from now on; what is missing from the bucket stays missing."""
        missing = self.used(now)
        self.rate, self.burst = _checked(rate, burst)
        self._tokens = burst - missing
        self._at = now if self._at is None else max(now, self._at)

    def average(self, now: float) -> float:
        """Units per second: what is missing from the bucket, over the time in which it is filled. The rate when it is empty."""
        return self.used(now) / self.burst * self.rate

    def admits(self, now: float) -> bool:
        """Is there no debt? One smaller than times and figures are exact is none, so that who waits as told is admitted."""
        return self._filled(now) >= -self._blur(self._tokens, now)

    def refuses(self, amounts: Sequence[int], now: float) -> bool:
        """Would any of these amounts > 0 find a debt, each recorded before the next is judged? Nothing is recorded."""
        if not amounts:
            return False
        if not self.admits(now):
            return True
        tokens = self._filled(now)
        for amount in amounts[:-1]:
            tokens -= amount
            if tokens < -self._blur(tokens, now):
                return True
        return False

    def wait(self, now: float) -> float:
        """Seconds until the debt is paid; 0 without one."""
        return max(-self._filled(now) / self.rate, 0.0)

    def left(self, now: float) -> float:
        """Units until the bucket is empty."""
        return max(self._filled(now), 0.0)

    def used(self, now: float) -> float:
        """Units that are missing from the bucket, more than the burst when there is a debt."""
        return self.burst - self._filled(now)

    def record(self, amount: int, now: float) -> Mark:
        """Take `amount` >= 0 units out as of now."""
        if amount > 0:
            filled = self._filled(now)
            self._records += 1
            self._note(self.burst - filled)
            self._tokens = filled - amount
            self._at = now if self._at is None else max(now, self._at)
        return self._records, 0

    def credit(self, amount: int, mark: Mark) -> None:
        """Put back what was recorded under this mark and did not happen, as if it had never been recorded: but for what the
        bucket would have spilled meanwhile."""
        before = [entry for entry in self._gaps if entry[0] <= mark[0]]
        later = self._gaps[len(before) :]
        back = max(min(amount, later[0][1]) if later else amount, 0)
        while before and later and before[-1][1] >= later[0][1] - back:
            before.pop()
        self._gaps = before + [(number, gap - back) for number, gap in later]
        self._tokens += back

    def idle(self, now: float) -> bool:
        """Is the bucket full?"""
        return self._filled(now) >= self.burst

    def _filled(self, now: float) -> float:
        """The tokens as of now. A time before the last record counts as the time of that record."""
        passed = 0.0 if self._at is None else max(now - self._at, 0.0)
        return min(self._tokens + passed * self.rate, self.burst)

    def _blur(self, tokens: float, now: float) -> float:
        """How exact tokens are that were counted from `tokens` up to now."""
        return 4 * (ulp(tokens) + self.rate * ulp(now))

    def _note(self, gap: float) -> None:
        """The running record found so much missing."""
        while self._gaps and self._gaps[-1][1] >= gap:
            self._gaps.pop()
        self._gaps.append((self._records, gap))
        if len(self._gaps) > MOST:
            self._gaps[:2] = [(self._gaps[1][0], self._gaps[0][1])]


def _checked(rate: float, burst: float) -> tuple[float, float]:
    if not 0 < rate <= burst:
        raise ValueError(f"need 0 < rate <= burst, got rate {rate} and burst {burst}")
    return rate, burst
