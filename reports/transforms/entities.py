"""Entities: each principal, client id and topic over the whole period, as numbers to compare.

In: the tables by day. Out: `entities`, one row each. Left to others: which are shown, and how (`reports.summary`).
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.rates import ENTITY, of_api, percentiles

_WEEK = 7
_SUMS = (
    "produced_bytes",
    "fetched_bytes",
    "requests",
    "records",
    "mutations",
    "throttle_ms",
    "last_week_bytes",
    "week_before_bytes",
)


def entities(tables: Mapping[str, DataFrame]) -> DataFrame:
    """One row for each principal, client (a principal with one of its client ids) and topic.

    Bytes of principals and clients are whole Produce requests and Fetch responses on the wire, of topics record batches. `share` is
    the part of all `produced_bytes` of its scope. `growth` compares the bytes produced and fetched in the last seven full days
    with those of the seven before, null with fewer days. `refused` is quota -> items. `active_producer_ids` is the most
    at one time.
    """
    traffic, topics = tables["traffic"], tables["topics"]
    by_scope = [
        _sums(traffic, "principal", ["principal"], "request_bytes", "response_bytes"),
        _sums(traffic, "client", ["principal", "client_id"], "request_bytes", "response_bytes"),
        _sums(topics, "topic", ["topic"], "record_bytes", "record_bytes"),
    ]
    sums = by_scope[0].unionByName(by_scope[1]).unionByName(by_scope[2])
    joined = sums.withColumn("_key", _key()).join(_keyed(percentiles(tables["rates"])), on="_key", how="left")
    joined = joined.join(_refused(tables["refusals"]), on="_key", how="left").join(
        _ids(tables["producer_ids"]), on="_key", how="left"
    )
    all_of_scope = F.sum("produced_bytes").over(Window.partitionBy("scope"))
    share = F.when(all_of_scope > 0, F.col("produced_bytes") / all_of_scope).otherwise(0.0)
    growth = F.when(F.col("week_before_bytes") > 0, F.col("last_week_bytes") / F.col("week_before_bytes") - 1)
    rates = [f"{way}_{name}" for way in ("produced", "fetched") for name in ("p50", "p95", "p99", "peak")]
    return joined.select(
        *ENTITY, *_SUMS[:6], share.alias("share"), growth.alias("growth"), *rates, "refused", "active_producer_ids", *_SUMS[6:]
    )


def _sums(table: DataFrame, scope: str, keys: list[str], bytes_in: str, bytes_out: str) -> DataFrame:
    produced, fetched = of_api("Produce", bytes_in), of_api("Fetch", bytes_out)
    both = produced + fetched
    # The last day is usually incomplete: weeks end where it begins.
    bounds = table.agg(F.max("date").alias("end"), F.min("date").alias("begin"))
    age = F.datediff(F.col("end"), F.col("date"))
    two_weeks = F.datediff(F.col("end"), F.col("begin")) >= 2 * _WEEK
    zero = F.lit(0).cast("bigint")
    columns = {
        "produced_bytes": produced,
        "fetched_bytes": fetched,
        "requests": F.col("requests"),
        "records": F.col("records") if "records" in table.columns else F.lit(None).cast("bigint"),
        "mutations": F.col("mutations") if "mutations" in table.columns else zero,
        "throttle_ms": F.col("throttle_ms") if "throttle_ms" in table.columns else zero,
        "last_week_bytes": F.when(two_weeks & age.between(1, _WEEK), both),
        "week_before_bytes": F.when(two_weeks & age.between(_WEEK + 1, 2 * _WEEK), both),
    }
    rows = table.join(F.broadcast(bounds), how="cross").select(*keys, *[value.alias(name) for name, value in columns.items()])
    sums = rows.groupBy(*keys).agg(*[F.sum(name).alias(name) for name in columns])
    null = F.lit(None).cast("string")
    names = [F.col(name) if name in keys else null.alias(name) for name in ("principal", "client_id", "topic")]
    return sums.select(F.lit(scope).alias("scope"), *names, *_SUMS)


def _refused(refusals: DataFrame) -> DataFrame:
    rows = [
        refusals.groupBy(F.lit("principal").alias("scope"), "principal", F.lit(None).cast("string").alias("client_id"), "quota"),
        refusals.groupBy(F.lit("client").alias("scope"), "principal", "client_id", "quota"),
    ]
    items = rows[0].agg(F.sum("items").alias("items")).unionByName(rows[1].agg(F.sum("items").alias("items")))
    keyed = items.withColumn("topic", F.lit(None).cast("string")).withColumn("_key", _key())
    # As many entries as there are kinds of quotas.
    return keyed.groupBy("_key").agg(F.map_from_entries(F.collect_list(F.struct("quota", "items"))).alias("refused"))


def _ids(producer_ids: DataFrame) -> DataFrame:
    most = producer_ids.groupBy("user").agg(F.max("active").alias("active_producer_ids"))
    null = F.lit(None).cast("string")
    named = most.select(
        F.lit("principal").alias("scope"),
        F.concat(F.lit("User:"), F.col("user")).alias("principal"),
        null.alias("client_id"),
        null.alias("topic"),
        "active_producer_ids",
    )
    return named.select(_key().alias("_key"), "active_producer_ids")


def _key() -> Column:
    """One value for a row's entity: joins of nullable columns by equality lose the nulls."""
    return F.struct(*[F.coalesce(F.col(name), F.lit("\0")).alias(name) for name in ENTITY])


def _keyed(table: DataFrame) -> DataFrame:
    return table.withColumn("_key", _key()).drop(*ENTITY)
