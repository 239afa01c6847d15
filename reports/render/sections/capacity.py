"""Capacity sections: when each volume fills and who fills it; how quotas fit, and what proposed ones would do; what it costs.

In: `Capacity`. Out: `Html`. A forecast never stands without its interval and without how far off it was on days that are known.
"""

from datetime import datetime

from reports.render.plots import MOST_VOLUMES, volume_plot
from reports.render.sections.cells import note, share, shown
from reports.summary.model import Capacity, Charge, Charges, Compared, DrivingTopic, Level, QuotaRow, VolumeRow
from webpage.html import Column, Html, join, table, tag
from webpage.text import clean, count, counted, day, decimal, duration, rate, size, size_signed

_STATES = {"over": "tag refuse", "near": "tag near"}
_BYTES = ("producer_byte_rate", "consumer_byte_rate", "bytes_in")


def volumes_section(capacity: Capacity, lines: int) -> Html:
    """Volumes, those that fill first at the top."""
    head = tag("h2", "Volumes")
    if not capacity.volumes:
        text = "The logs tell of no volume" if lines == 0 else "No volume line could be used"
        return join((head, note(f"{text}: proxies write about volumes when the storage quota is on (quotas.storage).")))
    text = (
        "A day is told with the interval that it lies in nine times out of ten, and a model with how far off it was on the last "
        "days, which it had not seen. Soft is where producing is slowed, limit where it stops, full where the disk is full."
    )
    plots = [volume_plot(f"volume-{number}", row) for number, row in enumerate(capacity.volumes[:MOST_VOLUMES], 1)]
    parts = [head, note(text), _table(capacity.volumes), tag("div", *plots, class_="plots")]
    if any(row.drivers for row in capacity.volumes):
        parts += [
            tag("h3", "What fills them"),
            note("Topics that grew most on each volume, replicas included, and who produced to them."),
        ]
        parts += [_drivers(row) for row in capacity.volumes[:MOST_VOLUMES] if row.drivers]
    return join(parts)


def _table(rows: tuple[VolumeRow, ...]) -> Html:
    columns: list[Column[VolumeRow]] = [
        Column("Volume", lambda row: clean(row.name)),
        Column("Size", lambda row: size(row.total), number=True),
        Column("Used", lambda row: size(row.used), number=True),
        Column("Full", lambda row: share(row.used, row.total), number=True),
        Column("A day", _per_day, number=True),
        Column("Soft", lambda row: _when(row, row.levels, "soft"), number=True),
        Column("Limit", lambda row: _when(row, row.levels, "limit"), number=True),
        Column("Disk full", lambda row: _when(row, row.levels, "full"), number=True),
    ]
    if any(row.proposed for row in rows):
        columns.append(Column("With proposed quotas", _with_proposed, number=True))
    return table(columns, rows, _how_sure)


def _per_day(row: VolumeRow) -> str:
    if row.per_day is None or row.per_day_low is None or row.per_day_high is None:
        return "–"
    return size_signed(row.per_day)


def _when(row: VolumeRow, levels: tuple[Level, ...], name: str) -> Html:
    found = next((level for level in levels if level.name == name), None)
    if found is None or row.model is None:
        return Html("–")
    if found.already:
        return tag("span", "now", class_="tag refuse")
    if found.day is None:
        return tag("span", "not within two years" if found.early is None else f"{day(found.early)} at the earliest", class_="when")
    return tag("span", day(found.day), tag("small", _interval(found.early, found.late)), class_="when")


def _interval(early: datetime | None, late: datetime | None) -> str:
    """`2026-03-30 to 04-02`: the year once, so that a table with all levels has room on a laptop."""
    begin = day(early) if early else "?"
    if late is None:
        return f"{begin} to later"
    return f"{begin} to {late:%m-%d}" if early and early.year == late.year else f"{begin} to {day(late)}"


def _with_proposed(row: VolumeRow) -> Html:
    name = "limit" if any(level.name == "limit" for level in row.proposed) else "full"
    growth = "" if row.factor is None else f"{100 * row.factor:.0f}% of the growth is left"
    return join((_when(row, row.proposed, name), tag("small", f"{name}; {growth}")))


def _how_sure(row: VolumeRow) -> str:
    if row.model is None:
        return f"No forecast: {row.reason}."
    said = f"{row.model[0].upper()}{row.model[1:]} of {counted(row.days, 'day')}"
    if row.per_day_low is not None and row.per_day_high is not None:
        said += f", {size_signed(row.per_day_low)} to {size_signed(row.per_day_high)} a day"
    if row.tested_error is None:
        return f"{said}; too short to be tested on days held out."
    inside = f"{row.tested_inside} of them within the interval"
    off = f"it was off by {size(row.tested_error)} on average, {inside}"
    return f"{said}; on the last {counted(row.tested_days, 'day')}, held out, {off}."


