"""Texts of single cells and notes of the page, which `report.html` uses as filters would be too long to write there.

In: a row of `reports.summary.model`. Out: text, not escaped.
"""

from datetime import datetime
from typing import NamedTuple

from advice.limits import reason
from advice.use import NOT_USED
from reports.quotas.catalogue import KEYS, TOPIC_RATES, TOPIC_STORED
from reports.quotas.limits import is_level, of_tenants
from reports.reasons import MEANINGS, Reason
from reports.summary.model import Budget, Compared, Decision, Growth, Level, Party, QuotaRow, Report, Traffic
from webpage.text import clean, count, counted, day, decimal, duration, percent, rate, size, size_signed

MESSAGE_LENGTH = 300
"""Characters of a message, or of a bad line, that are shown."""
_SOON = 30
"""Days within which a volume that fills is a warning."""
_SIZES = [key.kind for key in KEYS if key.size]
_BYTES = {"bytes_in", *_SIZES, *(f"tenant_{kind}" for kind in _SIZES), *(one.kind for one in TOPIC_RATES)}
_STORED = {TOPIC_STORED, *(key.kind for key in KEYS if key.level and key.size)}
_STORED |= {of_tenants(kind) for kind in _STORED}
_BYTES_OF_ALL = {"storage", "overload"}
"""Quotas of no single owner, whose decisions are about bytes per second."""
_MAX_NAMES = 20


def first_full(report: Report) -> tuple[str, str, bool]:
    """When the first of all volumes reaches a level at which producing stops; which one; whether that is a warning."""
    volumes = report.capacity.volumes
    found = [(level, row) for row in volumes for level in row.levels if level.day is not None and level.name != "soft"]
    if not volumes:
        return "–", "no volume in the logs", False
    if not found:
        return "–", "not expected within two years" if any(row.model for row in volumes) else "no forecast", False
    level, row = min(found, key=lambda item: (item[0].day or report.made, item[1].name))
    days = ((level.day or report.made) - report.made).total_seconds() / 86_400
    if level.already:
        when = "full" if level.name == "full" else f"at its {level.name}"
    elif days < 0:
        when = "date passed"
    else:
        when = f"in {days:.0f} days" if days >= 1.5 else "within two days"
    note = f"its {level.name}; {percent(row.used, row.total)} full"
    return when, f"{clean(row.name, 60)}, {note}", level.already or days < _SOON


def as_of(at: datetime, report: Report) -> str:
    """The day on which a volume or a tenant was looked at last, where that is more than a day before the report."""
    return f"as of {day(at)}" if (report.made - at).days >= 1 else ""


def days_left(row: Budget, report: Report) -> str:
    """How many days there are until a tenant reaches the last of its limits; a dash where that is not known, or no limit is in
    force."""
    level = row.last if row.levels else None
    if level is None:
        return "–"
    if level.already:
        return "0"
    return f"{max(0, (level.day - report.made).days):,}" if level.day else "–"


def passed(level: Level, report: Report) -> bool:
    """Whether the day on which the level was expected to be reached has passed."""
    return level.day is not None and not level.already and level.day < report.made


def interval(level: Level) -> str:
    """`2026-03-30 to 04-02`: the year once, so that a table with all levels fits on a laptop."""
    begin = day(level.early) if level.early else "?"
    if level.late is None:
        return f"{begin} to later"
    same_year = level.early is not None and level.early.year == level.late.year
    return f"{begin} to {level.late:%m-%d}" if same_year else f"{begin} to {day(level.late)}"


def confidence(row: Growth) -> str:
    """The model of a forecast, its growth, and its error on days held out; or why there is no forecast."""
    if row.model is None:
        return f"No forecast: {row.reason}."
    said = f"{row.model[0].upper()}{row.model[1:]} of {counted(row.days, 'day')}"
    if row.per_day_low is not None and row.per_day_high is not None:
        said += f", {size_signed(row.per_day_low)} to {size_signed(row.per_day_high)} a day"
    if row.tested_error is None:
        return f"{said}; too short to be tested on days held out."
    error = f"the mean error was {size(row.tested_error)}, and {row.tested_inside} of them were within the interval"
    return f"{said}; on the last {counted(row.tested_days, 'day')}, held out, {error}."


