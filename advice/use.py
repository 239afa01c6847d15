"""What an owner used, interval by interval. In: rates of intervals. Out: a percentile of them. Memory is that of a histogram, whose
buckets are 2% wide: a percentile is up to 2% too high, never too low."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil, log
from typing import Final

PERCENTILE: Final = 0.99
"""Which part of the intervals a limit lets pass, before headroom."""
LEAST_INTERVALS: Final = 30
"""An owner that was seen in fewer has no suggestion."""
LEVEL_SECONDS: Final = 60
"""What is limited as it is at a time, and not per second, is looked at so often: in stretches of this length it counts with the
most that there was."""
_STEP: Final = 1.02
_ROUNDING: Final = 1e-9
"""By how many buckets a logarithm may be off."""


@dataclass(frozen=True, slots=True)
class Use:
    """Rates per second of the intervals in which an owner used anything: how many, the percentile, the largest."""

    intervals: int = 0
    percentile: float = 0.0
    largest: float = 0.0


NOT_USED: Final = Use()


class Histogram:
    """Amounts above 0, in buckets of 2%."""

    __slots__ = ("_counts", "largest", "total")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.total = 0
        self.largest = 0.0

    def add(self, amount: float) -> None:
        self._counts[_bucket(amount)] += 1
        self.total += 1
        self.largest = max(self.largest, amount)

    def percentile(self, part: float) -> float:
        """What this part of all amounts, 0 to 1, is at most."""
        left = part * self.total
        for bucket, count in sorted(self._counts.items()):
            left -= count
            if left <= 1e-9:
                return min(_STEP**bucket, self.largest)
        return self.largest

    def use(self, part: float = PERCENTILE) -> Use:
        return Use(self.total, self.percentile(part), self.largest)


def as_a_level(looks: int, largest: float) -> Use:
    """What there was at a time: a limit below the largest would refuse what was there already, however short that was."""
    return Use(looks, largest, largest)


def as_in_a_histogram(intervals: int, percentile: float, largest: float) -> Use:
    """The same from an exact percentile."""
    return Use(intervals, min(_STEP ** _bucket(percentile), largest) if percentile > 0 else 0.0, largest)


def _bucket(amount: float) -> int:
    return ceil(log(amount) / log(_STEP) - _ROUNDING)
