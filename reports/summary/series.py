"""Series: sums over time for a plot, without holes.

In: a table with `start`, what tells its keys apart, the keys worth a colour of their own. Out: `Series`. Left to others: drawing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame

from reports.summary.model import Series
from reports.transforms.ranking import Measures, over_time

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


def make_series(table: DataFrame, key: str, shown: Sequence[str], measures: Measures, timeline: Timeline) -> dict[str, Series]:
    """One series for each of `measures`, all with the keys `shown` in their order, and last the others where there are any."""
    rows = over_time(table, key, shown[:MAX_KEYS], measures, timeline.seconds).collect()
    keys = (*shown[:MAX_KEYS], None)
    place = {name: index for index, name in enumerate(keys)}
    found = {name: [[0.0] * timeline.count for _ in keys] for name in measures}
    for row in rows:
        bucket = (row["start"] - timeline.first) // timeline.seconds
        for name in measures:
            found[name][place[row["key"]]][bucket] += float(row[name] or 0)
    return {name: _series(timeline, keys, values) for name, values in found.items()}


def _series(timeline: Timeline, keys: Sequence[str | None], values: list[list[float]]) -> Series:
    if not any(values[-1]):
        keys, values = keys[:-1], values[:-1]
    return Series(timeline.first, timeline.seconds, tuple(keys), tuple(map(tuple, values)))
