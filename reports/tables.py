"""Which tables a report writes, and from what.

In: stored lines (`reports.line_store`), or the tables by day. Out: the DataFrames of every table, by name; docs/report.md lists
their columns, and a test compares the two. Left to others: each table's sums (`reports.transforms`), writing (`reports.publish`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median_low

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from reports.errors import ReportError
from reports.stored import Stored
from reports.transforms.decisions import decisions, throttles
from reports.transforms.latencies import latencies
from reports.transforms.lines import gaps
from reports.transforms.owned import owned
from reports.transforms.producers import producer_ids
from reports.transforms.rates import rates
from reports.transforms.refusals import refusals
from reports.transforms.topics import topics
from reports.transforms.traffic import traffic
from reports.transforms.volumes import volume_topics, volumes

Tables = Mapping[str, Stored]
"""Name of a table -> the table."""

LINES = "lines"
BY_DAY = (
    "traffic",
    "topics",
    "refusals",
    "throttles",
    "decisions",
    "rates",
    "volumes",
    "volume_topics",
    "producer_ids",
    "owned",
    "latencies",
    "gaps",
    "writers",
)
"""Tables with a `date`, each day made of that day's lines alone."""
MADE_OF = {
    **dict.fromkeys(("traffic", "topics", "refusals", "rates"), "usage"),
    **dict.fromkeys(("throttles", "decisions"), "decision"),
    **dict.fromkeys(("volumes", "volume_topics"), "volume"),
    "producer_ids": "producer_ids",
    "owned": "owned",
    "latencies": "latency",
    "gaps": "gap",
}
"""Tables of BY_DAY that are made of one type of lines, so that without such lines they are known to be empty."""
OF_READING = ("files", "quarantine")
"""Tables of what was read, not of what it says."""
OF_PERIOD = ("entities", "forecasts", "budgets", "chargeback", "quotas", "what_if")
"""Tables of the whole period, made of those by day."""
NAMES = (LINES, *BY_DAY, *OF_READING, *OF_PERIOD)
"""Every table."""

HOUR = 3600
_DAY = 86_400
_MIN_RATE_SECONDS = 60
SAMPLE = 20_000
"""Lines that are enough to tell the interval by."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths in seconds: of the tables' buckets, of what rates are averaged over, and of the logs' own intervals."""

    tables: int
    rates: int
    interval: int = 10


def bucket_lengths(usage: pa.Table, bucket: int | None, span: float) -> Lengths:
    """The tables' buckets as `bucket`, else the logs' own intervals where they span a day at most (`span`, in seconds), else an
    hour.

    Raises:
        ReportError: `bucket` is shorter than the intervals, so that most buckets would be empty and the others too high.
    """
    interval = usual_interval(usage)
    if bucket is not None and interval is not None and bucket < interval:
        raise ReportError(f"--bucket of {bucket} s is shorter than the intervals in the logs, which are {interval} s")
    own = interval or 10  # the proxy's default interval; only for logs without a usage line
    return Lengths(bucket or (own if span <= _DAY else max(HOUR, own)), max(own, _MIN_RATE_SECONDS), own)


def usual_interval(usage: pa.Table) -> int | None:
    """Length of the intervals of usage lines (`start`, `end`), in whole seconds, at least 1: the median, as the first and last of a
    proxy are shorter."""
    lengths = pc.subtract(usage["end"], usage["start"]).cast(pa.int64()).to_pylist()
    return max(1, round(median_low(lengths) / 1_000_000)) if lengths else None


def tables_by_day(lines: DataFrame, lengths: Lengths) -> Mapping[str, Callable[[], DataFrame]]:
    """Functions that make the tables of BY_DAY but `writers` from valid lines without duplicates. They are called in parallel, as
    building a query takes time, too."""
    seconds = lengths.tables
    # What is not summed comes in as many pieces as the lines do: put together, so that a day has few files.
    return {
        "rates": lambda: rates(lines, lengths.rates),
        "traffic": lambda: traffic(lines, seconds),
        "topics": lambda: topics(lines, seconds),
        "refusals": lambda: refusals(lines, seconds),
        "throttles": lambda: throttles(decisions(lines), seconds),
        "decisions": lambda: decisions(lines).hint("rebalance", "date"),
        "volumes": lambda: volumes(lines, seconds),
        "volume_topics": lambda: volume_topics(lines),
        "producer_ids": lambda: producer_ids(lines, seconds),
        "owned": lambda: owned(lines),
        "latencies": lambda: latencies(lines, seconds),
        "gaps": lambda: gaps(lines).hint("rebalance", "date"),
    }
