"""When each volume fills, who fills it, and when it would with other quotas.

In: the tables by day. Out: `VolumeForecast`s, as values: volumes are few. Left to others: the arithmetic (`reports.forecast`).

A volume has three levels, in used bytes: producing is slowed (`soft`), producing stops (`limit`), the disk is `full`. The drivers
of a volume are the topics that grew most on it, with the principals that produced to them. With other quotas the growth of a topic
is reduced by the traffic that had not passed by the end of the logs (`reports.let_through`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reports.forecast.forecast import FillForecast, Forecast, forecast
from reports.forecast.history import DAY, History
from reports.let_through import LetThrough
from reports.quotas.limits import QuotaFile
from reports.stored import Stored, latest, sums
from reports.tables import Tables
from reports.transforms.volumes import REST, VOLUME

MAX_TOPICS = 10
MAX_PRINCIPALS = 5
IN_FORCE, PROPOSED = "in force", "proposed"

_LAST = ("start", "used_bytes", "total_bytes", "limit_bytes", "soft_limit_bytes")

Volume = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class Driver:
    """A topic that takes space of a volume: bytes at its last check, and how many more than at its first. `principals`: who
    produced to it, and their part of it, largest first."""

    topic: str
    bytes: int
    grown: int
    principals: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeForecast(FillForecast):
    """One volume of `total` bytes, and the topics that grew most on it."""

    volume: Volume
    total: int
    drivers: tuple[Driver, ...] = ()


def forecast_volumes(tables: Tables, quotas: QuotaFile | None) -> tuple[VolumeForecast, ...]:
    """Every volume that the logs tell of, by broker and log dir."""
    drivers = _drivers(tables)
    keys = {name: name for name in ("date", *VOLUME)}
    days = latest(tables["volumes"].parts(["date", *VOLUME, *_LAST]), keys, "start", _LAST)
    by_volume: dict[Volume, list[Any]] = {}
    for row in sorted(days, key=lambda row: (*_order(row), row["date"])):
        row["at"] = int(row["start"].timestamp())
        by_volume.setdefault((row["broker_id"], row["log_dir"]), []).append(row)
    return tuple(_volume_forecast(volume, rows, drivers.get(volume, ()), quotas) for volume, rows in by_volume.items())


def _order(row: Mapping[str, Any]) -> tuple[int, str]:
    """Volumes in order; a broker that is not known comes first."""
    broker = row["broker_id"]
    return (-1 if broker is None else broker), row["log_dir"]


def _volume_forecast(volume: Volume, rows: Sequence[Any], drivers: tuple[Driver, ...], quotas: QuotaFile | None) -> VolumeForecast:
    now = rows[-1]
    levels = {"full": now["total_bytes"]}
    for name, column in (("limit", "limit_bytes"), ("soft", "soft_limit_bytes")):
        if now[column] is not None:
            levels[name] = now["total_bytes"] - now[column]
    if quotas is not None and "limit" not in levels:
        levels |= _levels(quotas, now["total_bytes"])
    if levels.get("soft") == levels.get("limit"):
        levels.pop("soft", None)
    observed = tuple((row["at"], row["used_bytes"]) for row in rows)
    history = History.of(observed)
    return VolumeForecast(
        volume=volume,
        total=now["total_bytes"],
        levels=levels,
        observed=observed,
        history=history,
        forecast=forecast(history, levels),
        drivers=drivers,
    )


def _levels(quotas: QuotaFile, total: int) -> dict[str, int]:
    found = {"limit": quotas.hard, "soft": quotas.soft}
    return {name: total - available.of(total) for name, available in found.items() if available is not None}


def _drivers(tables: Tables) -> dict[Volume, tuple[Driver, ...]]:
    """The topics of each volume that grew most, with who produced to them."""
    by_volume: dict[Volume, list[tuple[int, int, str]]] = {}
    for (broker_id, log_dir, topic), (first, last) in _ends(tables["volume_topics"]).items():
        by_volume.setdefault((broker_id, log_dir), []).append(((last or 0) - (first or 0), last or 0, topic))
    chosen = {volume: sorted(rows, reverse=True)[:MAX_TOPICS] for volume, rows in by_volume.items()}
    principals = _producers(tables["topics"], sorted({topic for rows in chosen.values() for _, _, topic in rows}))
    return {
        volume: tuple(Driver(topic, last, grown, principals.get(topic, ())) for grown, last, topic in rows)
        for volume, rows in chosen.items()
    }


def _ends(stored: Stored) -> dict[tuple[int | None, str, str], tuple[int | None, int | None]]:
    """Bytes of each topic on each volume at the first and the last day that tell of it."""
    keys = ("broker_id", "log_dir", "topic")
    names = {name: name for name in keys}

    def named() -> Iterator[pa.RecordBatch]:
        for part in stored.parts(["date", *keys, "first_bytes", "last_bytes"]):
            yield part.filter(pc.not_equal(part["topic"], REST))

    first = latest(named(), names, lambda part: pc.negate(part["date"].cast(pa.int32())), ["first_bytes"])
    last = latest(named(), names, "date", ["last_bytes"])
    begin = {tuple(row[key] for key in keys): row["first_bytes"] for row in first}
    return {key: (begin[key], row["last_bytes"]) for row in last for key in [tuple(row[key] for key in keys)]}


def _producers(topics: Stored, names: Sequence[str]) -> dict[str, tuple[tuple[str, float], ...]]:
    if not names:
        return {}
    wanted = pa.array(names, pa.string())
    parts = topics.parts(["topic", "principal", "api", "record_bytes"])
    produced = (part.filter(pc.and_(pc.equal(part["api"], "Produce"), pc.is_in(part["topic"], wanted))) for part in parts)
    by_topic: dict[str, list[tuple[int, str]]] = {}
    for row in sums(produced, {"topic": "topic", "principal": "principal"}, {"bytes": ("record_bytes", "sum")}):
        if row["bytes"]:
            by_topic.setdefault(row["topic"], []).append((row["bytes"], row["principal"]))
    return {topic: _parts(rows) for topic, rows in by_topic.items()}


def _parts(rows: Sequence[tuple[int, str]]) -> tuple[tuple[str, float], ...]:
    """The part of each principal, of those with most bytes."""
    total = sum(amount for amount, _ in rows)
    return tuple((name, amount / total) for amount, name in sorted(rows, reverse=True)[:MAX_PRINCIPALS])


def with_proposed_quotas(found: Sequence[VolumeForecast], through: LetThrough, quotas: QuotaFile) -> tuple[VolumeForecast, ...]:
    """The forecasts, each with a second forecast under the proposed quotas."""
    out = []
    for volume in found:
        factor = _factor(volume, through)
        # Limits for volumes in the proposed file take the place of those in force, all of them or none.
        kept = {name: at for name, at in volume.levels.items() if name != "full"}
        levels = {"full": volume.total, **(_levels(quotas, volume.total) or kept)}
        if levels.get("soft") == levels.get("limit"):
            levels.pop("soft", None)
        out.append(volume.with_proposed(levels, factor))
    return tuple(out)


def _factor(volume: VolumeForecast, through: LetThrough) -> float:
    """The part of the volume's growth that would be left: of the topics that drove it by who produced to them, of the rest as
    all."""
    everything = through.everybody
    grown = [driver for driver in volume.drivers if driver.grown > 0]
    total = sum(driver.grown for driver in grown)
    if not total:
        return everything
    growth = max(total, volume.observed[-1][1] - volume.observed[0][1])
    left = 0.0
    for driver in grown:
        known = sum(part for _, part in driver.principals)
        of_known = sum(part * through.principals.get(name, 1.0) for name, part in driver.principals)
        left += driver.grown * min(of_known + (1 - known) * everything, through.topics.get(driver.topic, 1.0))
    return (left + (growth - total) * everything) / growth


def forecast_rows(who: tuple[Any, ...], found: FillForecast) -> list[tuple[Any, ...]]:
    """Rows of the tables `forecasts` and `budgets`, `who` first: one for each case and level."""
    cases = [(IN_FORCE, found.forecast, found.levels), (PROPOSED, found.proposed, found.proposed_levels or {})]
    return [
        (*who, *_row(case, result, name, at)) for case, result, levels in cases if result is not None for name, at in levels.items()
    ]


def _row(case: str, result: Forecast, level: str, at: int) -> tuple[Any, ...]:
    reached, test = result.reached.get(level), result.test
    times = [_time(day) for day in (reached.day, reached.early, reached.late)] if reached else [None] * 3
    slopes = [None if value is None else float(value) for value in (result.slope, result.slope_low, result.slope_high)]
    tested = (test.days, test.error, test.inside) if test else (None, None, None)
    return (
        case,
        level,
        at,
        result.days,
        result.model,
        result.reason,
        *slopes,
        *times,
        bool(reached and reached.already),
        *tested,
    )


def _time(day: float | None) -> datetime | None:
    return None if day is None else datetime.fromtimestamp(round(day * DAY), UTC)