def producers(principals: tuple[tuple[str, float], ...]) -> str:
    """`User:a 80%, User:b 20%`."""
    return ", ".join(f"{clean(name, 40)} {100 * part:.0f}%" for name, part in principals) or "–"


def amount(row: QuotaRow, value: float) -> str:
    """A value in the unit of the row's quota."""
    if is_level(row.kind):
        return size(value) if row.kind in _STORED else decimal(value)
    if row.kind in _BYTES:
        return rate(value)
    return decimal(value) if row.kind == "producer_ids" else f"{decimal(value)}/s"


def decided(quota: str, action: str, value: float) -> str:
    """The usage or the limit of a decision. What is full, a volume or a budget, refuses by bytes; what fills slows by a rate."""
    if action != "throttle" and (quota == "storage" or quota in _STORED):
        return size(value)
    return rate(value) if quota in _BYTES | _STORED | _BYTES_OF_ALL else decimal(value)


def rests_on(row: QuotaRow) -> str:
    """What the suggested limit of a row rests on; empty where nothing is suggested."""
    if row.suggested is None:
        return ""
    if not row.used.intervals:
        return reason(NOT_USED, row.held_back, lambda value: amount(row, value)) if row.held_back else ""
    return f"Suggested: {reason(row.used, row.held_back, lambda value: amount(row, value), level=is_level(row.kind))}"


def not_passed(row: QuotaRow) -> str:
    """What had not passed at the end of a replay."""
    return size(row.waiting) if row.kind in _BYTES | _STORED else count(round(row.waiting))


def unused(found: Compared) -> str:
    """The limits that nobody used."""
    more = len(found.unused) - _MAX_NAMES
    return ", ".join(clean(name, 60) for name in found.unused[:_MAX_NAMES]) + (f" and {count(more)} more" if more > 0 else "")


def refused_by(row: Party) -> str:
    """By which quotas a principal was refused; empty where by none."""
    quotas = ", ".join(f"{clean(quota, 40)}: {count(items)}" for quota, items in row.refused_by)
    return f"Refused by {quotas}" if quotas else ""


def details(row: Decision) -> str:
    """The message and the topics of a decision, where there are any."""
    topics = f"Topics: {clean(', '.join(row.topics), 160)}" if row.topics else ""
    return ". ".join(text for text in (clean(row.message or "", MESSAGE_LENGTH), topics) if text)


def meaning(reason: str) -> str:
    """What a reason of the quarantine means."""
    return MEANINGS[Reason(reason)]


class Change(NamedTuple):
    """Bytes of somebody in the last week and in the week before."""

    name: str
    last: int
    before: int
    growth: float | None


def changed_most(traffic: Traffic) -> list[Change]:
    """Principals and topics by how much their bytes changed from week to week; none where there are no two weeks."""
    shown = [(f"principal {row.principal}", row) for row in traffic.principals] + [
        (f"topic {row.topic}", row) for row in traffic.topics
    ]
    rows = [
        Change(name, row.last_week or 0, row.week_before or 0, row.growth)
        for name, row in shown
        if row.last_week is not None or row.week_before is not None
    ]
    return sorted(rows, key=lambda row: (-abs(row.last - row.before), row.name))


def contents(report: Report) -> list[tuple[str, str]]:
    """Ids and titles of the sections that the page has."""
    found = [("log", "The log itself")]
    if report.first is None:
        return found
    capacity = report.capacity
    return [
        ("volumes", "Volumes"),
        *([("quotas", "Quotas")] if capacity.quotas is not None else []),
        *([("what-if", "What if")] if capacity.what_if is not None else []),
        ("limits", "Throttled and refused"),
        ("tenants", "Tenants"),
        ("principals", "Principals"),
        ("topics", "Topics"),
        *([("weeks", "Week over week")] if changed_most(report.traffic) else []),
        ("apis", "Kafka APIs"),
        *([("latencies", "How long requests took")] if report.traffic.latencies else []),
        *([("chargeback", "Chargeback")] if capacity.charges and capacity.charges.rows else []),
        *found,
    ]


def bucket(report: Report) -> str:
    """The length of the tables' buckets."""
    return duration(report.seconds * 1000)
