"""Capacity of a summary: when volumes fill, how quotas fit, what it costs.

In: the forecasts (`reports.period_tables`), the tables `quotas`, `what_if`, `chargeback`, `writers`. Out: `Capacity`.
"""

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from advice.limits import NOT_HELD_BACK, HeldBack, suggested
from advice.use import Use, as_a_level, as_in_a_histogram
from reports.chargeback import Prices
from reports.fill_forecast import VolumeForecast
from reports.period_tables import Forecasts, Inputs
from reports.quotas.catalogue import KEYS, TOPIC_RATES, TOPIC_STORED
from reports.quotas.limits import DEFAULT, LEVELS, QuotaFile, is_level, of_tenants
from reports.quotas.replay import NEAR
from reports.stored import Expression, Row, Stored, largest, number_of_rows, sums
from reports.summary.growth import growth_of, levels_of, path_of
from reports.summary.lines import list_silences
from reports.summary.model import Capacity, Charge, Charges, Compared, DrivingTopic, QuotaRow, VolumeRow
from reports.summary.tenants import summarize_tenants
from reports.tables import Tables

MAX_ROWS = 20
MAX_QUOTAS = 40
_SIZES = {key.kind for key in KEYS if key.size}
_WHOLE = _SIZES | LEVELS.keys()
WHOLE = frozenset(
    {*_WHOLE, *map(of_tenants, _WHOLE), *(rate.kind for rate in TOPIC_RATES), TOPIC_STORED, "bytes_in", "producer_ids"}
)
"""Quotas whose limits are whole numbers."""


def summarize_capacity(tables: Tables, found: Forecasts, inputs: Inputs) -> Capacity:
    """Volumes in the order in which they fill."""
    rows = sorted(map(_volume, found.volumes), key=lambda row: (_soonest(row), row.name))
    return Capacity(
        volumes=tuple(rows),
        quotas=_compared(tables.get("quotas"), inputs.quotas),
        what_if=_compared(tables.get("what_if"), inputs.what_if),
        charges=_charges(tables["chargeback"], inputs.prices),
        silences=list_silences(tables),
        tenants=summarize_tenants(tables, inputs.quotas, found.budgets),
    )


def _soonest(row: VolumeRow) -> float:
    """Seconds since the epoch at which the first of its levels is reached."""
    return min((level.day.timestamp() for level in row.levels if level.day), default=math.inf)


def _volume(found: VolumeForecast) -> VolumeRow:
    result = found.forecast
    return VolumeRow(
        *found.volume,
        at=found.at,
        total=found.total,
        used=found.used,
        levels=levels_of(found.levels, result),
        drivers=tuple(DrivingTopic(one.topic, one.bytes, one.grown, one.principals) for one in found.drivers),
        path=path_of(found, found.total, result.reached.get("full")),
        **growth_of(result),
        proposed=levels_of(found.proposed_levels or {}, found.proposed) if found.proposed else (),
        factor=found.factor,
    )


def _compared(table: Stored | None, quotas: QuotaFile | None) -> Compared | None:
    if table is None or quotas is None:
        return None
    hit = "hit_intervals" in table.schema.names
    counts = sums(table.parts(table.schema.names), {}, {name: (_counted(one, hit), "sum") for name, one in _STATES.items()})[0]
    owner = ("kind", "owner_user", "owner_client", "topic")
    order: list[tuple[str | Expression, str]] = [
        (lambda part: _is_hit(part, hit).cast(pa.int8()), "descending"),
        ("seconds_throttled", "descending"),
        (_use, "descending"),
        *((name, "ascending") for name in owner),
    ]
    owners = sums(table.parts(owner), {name: name for name in owner}, {"rows": (number_of_rows, "sum")})
    used = {(row["kind"], *_level(row), row["topic"]) for row in owners}
    rows = largest(table.parts(table.schema.names), order, MAX_QUOTAS)
    return Compared(
        quotas.path.rsplit("/", 1)[-1],
        tuple(map(_quota, rows)),
        sum(row["rows"] for row in owners),
        counts["hit"] or 0,
        counts["over"] or 0,
        counts["near"] or 0,
        tuple(_unused(quotas, used)),
        quotas.not_looked_at,
    )


def _use(part: pa.RecordBatch) -> Any:
    """How near to its limit somebody was."""
    peak = pc.multiply(pc.divide(part["peak"], part["limit"]), 0.999)
    return pc.max_element_wise(pc.divide(part["p99"], part["limit"]), peak)


def _is_hit(part: pa.RecordBatch, told: bool) -> Any:
    return pc.greater(part["hit_intervals"], 0) if told else pa.repeat(False, part.num_rows)


def _over(part: pa.RecordBatch) -> Any:
    return pc.greater(part["seconds_throttled"], 0)


def _near(part: pa.RecordBatch) -> Any:
    return pc.and_(pc.invert(_over(part)), pc.greater_equal(part["peak"], pc.multiply(part["limit"], NEAR)))


