"""Build: one summary out of the tables.

In: the tables, the parsed lines (only to count them), what the person asked for. Out: `Report`.
"""

from datetime import UTC, datetime

from pyspark.sql import DataFrame

from reports.summary.limits import summarize_limits
from reports.summary.lines import count_lines, list_quarantined, list_writers
from reports.summary.model import Report, Writer
from reports.summary.series import Timeline
from reports.summary.traffic import summarize_traffic
from reports.tables import Tables
from reports.transforms.buckets import plot_seconds

_EPOCH = datetime.fromtimestamp(0, tz=UTC)


def summarize(tables: Tables, parsed: DataFrame, logs: str, seconds: int, made: datetime) -> Report:
    """Everything that the page shows; empty lists and zeros where the logs have nothing."""
    writers = list_writers(tables)
    first, last = _period(writers)
    timeline = _timeline(first or _EPOCH, last or _EPOCH, seconds)
    return Report(
        logs=logs,
        made=made,
        first=first,
        last=last,
        seconds=seconds,
        lines=count_lines(parsed, writers),
        writers=writers,
        quarantine=list_quarantined(tables),
        traffic=summarize_traffic(tables, timeline),
        limits=summarize_limits(tables, timeline),
    )


def _period(writers: tuple[Writer, ...]) -> tuple[datetime | None, datetime | None]:
    firsts = [writer.first for writer in writers if writer.first is not None]
    lasts = [writer.last for writer in writers if writer.last is not None]
    return min(firsts, default=None), max(lasts, default=None)


def _timeline(first: datetime, last: datetime, seconds: int) -> Timeline:
    return Timeline.of(first, last, plot_seconds(int(first.timestamp()), int(last.timestamp()), seconds))
