"""Build: one summary out of the tables.

In: the tables, the lines (only to count them), the forecasts, what the user asked for. Out: `Report`.
"""

from datetime import UTC, datetime
from typing import Protocol

from reports.ingest import Ingested
from reports.period_tables import Forecasts, Inputs
from reports.summary.capacity import summarize_capacity
from reports.summary.limits import summarize_limits
from reports.summary.lines import count_lines, list_quarantined, list_writers
from reports.summary.model import Report, Writer
from reports.summary.series import Timeline
from reports.summary.traffic import summarize_traffic
from reports.tables import Tables
from reports.transforms.buckets import plot_seconds

_EPOCH = datetime.fromtimestamp(0, tz=UTC)


class Asked(Protocol):
    """What is shown of what the user asked for."""

    @property
    def logs(self) -> str:
        """Where the logs are."""

    @property
    def made(self) -> datetime:
        """The time now."""

    @property
    def note(self) -> str:
        """A sentence for the top of the page."""


def summarize(tables: Tables, ingested: Ingested, found: Forecasts, inputs: Inputs, asked: Asked) -> Report:
    """Everything that the page shows; empty lists and zeros where the logs have nothing."""
    writers = list_writers(tables)
    first, last = _period(writers)
    seconds = ingested.lengths.tables
    timeline = _timeline(first or _EPOCH, last or _EPOCH, seconds)
    return Report(
        logs=asked.logs,
        made=asked.made,
        first=first,
        last=last,
        seconds=seconds,
        lines=count_lines(tables, ingested.line_folders, writers),
        writers=writers,
        quarantine=list_quarantined(tables),
        traffic=summarize_traffic(tables, timeline),
        limits=summarize_limits(tables, timeline),
        capacity=summarize_capacity(tables, found, inputs),
        note=asked.note,
    )


def _period(writers: tuple[Writer, ...]) -> tuple[datetime | None, datetime | None]:
    firsts = [writer.first for writer in writers if writer.first is not None]
    lasts = [writer.last for writer in writers if writer.last is not None]
    return min(firsts, default=None), max(lasts, default=None)


def _timeline(first: datetime, last: datetime, seconds: int) -> Timeline:
    return Timeline.of(first, last, plot_seconds(int(first.timestamp()), int(last.timestamp()), seconds))
