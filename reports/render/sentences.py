"""The summary of a report in sentences, most important first.

In: a `Report`. Out: lines of text, for the page and the terminal alike. Left to others: escaping, numbers in full (tables).
"""

from datetime import datetime

from advice.limits import hits
from reports.render.words import decided
from reports.summary.model import EVERYBODY, Level, Limits, ReasonRow, Report, Tenants, VolumeRow
from webpage.text import clean, count, counted, day, duration, moment, percent, period, size

_DONE = {"refuse": "refused", "throttle": "throttled", "hold": "held"}


def sentences(report: Report) -> list[str]:
    """The summary of a report."""
    if report.first is None:
        return [_nothing(report), *_log(report)]
    return [
        *_age(report),
        *_volumes(report.capacity.volumes, report.made),
        *_budgets(report.capacity.tenants, report.made),
        _traffic(report),
        *_largest(report),
        *_limits(report.limits),
        *_quotas(report),
        *_log(report),
    ]


def _age(report: Report) -> list[str]:
    """How old the logs are, where that is more than a day."""
    days = report.age.days
    if days < 1 or report.last is None:
        return []
    return [f"The newest line is {counted(days, 'day')} old ({moment(report.last)}): forecasts begin there, not today."]


def _volumes(volumes: tuple[VolumeRow, ...], made: datetime) -> list[str]:
    """The volume that fills first, and the number of volumes without a forecast."""
    said = []
    forecast = [row for row in volumes if row.model is not None]
    fills = [(level, row) for row in forecast for level in row.levels if level.day and level.name != "soft"]
    if fills:
        level, row = min(fills, key=lambda item: (item[0].day or item[1].at, item[1].name))
        said += [_first_to_fill(level, row, made), *_grew_most(row)]
    elif forecast:
        said.append(f"None of {counted(len(forecast), 'volume')} is expected to fill within two years.")
    none = [row for row in volumes if row.model is None]
    if none:
        said.append(f"There is no forecast for {counted(len(none), 'volume')}: {none[0].reason}.")
    return said


def _first_to_fill(level: Level, row: VolumeRow, made: datetime) -> str:
    name = clean(row.name, 60)
    name = name if row.broker_id is None else f"B{name[1:]}"
    what = f"its {'size' if level.name == 'full' else level.name} ({size(level.at_bytes)})"
    if level.already or level.day is None:
        return f"{name} has reached {what}; it is {percent(row.used, row.total)} full."
    return _expected(name, "first volume", what, level, row.at, made)


def _expected(name: str, place: str, what: str, level: Level, at: datetime, made: datetime) -> str:
    """When `name`, as the `place`, reaches `what`, by a forecast that begins `at`."""
    early, late = (day(end) if end else None for end in (level.early, level.late))
    when = f"on {day(level.day or at)}" + (f", between {early} and {late}" if late else f", not before {early}")
    if level.day and level.day < made:
        return f"{name} was the {place} expected to reach {what}: {when}, as of {day(at)}. That day has passed."
    return f"{name} will be the {place} to reach {what}: {when}."


def _grew_most(row: VolumeRow) -> list[str]:
    grown = [one for one in row.drivers if one.grown > 0]
    if not grown:
        return []
    by = f", produced mostly by {clean(grown[0].principals[0][0], 40)}" if grown[0].principals else ""
    return [f"The topic that grew most on it is {clean(grown[0].topic, 60)}{by}."]


def _budgets(tenants: Tenants, made: datetime) -> list[str]:
    """Tenants that have all the bytes that they may store, and the one that will be the next."""
    said = []
    in_force = [(row, row.levels[-1]) for row in tenants.budgets if row.levels]
    full, limit = next(((row, last) for row, last in in_force if last.already), (None, None))
    if full and limit and tenants.full > 1:
        of_one = f"{clean(full.tenant, 60)} among them ({size(limit.at_bytes)})"
        said.append(f"{count(tenants.full)} tenants have reached their limits of stored bytes, {of_one}.")
    elif full and limit:
        said.append(f"Tenant {clean(full.tenant, 60)} has reached its limit of stored bytes ({size(limit.at_bytes)}).")
    ends, limit = next(((row, last) for row, last in in_force if last.day and not last.already), (None, None))
    if ends and limit:
        what = f"its limit of stored bytes ({size(limit.at_bytes)})"
        place = "next tenant" if full else "first tenant"
        said.append(_expected(f"Tenant {clean(ends.tenant, 60)}", place, what, limit, ends.at, made))
    return said


