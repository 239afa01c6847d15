"""Latencies as HDR histograms. In: microseconds. Out: `Histogram`, a value that files hold and that merges exactly.

Recorded with three significant digits from 1 µs to one hour; smallest, largest and sum are exact. A longer latency counts as
an hour. A negative latency counts as zero; these are counted too, as they show that the clocks of two machines differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

from hdrh.histogram import HdrHistogram
from pydantic import BaseModel, ConfigDict, Field, model_validator

LONGEST: Final = 3_600_000_000
DIGITS: Final = 3
PERCENTILES: Final = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0)

_MAX_PENDING = 1 << 16
"""Number of different values that are kept in a dict before they go to the library, as a dict is much faster."""


def _empty() -> HdrHistogram:
    return HdrHistogram(1, LONGEST, DIGITS)


class Histogram(BaseModel):
    """Latencies in microseconds; all numbers but the percentiles are exact."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    count: int = Field(0, ge=0, description="How many were recorded.")
    min_us: int = Field(0, ge=0, description="The shortest, in µs; 0 if there is none.")
    max_us: int = Field(0, ge=0, description="The longest, in µs; 0 if there is none.")
    sum_us: int = Field(0, ge=0, description="All of them added, in µs: the mean is sum_us / count.")
    below_zero: int = Field(0, ge=0, description="Recorded as 0 since they were negative: clocks of two machines that differ.")
    percentiles_us: dict[str, int] = Field(
        default_factory=dict, description="Percentile (`50`, `99.9`) to µs, three significant digits."
    )
    hdr: str = Field(
        "", description="All counts, as HdrHistogram's compressed V2 encoding in base64; empty if nothing was recorded."
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.hdr and _decode(self.hdr).get_total_count() != self.count:
            raise ValueError(f"`hdr` does not hold the {self.count} latencies that `count` claims")
        if self.count and not self.hdr:
            raise ValueError(f"`hdr` is empty, `count` is {self.count}")
        return self

    @property
    def mean_us(self) -> float:
        """0 if there is none."""
        return self.sum_us / self.count if self.count else 0.0

    def percentile_us(self, percentile: float) -> int:
        """This percentile in µs; 0 if nothing was recorded. Never more than the longest."""
        if not self.count:
            return 0
        if (known := self.percentiles_us.get(f"{percentile:g}")) is not None:
            return known
        return _at(_decode(self.hdr), (percentile,), self.max_us)[f"{percentile:g}"]

    def curve(self, percentiles: Iterable[float]) -> list[int]:
        """The latency at each of them, in µs; nothing if nothing was recorded."""
        wanted = list(percentiles)
        if not self.count:
            return []
        found = _at(_decode(self.hdr), wanted, self.max_us)
        return [found[f"{percentile:g}"] for percentile in wanted]


class Recorder:
    """Latencies of one driver, while it runs. Memory is bounded, whatever is recorded."""

    def __init__(self) -> None:
        self._pending: dict[int, int] = {}
        self._counts = _empty()
        self._min, self._max, self._sum, self._below = LONGEST, 0, 0, 0

    def record(self, us: int, count: int = 1) -> None:
        """Record a latency in microseconds `count` times."""
        pending = self._pending
        pending[us] = pending.get(us, 0) + count
        if len(pending) >= _MAX_PENDING:
            self._settle()

    def add(self, other: Histogram) -> None:
        """All that another one recorded."""
        if not other.count:
            return
        self._counts.add(_decode(other.hdr))
        self._min, self._max = min(self._min, other.min_us), max(self._max, other.max_us)
        self._sum += other.sum_us
        self._below += other.below_zero

    def histogram(self) -> Histogram:
        """What was recorded until now."""
        self._settle()
        count = self._counts.get_total_count()
        if not count:
            return Histogram()
        return Histogram(
            count=count,
            min_us=self._min,
            max_us=self._max,
            sum_us=self._sum,
            below_zero=self._below,
            percentiles_us=_at(self._counts, PERCENTILES, self._max),
            hdr=self._counts.encode().decode("ascii"),
        )

    def _settle(self) -> None:
        for given, count in self._pending.items():
            us = min(max(given, 0), LONGEST)
            self._counts.record_value(us, count)
            self._min, self._max = min(self._min, us), max(self._max, us)
            self._sum += us * count
            self._below += count if given < 0 else 0
        self._pending.clear()


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """All of them as if one had recorded everything."""
    recorder = Recorder()
    for histogram in histograms:
        recorder.add(histogram)
    return recorder.histogram()


def _at(counts: HdrHistogram, percentiles: Iterable[float], longest: int) -> dict[str, int]:
    found = counts.get_percentile_to_value_dict(list(percentiles))
    return {f"{percentile:g}": min(int(us), longest) for percentile, us in found.items()}


def _decode(text: str) -> HdrHistogram:
    """Raises ValueError for a text that is no histogram of this module."""
    try:
        found = HdrHistogram.decode(text.encode("ascii"))
    except Exception as e:  # the library, its C part and zlib raise exceptions of many types
        raise ValueError("`hdr` is no HdrHistogram V2 encoding") from e
    if (found.lowest_trackable_value, found.highest_trackable_value, found.significant_figures) != (1, LONGEST, DIGITS):
        raise ValueError(f"`hdr` is not of 1 µs to one hour with {DIGITS} digits")
    return found
