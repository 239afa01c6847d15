"""Limits of a summary: who was refused or throttled, by which quota.

In: the tables `refusals`, `throttles`, `decisions`, `traffic`. Out: `Limits`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reports.stored import Expression, Row, Stored, largest, latest, number_of_rows, sums
from reports.summary.model import EVERYBODY, Decision, Limits, ReasonRow, Refusal, Series
from reports.summary.series import Timeline, make_series, most_of
from reports.tables import Tables

MAX_ROWS = 20
"""Rows of a list on the page; the tables have them all."""

MAX_DECISIONS = 10
"""The same for decisions one by one."""
_ENTITY = {"user": "entity_user", "client": "entity_client_id", "tenant": "entity_tenant"}
"""Columns that say whose quota it is."""
_WHAT = ("quota", "mode", "action", *_ENTITY.values())


def summarize_limits(tables: Tables, timeline: Timeline) -> Limits:
    """Refusals (complete) and decisions (a sample, with the left out ones counted), largest first, and over time."""
    refused_by_quota = _ranked_series(tables["refusals"], "quota", "items", timeline, ["quota"])
    throttles = tables["throttles"]
    decisions_by_entity = _ranked_series(throttles, _quota_and_entity, "decisions", timeline, ["quota", *_ENTITY.values()])
    modes = sums(throttles.parts(["quota", "mode"]), {"quota": "quota"}, {"modes": ("mode", "max"), "mode": ("mode", "min")})
    return Limits(
        refusals=_refusals(tables["refusals"]),
        refused=round(sum(map(sum, refused_by_quota.values))),
        reasons=_reasons(tables["decisions"]),
        latest=_latest(tables["decisions"]),
        decisions=round(sum(map(sum, decisions_by_entity.values))),
        watching=tuple(sorted(row["quota"] for row in modes if row["mode"] == row["modes"] == "observe")),
        refused_by_quota=refused_by_quota,
        decisions_by_entity=decisions_by_entity,
        throttle_by_principal=_ranked_series(tables["traffic"], "principal", "throttle_ms", timeline, ["principal"]),
    )


def _ranked_series(table: Stored, key: str | Expression, measure: str, timeline: Timeline, columns: Sequence[str]) -> Series:
    """`measure` over time for the keys that have most of it; keys are made of `columns`."""
    shown = most_of(table, key, measure, columns)
    if not shown:
        return Series(timeline.first, timeline.seconds, (), ())
    return make_series(table, key, shown, {measure: measure}, timeline, [measure, *columns])[measure]


def _quota_and_entity(part: pa.RecordBatch) -> Any:
    parts = [pc.fill_null(pc.binary_join_element_wise(f", {what} ", part[column], ""), "") for what, column in _ENTITY.items()]
    whose = pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, ""), 2)
    whose = pc.if_else(pc.equal(whose, ""), EVERYBODY, whose)
    return pc.binary_join_element_wise(part["quota"], whose, ": ")


def _entity(row: Row) -> str:
    """Whose quota, as a text: `user alice, client etl`, `tenant payments`; EVERYBODY where the quota is for all."""
    return ", ".join(f"{what} {row[column]}" for what, column in _ENTITY.items() if row[column] is not None) or EVERYBODY


def _refusals(refusals: Stored) -> tuple[Refusal, ...]:
    keys = ("quota", "principal")
    rows = sums(refusals.parts([*keys, "items"]), {name: name for name in keys}, {"items": ("items", "sum")})
    ordered = sorted(rows, key=lambda row: (-row["items"], row["quota"], row["principal"]))
    return tuple(Refusal(row["quota"], row["principal"], row["items"]) for row in ordered[:MAX_ROWS])


def _reasons(decisions: Stored) -> tuple[ReasonRow, ...]:
    """By quota, mode, action, entity and API, most frequent first, each with its latest message and time, and `usage` and `limit`
    of the decision that was furthest beyond its limit."""
    keys = {name: name for name in (*_WHAT, "api")}
    figures: dict[str, tuple[str | Expression, str]] = {
        "written": (number_of_rows, "sum"),
        "left_out": ("left_out", "sum"),
        "items": ("items", "sum"),
        "max_throttle_ms": ("throttle_ms", "max"),
        "last": ("at", "max"),
    }
    columns = ("at", *keys, "items", "throttle_ms", "usage", "limit", "message", "left_out")
    # Both of one decision, that furthest beyond its limit: limits change, and a pair of two decisions says nothing.
    furthest = _by_key(keys, latest(decisions.parts(columns), keys, _beyond, ["usage", "limit"]))
    last = _by_key(keys, latest(decisions.parts(columns), keys, "at", ["message"]))
    found = []
    for row in sums(decisions.parts(columns), keys, figures):
        key = tuple(row[name] for name in keys)
        row["decisions"] = row["written"] + (row["left_out"] or 0)
        found.append({**row, **furthest.get(key, {"usage": None, "limit": None}), "message": last[key]["message"]})
    found.sort(key=lambda row: (-row["decisions"], -row["last"].timestamp(), *(row[name] or "" for name in keys)))
    copied = ("quota", "mode", "action", "api", "decisions", "items", "max_throttle_ms", "usage", "limit", "message", "last")
    return tuple(ReasonRow(**{name: row[name] for name in copied}, entity=_entity(row)) for row in found[:MAX_ROWS])


def _by_key(keys: Iterable[str], rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    return {tuple(row[name] for name in keys): row for row in rows}


def _beyond(part: pa.RecordBatch) -> Any:
    """How far a decision is beyond its limit. What is left of a volume is beyond when it is less; who is slowed down while it
    fills is so by a rate."""
    usage, limit = part["usage"], part["limit"]
    ratio = pc.divide(usage, pc.max_element_wise(limit, 1e-9))
    of_what_is_left = pc.and_(pc.equal(part["quota"], "storage"), pc.not_equal(part["action"], "throttle"))
    return pc.if_else(of_what_is_left, pc.subtract(limit, usage), ratio)


def _latest(decisions: Stored) -> tuple[Decision, ...]:
    copied = (
        "proxy",
        "quota",
        "mode",
        "action",
        "principal",
        "client_id",
        "client_address",
        "api",
        "items",
        "usage",
        "limit",
        "throttle_ms",
        "message",
        "at",
    )
    rows = largest(decisions.parts([*copied, "topics", *_ENTITY.values()]), [("at", "descending")], MAX_DECISIONS)
    return tuple(Decision(**{name: row[name] for name in copied}, entity=_entity(row), topics=tuple(row["topics"])) for row in rows)
