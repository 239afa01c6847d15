"""Decisions: who was throttled, refused or held, whose quota it was, and why.

In: good lines, each once, or the table `decisions`. Out: `decisions`, `throttles` (over time by quota and entity). A proxy writes a
sample of its decisions and counts the rest in `left_out`; counts here have both, but items and throttle times only of those
written. The complete sums are in `refusals` and `traffic`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated

_WHAT = ("quota", "mode", "action", "entity_user", "entity_client_id", "entity_tenant")


def decisions(lines: DataFrame) -> DataFrame:
    """The decisions as logged, with `date` (UTC) first and the entity in three columns."""
    return lines.where(F.col("type") == "decision").select(
        "date",
        "at",
        "proxy",
        "quota",
        "mode",
        "action",
        F.col("entity.user").alias("entity_user"),
        F.col("entity.client_id").alias("entity_client_id"),
        F.col("entity.tenant").alias("entity_tenant"),
        "principal",
        "client_id",
        "client_address",
        "api",
        "api_key",
        "api_version",
        "items",
        "topics",
        "usage",
        "limit",
        "left",
        "throttle_ms",
        "message",
        "left_out",
    )


def throttles(decided: DataFrame, seconds: int) -> DataFrame:
    """Decisions for each bucket of `seconds`, quota, mode, action and entity.

    Out, beside those: `decisions` (written and left out), `written`; of the written ones `items`, `throttle_ms` (sum),
    `max_throttle_ms`, `max_usage`, and `limit` (the lowest in force).
    """
    rows = decided.select(bucket_start("at", seconds).alias("start"), *_WHAT, "items", "throttle_ms", "usage", "limit", "left_out")
    sums = rows.groupBy("start", *_WHAT).agg(
        _with_left_out().alias("decisions"),
        F.count("*").alias("written"),
        F.sum("items").alias("items"),
        F.sum("throttle_ms").alias("throttle_ms"),
        F.max("throttle_ms").alias("max_throttle_ms"),
        F.max("usage").alias("max_usage"),
        F.min("limit").alias("limit"),
    )
    return dated(sums, seconds)


def _with_left_out() -> Column:
    return F.count("*") + F.sum("left_out")
