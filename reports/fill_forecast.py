"""When each volume fills, who fills it, and when it would with other quotas.

In: the tables by day. Out: `VolumeForecast`s, as values: volumes are few. Left to others: the arithmetic (`reports.forecast`).

A volume has three levels, in used bytes: producing is slowed (`soft`), producing stops (`limit`), the disk is `full`. The drivers
of a volume are the topics that grew most on it, with the principals that produced to them. With other quotas the growth of a topic
is reduced by the traffic that had not passed by the end of the logs. A limit that only delays traffic reduces nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.forecast.forecast import Forecast, forecast
from reports.forecast.history import DAY, History
from reports.quotas.file import QuotaFile
from reports.transforms.volumes import REST, VOLUME

MAX_TOPICS = 10
MAX_PRINCIPALS = 5
IN_FORCE, PROPOSED = "in force", "proposed"

Volume = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class Driver:
    """A topic that takes space of a volume: bytes at its last check, and how many more than at its first. `principals`: who
    produced to it, and their part of it, largest first."""

    topic: str
    bytes: int
    grown: int
    principals: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class VolumeForecast:
    """One volume. Sizes in bytes at its last check, `at`; `levels` are used bytes at which something happens. `observed` are the
    seconds since the epoch and used bytes of every day's last check. `proposed` and `factor`: with the proposed quotas, and what
    part of the growth would be left with them."""

    volume: Volume
    at: datetime
    total: int
    used: int
    levels: Mapping[str, int]
    observed: tuple[tuple[int, int], ...]
    history: History
    forecast: Forecast
    drivers: tuple[Driver, ...] = ()
    proposed: Forecast | None = None
    proposed_levels: Mapping[str, int] | None = None
    factor: float | None = None


def forecast_volumes(tables: Mapping[str, DataFrame], quotas: QuotaFile | None) -> tuple[VolumeForecast, ...]:
    """Every volume that the logs tell of, by broker and log dir."""
    drivers = _drivers(tables)
    last = F.max_by(
        F.struct(F.unix_seconds("start").alias("at"), "used_bytes", "total_bytes", "limit_bytes", "soft_limit_bytes"), "start"
    )
    days = tables["volumes"].groupBy("date", *VOLUME).agg(last.alias("last")).orderBy(*VOLUME, "date")
    by_volume: dict[Volume, list[Any]] = {}
    for row in days.toLocalIterator():
        by_volume.setdefault((row["broker_id"], row["log_dir"]), []).append(row["last"])
    return tuple(_volume_forecast(volume, rows, drivers.get(volume, ()), quotas) for volume, rows in by_volume.items())


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
    at = datetime.fromtimestamp(now["at"], UTC)
    return VolumeForecast(
        volume, at, now["total_bytes"], now["used_bytes"], levels, observed, history, forecast(history, levels), drivers
    )


def _levels(quotas: QuotaFile, total: int) -> dict[str, int]:
    found = {"limit": quotas.hard, "soft": quotas.soft}
    return {name: total - available.of(total) for name, available in found.items() if available is not None}


def _drivers(tables: Mapping[str, DataFrame]) -> dict[Volume, tuple[Driver, ...]]:
    """The topics of each volume that grew most, with who produced to them."""
    ends = (
        tables["volume_topics"]
        .where(F.col("topic") != REST)
        .groupBy(*VOLUME, "topic")
        .agg(F.min_by("first_bytes", "date").alias("first"), F.max_by("last_bytes", "date").alias("last"))
    )
    grown = F.coalesce("last", F.lit(0)) - F.coalesce("first", F.lit(0))
    rows = ends.select(*VOLUME, F.struct(grown.alias("grown"), F.coalesce("last", F.lit(0)).alias("bytes"), "topic").alias("row"))
    # A volume's lines name some twenty topics each, so that the list of all is short.
    largest = F.slice(F.sort_array(F.collect_list("row"), asc=False), 1, MAX_TOPICS)
    chosen = rows.groupBy(*VOLUME).agg(largest.alias("rows")).collect()
    names = sorted({topic["topic"] for row in chosen for topic in row["rows"]})
    principals = _producers(tables["topics"], names)
    return {
        (row["broker_id"], row["log_dir"]): tuple(
            Driver(topic["topic"], topic["bytes"], topic["grown"], principals.get(topic["topic"], ())) for topic in row["rows"]
        )
        for row in chosen
    }


def _producers(topics: DataFrame, names: Sequence[str]) -> dict[str, tuple[tuple[str, float], ...]]:
    if not names:
        return {}
    produced = topics.where((F.col("api") == "Produce") & F.col("topic").isin(list(names)))
    sums = produced.groupBy("topic", "principal").agg(F.sum("record_bytes").alias("bytes")).where("bytes > 0")
    listed = F.sort_array(F.collect_list(F.struct("bytes", "principal")), asc=False)
    rows = sums.groupBy("topic").agg(F.sum("bytes").alias("all"), F.slice(listed, 1, MAX_PRINCIPALS).alias("most")).collect()
    return {row["topic"]: tuple((one["principal"], one["bytes"] / row["all"]) for one in row["most"]) for row in rows}


def with_proposed_quotas(
    found: Sequence[VolumeForecast], tables: Mapping[str, DataFrame], replayed: DataFrame, quotas: QuotaFile
) -> tuple[VolumeForecast, ...]:
    """The forecasts, each with a second forecast under the proposed quotas."""
    passed = _passed(replayed)
    topics = {row["topic"]: _part(row) for row in replayed.where("kind = 'bytes_in'").collect()}
    everything = _overall(tables, passed)
    out = []
    for volume in found:
        factor = _factor(volume, passed, topics, everything)
        # Limits for volumes in the proposed file take the place of those in force, all of them or none.
        kept = {name: at for name, at in volume.levels.items() if name != "full"}
        levels = {"full": volume.total, **(_levels(quotas, volume.total) or kept)}
        if levels.get("soft") == levels.get("limit"):
            levels.pop("soft", None)
        proposed = forecast(volume.history, levels, factor=factor)
        out.append(replace(volume, proposed=proposed, proposed_levels=levels, factor=factor))
    return tuple(out)


def _part(row: Any) -> float:
    """What part of its traffic would have passed by the end."""
    return max(0.0, 1 - row["waiting"] / row["total"]) if row["total"] else 1.0


def _passed(replayed: DataFrame) -> dict[str, float]:
    """For each principal with a limit on what it produces, the part that would have passed."""
    rows = replayed.where("kind = 'producer_byte_rate'").groupBy("owner_user")
    sums = rows.agg(F.sum("waiting").alias("waiting"), F.sum("total").alias("total"))
    return {f"User:{row['owner_user']}": _part(row) for row in sums.collect()}


def _overall(tables: Mapping[str, DataFrame], passed: Mapping[str, float]) -> float:
    held = {name: part for name, part in passed.items() if part < 1}
    if not held:
        return 1.0
    bytes_in = F.sum(F.when(F.col("api") == "Produce", F.col("request_bytes")).otherwise(0))
    rows = tables["traffic"].where(F.col("principal").isin(list(held))).groupBy("principal").agg(bytes_in.alias("bytes")).collect()
    total = tables["traffic"].agg(bytes_in.alias("bytes")).collect()[0]["bytes"] or 0
    return 1 - sum(row["bytes"] * (1 - held[row["principal"]]) for row in rows) / total if total else 1.0


def _factor(volume: VolumeForecast, passed: Mapping[str, float], topics: Mapping[str, float], everything: float) -> float:
    """The part of the volume's growth that would be left: of the topics that drove it by who produced to them, of the rest as
    all."""
    grown = [driver for driver in volume.drivers if driver.grown > 0]
    total = sum(driver.grown for driver in grown)
    if not total:
        return everything
    growth = max(total, volume.observed[-1][1] - volume.observed[0][1])
    left = 0.0
    for driver in grown:
        known = sum(part for _, part in driver.principals)
        through = sum(part * passed.get(name, 1.0) for name, part in driver.principals) + (1 - known) * everything
        left += driver.grown * min(through, topics.get(driver.topic, 1.0))
    return (left + (growth - total) * everything) / growth


def forecast_rows(found: Sequence[VolumeForecast]) -> list[tuple[Any, ...]]:
    """Rows of the table `forecasts`: one for each volume, case and level."""
    rows = []
    for volume in found:
        cases = [(IN_FORCE, volume.forecast, volume.levels), (PROPOSED, volume.proposed, volume.proposed_levels or {})]
        for case, result, levels in cases:
            if result is not None:
                rows += [_row(volume, case, result, name, at) for name, at in levels.items()]
    return rows


def _row(volume: VolumeForecast, case: str, result: Forecast, level: str, at: int) -> tuple[Any, ...]:
    reached, test = result.reached.get(level), result.test
    times = [_time(day) for day in (reached.day, reached.early, reached.late)] if reached else [None] * 3
    slopes = [None if value is None else float(value) for value in (result.slope, result.slope_low, result.slope_high)]
    tested = (test.days, test.error, test.inside) if test else (None, None, None)
    return (
        *volume.volume,
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
