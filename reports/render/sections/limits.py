"""Limits section: who was throttled and refused, by which quota, and why.

In: `Limits`. Out: `Html`. Refusals are complete, decisions a sample with the rest counted; the page says so.
"""

from reports.render.plots import Measure, plot
from reports.render.sections.cells import note, said, share
from reports.summary.model import Decision, Limits, ReasonRow, Refusal
from webpage.html import Column, Html, join, table, tag
from webpage.text import clean, client, count, decimal, duration, moment


def limits_section(limits: Limits) -> Html:
    """Refusals and throttles: over time, by quota, by reason, one by one."""
    return join((tag("h2", "Throttled and refused"), _plots(limits), _refusals(limits), _reasons(limits), _latest(limits)))


def _plots(limits: Limits) -> Html:
    refused, throttled, decided = limits.refused_by_quota, limits.throttle_by_principal, limits.decisions_by_entity
    return tag(
        "div",
        plot("refused", "Items refused, by quota", refused, Measure.COUNT, nothing="Nothing was refused."),
        plot("throttle", "Throttle time asked for, by principal", throttled, Measure.TIME, nothing="Nobody was throttled."),
        plot("decisions", "Decisions, by quota and entity", decided, Measure.COUNT, nothing="None was logged.", wide=True),
        class_="plots",
    )


def _refusals(limits: Limits) -> Html:
    if not limits.refusals:
        return Html("")
    columns: tuple[Column[Refusal], ...] = (
        Column("Quota", lambda row: clean(row.quota)),
        Column("Principal", lambda row: clean(row.principal)),
        Column("Items refused", lambda row: count(row.items), number=True),
        Column("Share", lambda row: share(row.items, limits.refused), number=True),
    )
    return join((tag("h3", "Who was refused most"), table(columns, limits.refusals)))


def _reasons(limits: Limits) -> Html:
    if not limits.reasons:
        return Html("")
    columns: tuple[Column[ReasonRow], ...] = (
        Column("Quota", lambda row: clean(row.quota)),
        Column("Action", lambda row: _action(row.action, row.mode)),
        Column("Whose quota", lambda row: clean(row.entity)),
        Column("API", lambda row: clean(row.api)),
        Column("Decisions", lambda row: count(row.decisions), number=True),
        Column("Items", lambda row: count(row.items), number=True),
        Column("Longest throttle", lambda row: duration(row.max_throttle_ms), number=True),
        Column("Usage up to", lambda row: decimal(row.max_usage), number=True),
        Column("Limit", lambda row: decimal(row.limit), number=True),
        Column("Last", lambda row: moment(row.last), number=True),
    )
    text = (
        "With the latest message. A proxy writes some of its decisions and counts the rest: decisions have both, items "
        "and throttle time only those written. Usage and limit are in the quota's own unit."
    )
    rows = table(columns, limits.reasons, lambda row: said(row.message))
    return join((tag("h3", "Most frequent decisions"), note(text), rows))


def _latest(limits: Limits) -> Html:
    if not limits.latest:
        return Html("")
    columns: tuple[Column[Decision], ...] = (
        Column("At", lambda row: tag("span", moment(row.at), class_="when")),
        Column("Quota", lambda row: clean(row.quota)),
        Column("Action", lambda row: _action(row.action, row.mode)),
        Column("Whose quota", lambda row: clean(row.entity)),
        Column("Who asked", lambda row: f"{clean(row.principal)}, {client(row.client_id)}, {clean(row.client_address)}"),
        Column("API", lambda row: clean(row.api)),
        Column("Items", lambda row: count(row.items), number=True),
        Column("Usage", lambda row: decimal(row.usage), number=True),
        Column("Limit", lambda row: decimal(row.limit), number=True),
        Column("Throttle", lambda row: duration(row.throttle_ms), number=True),
    )
    return join((tag("h3", "Latest decisions"), table(columns, limits.latest, _details)))


def _details(row: Decision) -> str | None:
    """The message and the topics of a decision, where there are any."""
    topics = f"Topics: {clean(', '.join(row.topics), 160)}" if row.topics else None
    return ". ".join(text for text in (said(row.message), topics) if text) or None


def _action(action: str, mode: str) -> Html:
    text = clean(action) + (" (observe)" if mode == "observe" else "")
    return tag("span", text, class_="tag refuse" if action == "refuse" and mode != "observe" else "tag")
