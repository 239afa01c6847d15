"""Tables room: which tables a report writes, from the parsed lines.

In: parsed lines (`reports.parse`). Out: the DataFrames of every table, by name; docs/report.md lists their columns, and a test
compares the two. Left to others: each table's sums (`reports.transforms`), writing (`reports.write`).
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from reports.errors import ReportError
from reports.transforms.buckets import usual_interval
from reports.transforms.decisions import decisions, throttles
from reports.transforms.lines import gaps, good, without_copies, writers
from reports.transforms.quarantine import quarantine
from reports.transforms.refusals import refusals
from reports.transforms.topics import topics
from reports.transforms.traffic import traffic

Tables = Mapping[str, DataFrame]
"""Name of a table -> the table."""

NAMES = ("traffic", "topics", "refusals", "throttles", "decisions", "gaps", "writers", "quarantine")
"""Every table, in the order in which they are written."""

_DEFAULT_SECONDS = 10  # the proxy's default interval; only for logs without a usage line


def bucket_length(parsed: DataFrame, wanted: int | None) -> int:
    """Length of the tables' buckets in seconds: as `wanted`, else that of the log's own intervals.

    Raises:
        ReportError: `wanted` is shorter than the intervals, so that most buckets would be empty and the others too high.
    """
    interval = usual_interval(good(parsed))
    if wanted is not None and interval is not None and wanted < interval:
        raise ReportError(f"--bucket of {wanted} s is shorter than the intervals in the logs, which are {interval} s")
    return wanted or interval or _DEFAULT_SECONDS


def make_tables(parsed: DataFrame, logs: str, seconds: int) -> Tables:
    """Every table, in buckets of `seconds`. Copies of lines are counted first: mostly there is none to be dropped."""
    lines = good(parsed)
    written_by = writers(lines).persist()
    if not written_by.where("duplicates > 0").isEmpty():
        lines = without_copies(lines).persist()
    decided = decisions(lines)
    return {
        "traffic": traffic(lines, seconds),
        "topics": topics(lines, seconds),
        "refusals": refusals(lines, seconds),
        "throttles": throttles(decided, seconds),
        "decisions": decided,
        "gaps": gaps(lines),
        "writers": written_by,
        "quarantine": quarantine(parsed, logs),
    }
