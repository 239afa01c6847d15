"""Log section: how far the log can be trusted.

In: a `Report`. Out: `Html`: who wrote the log, what is missing, what could not be used.
"""

from reports.reasons import MEANINGS, Reason
from reports.render.sections.cells import LINE, note, or_dash
from reports.summary.model import Quarantined, Report, Silence, Writer
from webpage.html import Column, Html, join, table, tag
from webpage.text import clean, count, counted, duration, moment


def log_section(report: Report) -> Html:
    """Writers and quarantine."""
    return join((tag("h2", "The log itself"), _writers(report.writers), _silences(report), _quarantine(report)))


def _writers(writers: tuple[Writer, ...]) -> Html:
    if not writers:
        return Html("")
    columns: tuple[Column[Writer], ...] = (
        Column("Proxy", lambda row: clean(row.proxy)),
        Column("Boot", lambda row: tag("code", clean(row.boot))),
        Column("From", lambda row: moment(row.first) if row.first else "–", number=True),
        Column("To", lambda row: moment(row.last) if row.last else "–", number=True),
        Column("Lines", lambda row: count(row.lines), number=True),
        Column("Numbers", lambda row: f"{count(row.first_seq)}–{count(row.last_seq)}", number=True),
        Column("Duplicates", lambda row: count(row.duplicates), number=True),
        Column("Missing", lambda row: count(row.missing), number=True),
        Column("Lost", lambda row: count(row.lost), number=True),
    )
    text = (
        "Duplicates are copies of a line, counted once. Missing are line numbers without a usable line: lost, in "
        "quarantine, or in a file that is not here. Lost is what the proxy says it dropped."
    )
    return join((note(text), table(columns, writers)))


def _silences(report: Report) -> Html:
    silences = report.capacity.silences
    if not silences:
        return Html("")
    columns: tuple[Column[Silence], ...] = (
        Column("Proxy", lambda row: clean(row.proxy)),
        Column("From", lambda row: moment(row.first), number=True),
        Column("For", lambda row: duration(1000 * row.seconds), number=True),
    )
    text = (
        "An hour or more without a line of a proxy that logged before and after: it was down, without traffic, or its files are "
        "not here."
    )
    return join((tag("h3", "Gaps in coverage"), note(text), table(columns, silences)))


def _quarantine(report: Report) -> Html:
    head = tag("h3", "Quarantine")
    if not report.quarantine:
        return join((head, note("Every line that was read could be used.")))
    columns: tuple[Column[Quarantined], ...] = (
        Column("Reason", lambda row: tag("code", row.reason)),
        Column("Meaning", lambda row: MEANINGS[Reason(row.reason)]),
        Column("Field", lambda row: or_dash(row.field)),
        Column("Lines", lambda row: count(row.lines), number=True),
        Column("For example in", lambda row: tag("code", clean(row.file, 160))),
    )
    text = f"{counted(report.lines.quarantined, 'line')} could not be used. The table quarantine has each of them, with its file."
    return join(
        (head, note(text), table(columns, report.quarantine, lambda row: tag("code", clean(row.raw, LINE)) if row.raw else None))
    )