def _quotas(report: Report) -> list[str]:
    said = []
    force, proposed = report.capacity.quotas, report.capacity.what_if
    if force is not None:
        never = counted(len(force.unused), "limit was never used", "limits were never used")
        unused = f"; {never}" if force.unused else ""
        near = f"{count(force.hit)} hit them, {count(force.over)} more went over and {count(force.near)} came near"
        said.append(f"Of {counted(force.count, 'owner')} of limits in force, {near}{unused}.")
        if hit := next((row for row in force.rows if row.held_back), None):
            said.append(f"{clean(hit.whose, 60)} was {hits(hit.held_back)} by {clean(hit.kind, 60)}.")
    for found in (force, proposed):
        if found is not None and found.not_looked_at:
            names = clean(", ".join(found.not_looked_at), 200)
            said.append(f"The report does not look at these settings of {clean(found.file, 60)}: {names}.")
    if proposed is not None:
        said.append(f"The proposed quotas would have held back {count(proposed.over)} of {counted(proposed.count, 'owner')}.")
    return said


def _nothing(report: Report) -> str:
    if report.lines.read == 0:
        return "The log files are empty."
    return f"None of {counted(report.lines.read, 'line')} could be used: all are in quarantine."


def _traffic(report: Report) -> str:
    traffic = report.traffic
    if not report.lines.usage or report.first is None or report.last is None:
        return "The logs have no usage lines, so there is no traffic to sum."
    proxies = counted(len(report.proxies), "proxy", "proxies")
    return (
        f"From {period(report.first, report.last)}, {proxies} passed {counted(traffic.requests, 'request')} of "
        f"{counted(traffic.principal_count, 'principal')}: {size(traffic.produced)} produced, {size(traffic.fetched)} fetched."
    )


def _largest(report: Report) -> list[str]:
    traffic = report.traffic
    said = []
    if traffic.produced:
        most = max(traffic.principals, key=lambda party: party.produced)
        share = percent(most.produced, traffic.produced)
        said.append(f"{clean(most.principal)} produced most: {size(most.produced)}, {share} of all.")
    if traffic.fetched:
        most = max(traffic.principals, key=lambda party: party.fetched)
        share = percent(most.fetched, traffic.fetched)
        said.append(f"{clean(most.principal)} fetched most: {size(most.fetched)}, {share} of all.")
    if traffic.topic_produced:
        topic = max(traffic.topics, key=lambda topic: topic.produced)
        by = f", mostly by {clean(topic.main_principal)}" if topic.main_principal else ""
        said.append(
            f"The largest topic is {clean(topic.topic)}: {size(topic.produced)} of record batches, "
            f"{percent(topic.produced, traffic.topic_produced)} of all{by}."
        )
    return said


def _limits(limits: Limits) -> list[str]:
    if not limits.refused and not limits.decisions:
        return ["Nobody was throttled or refused."]
    said = []
    if limits.refusals:
        said.append(_refused_most(limits))
    said += [_most(rows) for action in _DONE if (rows := _decided(limits, action))]
    for quota in limits.watching:
        said.append(f"The quota {clean(quota)} only watches (mode observe): its decisions were logged, not enforced.")
    return said


def _refused_most(limits: Limits) -> str:
    most = limits.refusals[0]
    would = "would have been refused" if most.quota in limits.watching else "was refused"
    of_all = "" if most.items == limits.refused else f" of {count(limits.refused)} in all"
    return f"{clean(most.principal)} {would} most: {counted(most.items, 'item')} by the quota {clean(most.quota)}{of_all}."


def _decided(limits: Limits, action: str) -> list[ReasonRow]:
    """Decisions of an action; not the refusals of a quota whose refused items are complete."""
    complete = {refusal.quota for refusal in limits.refusals} if action == "refuse" else set()
    return [row for row in limits.reasons if row.action == action and row.quota not in complete]


def _most(rows: list[ReasonRow]) -> str:
    row = max(rows, key=lambda row: row.decisions)
    done = _DONE[row.action]
    did = f"would have {done}" if row.mode == "observe" else done
    whom = row.entity if row.entity == EVERYBODY else f"{clean(row.entity)} most"
    longest = f"for {duration(row.max_throttle_ms)} at most, " if row.max_throttle_ms else ""
    return (
        f"The quota {clean(row.quota)} {did} {whom}: {counted(row.decisions, 'time')} on {clean(row.api)}, {longest}"
        f"at the furthest with a usage of {decided(row.quota, row.action, row.usage)} "
        f"where the limit was {decided(row.quota, row.action, row.limit)}."
    )


def _log(report: Report) -> list[str]:
    said = []
    lines = report.lines
    if lines.quarantined and report.first is not None:
        said.append(f"{counted(lines.quarantined, 'line')} of {count(lines.read)} could not be used; they are in no sum.")
    lost = sum(writer.lost for writer in report.writers)
    if lost:
        said.append(f"The proxies lost {counted(lost, 'line')}, which are in no sum.")
    missing = sum(writer.missing for writer in report.writers)
    if missing > lost + lines.quarantined:
        many = counted(missing, "line number")
        said.append(f"{many} are missing, more than lost and quarantined lines explain. A log file may be missing.")
    return said