_STATES: Mapping[str, Expression | None] = {"hit": None, "over": _over, "near": _near}


def _counted(state: Expression | None, told: bool) -> Expression:
    """1 for who is in a state, and was not held back; for None, who was held back."""

    def ones(part: pa.RecordBatch) -> Any:
        hit = _is_hit(part, told)
        return (hit if state is None else pc.and_(pc.invert(hit), state(part))).cast(pa.int64())

    return ones


def _level(row: Row) -> tuple[str | None, str | None]:
    return row["owner_user"], row["owner_client"]


def _unused(quotas: QuotaFile, used: set[tuple[str, str | None, str | None, str | None]]) -> list[str]:
    """Limits of a named user, client id, topic or tenant without traffic; a default is unused when it applied to no traffic."""
    found = []
    rules = {(limit.kind, limit.user, limit.client_id) for limit in quotas.limits}
    applied = {_rule(rules, kind, user, client) for kind, user, client, _ in used}
    for limit in quotas.limits:
        if (limit.kind, limit.user, limit.client_id) not in applied:
            found.append(f"{limit.kind} of {_whose(limit.user, limit.client_id, None)}")
    for kind, limits in quotas.of_topics().items():
        found += [f"{kind} of {_whose(None, None, topic)}" for topic in limits if (kind, None, None, topic) not in used]
    for name, one in quotas.tenants.items():
        kinds = map(of_tenants, one.limits)
        found += [f"{kind} of {_whose(None, None, name, kind)}" for kind in kinds if (kind, None, None, name) not in used]
    return found


_Rule = tuple[str, str | None, str | None]


def _rule(rules: set[_Rule], kind: str, user: str | None, client: str | None) -> _Rule | None:
    """The limit that an owner has: the most specific one. Owners at levels of client ids have a user too."""
    clients = (None,) if client is None else (client, DEFAULT)
    users = (user, DEFAULT) if client is None else (user, DEFAULT, None)
    return next((rule for one in users for name in clients if (rule := (kind, one, name)) in rules), None)


def _quota(row: Row) -> QuotaRow:
    limit, peak = row["limit"], row["peak"]
    over = row["seconds_throttled"] > 0
    use, held_back = _history(row)
    return QuotaRow(
        kind=row["kind"],
        whose=_whose(row["owner_user"], row["owner_client"], row["topic"], row["kind"]),
        limit=limit,
        state="hit" if held_back else "over" if over else "near" if peak >= NEAR * limit else "unused" if peak == 0 else "within",
        p50=row["p50"],
        p95=row["p95"],
        p99=row["p99"],
        peak=peak,
        throttled=row["seconds_throttled"],
        longest_wait=row["longest_wait"],
        waiting=row["waiting"],
        used=use,
        held_back=held_back,
        suggested=suggested(use, held_back, whole=row["kind"] in WHOLE),
    )


def _history(row: Row) -> tuple[Use, HeldBack]:
    """What its owner used in the intervals of the logs, and how it was held back; where the table has none of that, what it used of
    longer averages."""
    if "hit_intervals" not in row:
        return as_in_a_histogram(0, row["p99"], row["peak"]), NOT_HELD_BACK
    counts = (row[name] for name in ("throttled", "throttled_told", "refused", "held", "hit_intervals", "hit_limit"))
    if not row["intervals"]:  # no rate: a level, or a threshold
        return as_in_a_histogram(0, row["p99"], row["peak"]), HeldBack(*counts)
    made = as_a_level(row["intervals"], row["largest"]) if is_level(row["kind"]) else None
    return made or as_in_a_histogram(row["intervals"], row["used"], row["largest"]), HeldBack(*counts)


def _whose(user: str | None, client: str | None, topic: str | None, kind: str = "") -> str:
    parts = [("user", user), ("client", client), ("tenant" if kind.startswith(of_tenants("")) else "topic", topic)]
    return ", ".join(f"{name} {value}" for name, value in parts if value is not None) or "everybody"


def _charges(table: Stored, prices: Prices) -> Charges:
    names = ("principal", "in_bytes", "out_bytes", "stored_byte_days", "cost")
    order: list[tuple[str | Expression, str]] = [("cost", "descending"), (_amounts, "descending"), ("principal", "ascending")]
    rows = largest(table.parts(names), order, MAX_ROWS)
    total = sums(table.parts(names), {}, {"count": (number_of_rows, "sum"), "cost": ("cost", "sum")})[0]
    charges = tuple(Charge(*(row[name] for name in names)) for row in rows)
    priced = any((prices.bytes_in, prices.bytes_out, prices.stored))
    return Charges(charges, total["count"] or 0, total["cost"] or 0.0, prices.currency, priced)


def _amounts(part: pa.RecordBatch) -> Any:
    return pc.add(pc.add(part["in_bytes"], part["out_bytes"]), part["stored_byte_days"])
