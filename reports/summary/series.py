"""Series: sums over time for a plot, without holes.

In: a table with `start`, what tells its keys apart, the keys worth a colour of their own. Out: `Series`. Left to others: drawing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from reports.stored import Expression, Stored, sums
from reports.summary.model import Series

Measures = Mapping[str, str | Expression]
"""Name of a sum -> what is summed."""

MAX_KEYS = 6
"""Keys with a colour of their own in a plot; the rest are one."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The buckets of every plot of a report: the first starts at `first` (seconds since the epoch), each is `seconds` long."""

    first: int
    seconds: int
    count: int

    @classmethod
    def of(cls, first: datetime, last: datetime, seconds: int) -> "Timeline":
        """The buckets that hold the time from `first` to `last`, that excluded."""
        start = int(first.timestamp()) // seconds * seconds
        return cls(start, seconds, max(1, math.ceil((last.timestamp() - start) / seconds)))


def make_series(
    stored: Stored, key: str | Expression, shown: Sequence[str], measures: Measures, timeline: Timeline, columns: Sequence[str]
) -> dict[str, Series]:
    """One series for each of `measures`, all with the keys `shown` in their order, and last the others where there are any.
    `columns` are what keys and measures are made of."""
    few = pa.array(shown[:MAX_KEYS], pa.string())

    def named(part: pa.RecordBatch) -> pa.Array:
        keys = part[key] if isinstance(key, str) else key(part)
        return pc.if_else(pc.is_in(keys, few), keys, pa.scalar(None, pa.string()))

    def bucket(part: pa.RecordBatch) -> pa.Array:
        seconds = pc.divide(part["start"].cast(pa.int64()), 1_000_000)
        return pc.divide(pc.subtract(seconds, timeline.first), timeline.seconds)

    amounts = {name: (measure, "sum") for name, measure in measures.items()}
    rows = sums(stored.parts(["start", *columns]), {"bucket": bucket, "key": named}, amounts)
    keys = (*shown[:MAX_KEYS], None)
    place = {name: index for index, name in enumerate(keys)}
    found = {name: [[0.0] * timeline.count for _ in keys] for name in measures}
    for row in rows:
        for name in measures:
            found[name][place[row["key"]]][row["bucket"]] += float(row[name] or 0)
    return {name: _series(timeline, keys, values) for name, values in found.items()}


def most_of(stored: Stored, key: str | Expression, measure: str, columns: Sequence[str]) -> list[str]:
    """The keys with most of `measure`, and with any: at most MAX_KEYS."""
    rows = sums(stored.parts([measure, *columns]), {"key": key}, {"sum": (measure, "sum")})
    with_any = [row for row in rows if row["sum"] and row["key"] is not None]
    return [row["key"] for row in sorted(with_any, key=lambda row: (-row["sum"], row["key"]))[:MAX_KEYS]]


def _series(timeline: Timeline, keys: Sequence[str | None], values: list[list[float]]) -> Series:
    if not any(values[-1]):
        keys, values = keys[:-1], values[:-1]
    return Series(timeline.first, timeline.seconds, tuple(keys), tuple(map(tuple, values)))
