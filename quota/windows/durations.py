"""How long something took: counts by duration, for quantiles and for histograms of metrics.

In: seconds, and how many took so long. Out: counts. A bucket is 1 ms wide below 8 ms, and a quarter of a power of two above, so a
quantile is right to a fifth; 131 s and more are one bucket. An object has 64 counts, whatever it counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

BUCKETS: Final = 64
LONGEST: Final = 131.0
"""Seconds; what took longer is counted as this."""
_FINE: Final = 8
"""Buckets of 1 ms each."""
OCTAVES: Final = tuple(2**n / 1000 for n in range(17))
"""Upper bounds of the classic histogram that metrics show, in seconds: 1 ms to 65.5 s. Each is the bound of a bucket here."""


class Durations:
    """Counts by duration since it was made."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.seconds = 0.0
        """the sum of all durations"""

    def add(self, seconds: float, count: int = 1) -> None:
        """So many took so long each. What is below 0 counts as 0."""
        if seconds <= 0.0:
            self.counts[0] += count
            return
        self.seconds += seconds * count
        milliseconds: i64 = int(min(seconds, LONGEST) * 1000.0)
        bucket: i64 = 0
        while milliseconds >= _FINE:
            milliseconds >>= 1
            bucket += 4
        self.counts[bucket + milliseconds] += count

    def merge(self, other: Durations) -> None:
        """Add what another one has counted."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds

    def octaves(self) -> list[tuple[float, int]]:
        """(upper bound in seconds, how many took less) for a histogram."""
        found, total, bucket = [], 0, 0
        for bound in OCTAVES:
            while bucket < BUCKETS and upper(bucket) <= bound:
                total += self.counts[bucket]
                bucket += 1
            found.append((bound, total))
        return found


def upper(bucket: int) -> float:
    """The end of a bucket, in seconds."""
    shift = max(bucket - 4, 0) // 4
    return float((bucket - 4 * shift + 1) << shift) / 1000


def lower(bucket: int) -> float:
    """Where a bucket begins, in seconds."""
    return upper(bucket - 1) if bucket else 0.0


def quantile(counts: Sequence[int], part: float) -> float:
    """The duration within which this part of all ended, in seconds, as if they were spread evenly in their bucket; 0 for none."""
    wanted = part * sum(counts)
    for bucket, count in enumerate(counts):
        if count and wanted <= count:
            return lower(bucket) + (upper(bucket) - lower(bucket)) * wanted / count
        wanted -= count
    return 0.0


def longest(counts: Sequence[int]) -> float:
    """The end of the last bucket with anything in it, in seconds; 0 for none."""
    return next((upper(bucket) for bucket in range(len(counts) - 1, -1, -1) if counts[bucket]), 0.0)
