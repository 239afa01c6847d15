"""Limits of a summary: who was refused or throttled, by which quota.

In: the tables `refusals`, `throttles`, `decisions`, `traffic`. Out: `Limits`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.summary.lines import epochs, row_moment
from reports.summary.model import EVERYBODY, Decision, Limits, ReasonRow, Refusal, Series
from reports.summary.series import MAX_KEYS, Timeline, make_series
from reports.tables import Tables
from reports.transforms.decisions import entity, reasons
from reports.transforms.ranking import ranking

MAX_ROWS = 20
"""Rows of a list on the page; the tables have them all."""

MAX_DECISIONS = 10
"""The same for decisions one by one."""


def summarize_limits(tables: Tables, timeline: Timeline) -> Limits:
    """Refusals (complete) and decisions (a sample, with the left out ones counted), largest first, and over time."""
    refused_by_quota = _ranked_series(tables["refusals"], "quota", "items", timeline)
    quota_entity = F.concat(F.col("quota"), F.lit(": "), _entity())
    decisions_by_entity = _ranked_series(tables["throttles"].withColumn("whose", quota_entity), "whose", "decisions", timeline)
    modes = tables["throttles"].groupBy("quota").agg(F.bool_and(F.col("mode") == "observe").alias("watches")).orderBy("quota")
    return Limits(
        refusals=_refusals(tables["refusals"]),
        refused=round(sum(map(sum, refused_by_quota.values))),
        reasons=_reasons(tables["decisions"]),
        latest=_latest(tables["decisions"]),
        decisions=round(sum(map(sum, decisions_by_entity.values))),
        watching=tuple(row["quota"] for row in modes.where("watches").collect()),
        refused_by_quota=refused_by_quota,
        decisions_by_entity=decisions_by_entity,
        throttle_by_principal=_ranked_series(tables["traffic"], "principal", "throttle_ms", timeline),
    )


def _ranked_series(table: DataFrame, key: str, measure: str, timeline: Timeline) -> Series:
    """`measure` over time for the keys that have most of it."""
    measures = {measure: F.col(measure)}
    largest = ranking(table, [key], measures, [measure]).where(F.col(measure) > 0).limit(MAX_KEYS)
    shown = [row[key] for row in largest.collect()]
    if not shown:
        return Series(timeline.first, timeline.seconds, (), ())
    return make_series(table, key, shown, measures, timeline)[measure]


def _entity() -> Column:
    return F.coalesce(entity(), F.lit(EVERYBODY))


def _refusals(refusals: DataFrame) -> tuple[Refusal, ...]:
    rows = ranking(refusals, ["quota", "principal"], {"items": F.col("items")}, ["items"]).limit(MAX_ROWS)
    return tuple(Refusal(row["quota"], row["principal"], row["items"]) for row in rows.collect())


def _reasons(decisions: DataFrame) -> tuple[ReasonRow, ...]:
    copied = ("quota", "mode", "action", "api", "decisions", "items", "max_throttle_ms", "usage", "limit", "message")
    rows = reasons(decisions).limit(MAX_ROWS).select(*copied, _entity().alias("entity"), *epochs("last"))
    return tuple(
        ReasonRow(**{name: row[name] for name in copied}, entity=row["entity"], last=row_moment(row, "last"))
        for row in rows.collect()
    )


def _latest(decisions: DataFrame) -> tuple[Decision, ...]:
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
    )
    rows = decisions.orderBy(F.desc("at")).limit(MAX_DECISIONS).select(*copied, "topics", _entity().alias("entity"), *epochs("at"))
    return tuple(
        Decision(
            **{name: row[name] for name in copied}, entity=row["entity"], topics=tuple(row["topics"]), at=row_moment(row, "at")
        )
        for row in rows.collect()
    )
