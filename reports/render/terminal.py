"""Terminal: the short form of a report.

In: a `Report`, where the page is. Out: what rich prints. Texts from logs go through `clean` and are never read as markup.
"""

from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from reports.render.sentences import sentences
from reports.render.words import passed
from reports.summary.model import Level, Limits, Report, Traffic
from webpage.text import clean, count, day, duration, rate, size, size_signed

_ROWS = 5


def print_report(console: Console, report: Report, page: Path) -> None:
    """Print the summary, the largest principals, the most frequent decisions, and where to read on."""
    console.print(summary(report))
    console.print(Text("Page: ") + Text(str(page), style="bold"), soft_wrap=True)


def summary(report: Report) -> RenderableType:
    """The summary alone."""
    parts: list[RenderableType] = [Text()]
    parts += [Text(f"• {sentence}") for sentence in sentences(report)]
    if report.capacity.volumes:
        parts += [Text(), _volumes(report)]
    if report.traffic.principals:
        parts += [Text(), _principals(report.traffic)]
    if report.limits.reasons:
        parts += [Text(), _reasons(report.limits)]
    return Group(*parts, Text())


def _volumes(report: Report) -> Table:
    table = _table("Volume", "Used", "of", "A day", "Limit", "Full")
    for row in report.capacity.volumes[:_ROWS]:
        days = {level.name: _when(level, report) for level in row.levels}
        growth = "–" if row.per_day is None else size_signed(row.per_day)
        name = Text(clean(row.name, 40))
        table.add_row(name, size(row.used), size(row.total), growth, days.get("limit", "–"), days.get("full", "–"))
    return table


def _when(level: Level, report: Report) -> str:
    if level.already or level.day is None:
        return "now" if level.already else "–"
    return f"{day(level.day)}{' (passed)' if passed(level, report) else ''}"


def _principals(traffic: Traffic) -> Table:
    table = _table("Principal", "Produced", "Peak", "Fetched", "Requests", "Refused", "Throttled")
    for row in traffic.principals[:_ROWS]:
        table.add_row(
            Text(clean(row.principal, 40)),
            size(row.produced),
            rate(row.peak),
            size(row.fetched),
            count(row.requests),
            count(row.refused),
            duration(row.throttle_ms),
        )
    return table


def _reasons(limits: Limits) -> Table:
    table = _table("Quota, action", "Decisions", "Items", "Longest throttle", "Whose quota", texts=(0, 4))
    for row in limits.reasons[:_ROWS]:
        action = f"{row.action} (observe)" if row.mode == "observe" else row.action
        what, whose = Text(clean(f"{row.quota}, {action}", 50)), Text(clean(row.entity, 40))
        table.add_row(what, count(row.decisions), count(row.items), duration(row.max_throttle_ms), whose)
    return table


def _table(*heads: str, texts: tuple[int, ...] = (0,)) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for index, head in enumerate(heads):
        # A long name goes on in the next line: cut short, those of one prefix would all look the same.
        left = index in texts
        table.add_column(head, justify="left" if left else "right", no_wrap=not left, overflow="fold")
    return table