def _drivers(row: VolumeRow) -> Html:
    columns: tuple[Column[DrivingTopic], ...] = (
        Column("Topic", lambda one: clean(one.topic)),
        Column("Holds", lambda one: size(one.bytes), number=True),
        Column("Of the volume", lambda one: share(one.bytes, row.used), number=True),
        Column("Grew by", lambda one: size_signed(one.grown), number=True),
        Column(
            "Produced by", lambda one: ", ".join(f"{clean(name, 40)} {100 * part:.0f}%" for name, part in one.principals) or "–"
        ),
    )
    return tag("details", tag("summary", clean(row.name)), table(columns, row.drivers), open="open")


def quotas_section(capacity: Capacity) -> Html:
    """Quotas in force against the traffic, and proposed ones."""
    parts: list[Html] = []
    if capacity.quotas is not None:
        text = (
            "Each limit in force against the traffic of its owner. Near is 80% of the limit at the peak. Suggested is the 99th "
            "percentile with a quarter on top: a limit that would have let nearly all of this traffic pass."
        )
        parts += [tag("h2", "Quotas"), note(text), *_compared(capacity.quotas, suggest=True)]
    if capacity.what_if is not None:
        text = (
            "The traffic of these logs replayed against the proposed limits: who would have been throttled, for how long, and what "
            "would not have passed by the end. It is what passed in truth: whoever was held back then would have sent more."
        )
        parts += [tag("h2", "What if"), note(text), *_compared(capacity.what_if, suggest=False)]
    return join(parts)


def _compared(found: Compared, *, suggest: bool) -> list[Html]:
    columns: list[Column[QuotaRow]] = [
        Column("Quota", lambda row: clean(row.kind)),
        Column("Whose", lambda row: clean(row.whose)),
        Column("State", lambda row: tag("span", row.state, class_=_STATES.get(row.state, "tag"))),
        Column("Limit", lambda row: _amount(row, row.limit), number=True),
        Column("p50", lambda row: _amount(row, row.p50), number=True),
        Column("p95", lambda row: _amount(row, row.p95), number=True),
        Column("p99", lambda row: _amount(row, row.p99), number=True),
        Column("Peak", lambda row: share(row.peak, row.limit), number=True),
        Column("Headroom", lambda row: f"{100 * (1 - row.peak / row.limit):.0f}%", number=True),
        Column("Throttled for", lambda row: duration(1000 * row.throttled), number=True),
        Column("Longest wait", lambda row: duration(1000 * row.longest_wait), number=True),
    ]
    if suggest:
        columns.append(Column("Suggested", lambda row: "–" if row.suggested is None else _amount(row, row.suggested), number=True))
    else:
        columns.append(
            Column("Not passed", lambda row: size(row.waiting) if row.kind in _BYTES else count(round(row.waiting)), number=True)
        )
    said = f"{clean(found.file)}: {counted(found.count, 'owner')} of limits, {count(found.over)} over, {count(found.near)} near."
    parts = [tag("p", said), shown(len(found.rows), found.count, "owner"), table(columns, found.rows)]
    if found.unused:
        names = ", ".join(clean(name, 60) for name in found.unused[:20])
        more = "" if len(found.unused) <= 20 else f" and {count(len(found.unused) - 20)} more"
        parts.append(tag("p", f"Never used: {names}{more}."))
    return parts


def _amount(row: QuotaRow, value: float) -> str:
    if row.kind in _BYTES:
        return rate(value)
    return decimal(value) if row.kind == "producer_ids" else f"{decimal(value)}/s"


def charges_section(capacity: Capacity) -> Html:
    """What each principal costs."""
    charges = capacity.charges
    if charges is None or not charges.rows:
        return Html("")
    text = (
        "Bytes in and out on the wire; stored is the average of all replicas over the days that the logs tell of, charged to those "
        "who produced into the topic. The file chargeback.csv has every principal."
    )
    if not charges.priced:
        text += " No prices were given (--cost-in, --cost-out, --cost-stored), so that there are amounts alone."
    return join((tag("h2", "Chargeback"), note(text), shown(len(charges.rows), charges.count, "principal"), _charges(charges)))


def _charges(charges: Charges) -> Html:
    columns: list[Column[Charge]] = [
        Column("Principal", lambda row: clean(row.principal)),
        Column("In", lambda row: size(row.in_bytes), number=True),
        Column("Out", lambda row: size(row.out_bytes), number=True),
        Column("Stored, GiB-months", lambda row: decimal(row.stored_byte_days / 2**30 / 30), number=True),
    ]
    if charges.priced:
        currency = f", {clean(charges.currency, 12)}" if charges.currency else ""
        columns.append(Column(f"Cost{currency}", lambda row: f"{row.cost:,.2f}", number=True))
        columns.append(Column("Share", lambda row: share(row.cost, charges.total), number=True))
    return table(columns, charges.rows)
