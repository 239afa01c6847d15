"""Capacity of a summary: when volumes fill, how quotas fit, what it costs.

In: the forecasts, the tables `quotas`, `what_if`, `chargeback`, `writers`. Out: `Capacity`.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from advice.limits import NOT_HELD_BACK, HeldBack, suggested
from advice.use import Use, as_a_level, as_in_a_histogram
from reports.chargeback import Prices
from reports.fill_forecast import VolumeForecast
from reports.forecast.forecast import HORIZON, Forecast
from reports.forecast.history import DAY
from reports.period_tables import Inputs
from reports.quotas.catalogue import KEYS, TOPIC_RATES, TOPIC_STORED
from reports.quotas.file import LEVELS, Limit, QuotaFile, is_level, of_tenants
from reports.quotas.replay import NEAR
from reports.summary.lines import list_silences
from reports.summary.model import Capacity, Charge, Charges, Compared, DrivingTopic, Level, Path, QuotaRow, VolumeRow
from reports.tables import Tables

MAX_ROWS = 20
MAX_QUOTAS = 40
_SIZES = {key.kind for key in KEYS if key.size}
_WHOLE = _SIZES | LEVELS.keys()
WHOLE = frozenset(
    {*_WHOLE, *map(of_tenants, _WHOLE), *(rate.kind for rate in TOPIC_RATES), TOPIC_STORED, "bytes_in", "producer_ids"}
)
"""Quotas whose limits are whole numbers."""
_POINTS = 60
_ORDER = ("soft", "limit", "full")


def summarize_capacity(tables: Tables, volumes: Sequence[VolumeForecast], inputs: Inputs) -> Capacity:
    """Volumes in the order in which they fill."""
    rows = sorted(map(_volume, volumes), key=lambda row: (_soonest(row), row.name))
    return Capacity(
        volumes=tuple(rows),
        quotas=_compared(tables.get("quotas"), inputs.quotas),
        what_if=_compared(tables.get("what_if"), inputs.what_if),
        charges=_charges(tables["chargeback"], inputs.prices),
        silences=list_silences(tables),
    )


def _soonest(row: VolumeRow) -> float:
    """Seconds since the epoch at which the first of its levels is reached."""
    return min((level.day.timestamp() for level in row.levels if level.day), default=math.inf)


def _volume(found: VolumeForecast) -> VolumeRow:
    result, test = found.forecast, found.forecast.test
    return VolumeRow(
        *found.volume,
        at=found.at,
        total=found.total,
        used=found.used,
        days=result.days,
        levels=_levels(found.levels, result),
        drivers=tuple(DrivingTopic(one.topic, one.bytes, one.grown, one.principals) for one in found.drivers),
        path=_path(found),
        reason=result.reason,
        model=result.model,
        per_day=_float(result.slope),
        per_day_low=_float(result.slope_low),
        per_day_high=_float(result.slope_high),
        tested_days=test.days if test else 0,
        tested_error=test.error if test else None,
        tested_inside=test.inside if test else 0,
        proposed=_levels(found.proposed_levels or {}, found.proposed) if found.proposed else (),
        factor=found.factor,
    )


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _levels(levels: Mapping[str, int], result: Forecast) -> tuple[Level, ...]:
    found = []
    for name in _ORDER:
        if name in levels:
            reached = result.reached.get(name)
            day, early, late = (_time(at) for at in ((reached.day, reached.early, reached.late) if reached else (None, None, None)))
            found.append(Level(name, levels[name], day, early, late, bool(reached and reached.already)))
    return tuple(found)


def _time(day: float | None) -> datetime | None:
    return None if day is None else datetime.fromtimestamp(round(day * DAY), UTC)


def _path(found: VolumeForecast) -> Path:
    """The forecast is drawn until the volume is full, but not further than six times its history, and two weeks at least."""
    result = found.forecast
    if result.fit is None:
        return Path(found.observed)
    full = result.reached.get("full")
    begin = found.history.last
    ahead = (full.late or full.day or begin + HORIZON) - begin + 3 if full else HORIZON
    days = begin + np.linspace(0, min(max(14.0, 6 * found.history.span), max(ahead, 3.0)), _POINTS)
    columns = [np.clip(used, 0, found.total * 1.02) for used in result.fit.path(days)]
    rows = zip(days, *columns, strict=True)
    proposed = found.proposed.fit if found.proposed else None
    other = np.clip(proposed.path(days).mean, 0, found.total * 1.02) if proposed else np.array([])
    return Path(
        found.observed,
        tuple((round(day * DAY), float(mean), float(low), float(high)) for day, mean, low, high in rows),
        tuple((round(day * DAY), float(used)) for day, used in zip(days, other, strict=False)),
    )


def _compared(table: DataFrame | None, quotas: QuotaFile | None) -> Compared | None:
    if table is None or quotas is None:
        return None
    use = F.greatest(F.col("p99") / F.col("limit"), F.col("peak") / F.col("limit") * 0.999)
    hit = F.col("hit_intervals") > 0 if "hit_intervals" in table.columns else F.expr("false")
    counts = table.agg(
        F.count("*").alias("all"),
        F.count_if(hit).alias("hit"),
        F.count_if(~hit & _over()).alias("over"),
        F.count_if(~hit & ~_over() & (F.col("peak") >= F.col("limit") * NEAR)).alias("near"),
    ).collect()[0]
    rows = table.orderBy(hit.desc(), F.desc("seconds_throttled"), use.desc(), "kind", "owner_user", "owner_client", "topic").limit(
        MAX_QUOTAS
    )
    used = {
        (row["kind"], *_level(row), row["topic"])
        for row in table.select("kind", "owner_user", "owner_client", "topic").distinct().limit(100_000).collect()
    }
    return Compared(
        quotas.path.rsplit("/", 1)[-1],
        tuple(map(_quota, rows.collect())),
        counts["all"],
        counts["hit"],
        counts["over"],
        counts["near"],
        tuple(_unused(quotas, used)),
        quotas.not_looked_at,
    )


def _over() -> Column:
    return F.col("seconds_throttled") > 0


def _level(row: Row) -> tuple[str | None, str | None]:
    return row["owner_user"], row["owner_client"]


def _unused(quotas: QuotaFile, used: set[tuple[str, str | None, str | None, str | None]]) -> list[str]:
    """Limits of a named user, client id, topic or tenant without traffic; a default is unused when it applied to no traffic."""
    found = []
    for limit in quotas.limits:
        owners = [(user, client) for kind, user, client, _ in used if kind == limit.kind]
        if not any(_covers(limit, user, client) for user, client in owners):
            found.append(f"{limit.kind} of {_whose(limit.user, limit.client_id, None)}")
    for kind, limits in quotas.of_topics().items():
        found += [f"{kind} of {_whose(None, None, topic)}" for topic in limits if (kind, None, None, topic) not in used]
    for name, one in quotas.tenants.items():
        kinds = map(of_tenants, one.limits)
        found += [f"{kind} of {_whose(None, None, name, kind)}" for kind in kinds if (kind, None, None, name) not in used]
    return found


def _covers(limit: Limit, user: str | None, client: str | None) -> bool:
    """Is this an owner of the limit? Owners at levels of client ids have a user too."""
    if limit.client_id is None or client is None:
        return limit.client_id is client is None and _fits(limit.user, user)
    return _fits(limit.client_id, client) and (limit.user is None or _fits(limit.user, user))


def _fits(rule: str | None, name: str | None) -> bool:
    return rule in ("<default>", name)


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


def _charges(table: DataFrame, prices: Prices) -> Charges:
    amounts = F.col("in_bytes") + F.col("out_bytes") + F.col("stored_byte_days")
    rows = table.orderBy(F.desc("cost"), amounts.desc(), "principal").limit(MAX_ROWS).collect()
    total = table.agg(F.count("*").alias("count"), F.coalesce(F.sum("cost"), F.lit(0.0)).alias("cost")).collect()[0]
    charges = tuple(
        Charge(*(row[name] for name in ("principal", "in_bytes", "out_bytes", "stored_byte_days", "cost"))) for row in rows
    )
    priced = any((prices.bytes_in, prices.bytes_out, prices.stored))
    return Charges(charges, total["count"], total["cost"], prices.currency, priced)
