"""What owners of limits want: what they used in the busy intervals of the logs, and how the limits in force held them back.

In: good lines, each once, the decisions among them, and a `QuotaFile`. Out: the columns of COLUMNS for each owner, of which
`advice.limits` makes a suggestion. `kafka-quota-proxy quotas suggest` reads the same lines in its own way
(`proxy/operate/suggest.py`), and a test holds both to the same outcome.

Who asked decides whose limit it was, as with traffic: a limit of a tenant holds back the user who asked, too, and one of a user its
tenant.
"""

from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, TimestampType

from advice.use import PERCENTILE
from reports.arrow_rows import local_frame
from reports.quotas.file import QuotaFile, of_tenants
from reports.quotas.holders import holders, tenants
from reports.quotas.replay import SCHEMA, WHO, demand
from reports.transforms.buckets import bucket_start

COLUMNS = (
    "intervals bigint, used double, largest double, throttled bigint, throttled_told double, refused bigint, held bigint, "
    "hit_intervals bigint, hit_limit double"
)
"""`used` is the 99th percentile of the rates of `intervals` with any use, `largest` the largest. `throttled`, `refused` and `held`
are decisions, `throttled_told` the seconds of the throttles in the log, `hit_intervals` the intervals in which there was any of
these, `hit_limit` the highest limit; null where it was one of another level."""
_OWNED = ("principal", "client_id", "kind")


def with_demand(
    spark: SparkSession, replayed: DataFrame, lines: DataFrame, decided: DataFrame, quotas: QuotaFile, interval: int
) -> DataFrame:
    """The outcome of a replay with COLUMNS behind it, and with rows of owners of whom nothing passed."""
    enforced = decided.where(F.col("mode") == "enforce")
    used = demand(spark, lines, quotas, interval)
    parts = [replayed, *([] if used is None else [_used(used, interval)]), *_hits(spark, enforced, quotas, interval)]
    columns = local_frame(spark, [], f"{SCHEMA}, {COLUMNS}")
    both = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts, columns)
    figures = [field for field in columns.schema.fields if field.name not in WHO]
    sums = both.groupBy(*WHO).agg(*[F.first(field.name, ignorenulls=True).alias(field.name) for field in figures])
    limited = sums.withColumn("limit", F.coalesce("limit", "hit_limit")).where("limit is not null")
    return limited.select(*WHO, *[_or_nothing(field) for field in figures])


def _or_nothing(field: StructField) -> Column:
    """0 in place of null; what has no 0 stays as it is."""
    if field.name == "hit_limit" or field.dataType == TimestampType():
        return F.col(field.name)
    return F.coalesce(field.name, F.lit(0).cast(field.dataType)).alias(field.name)


def _used(demand: DataFrame, interval: int) -> DataFrame:
    rate = F.col("demand") / F.lit(float(interval))
    return demand.groupBy(*WHO).agg(
        F.count("*").alias("intervals"),
        F.percentile_approx(rate, PERCENTILE).alias("used"),
        F.max(rate).alias("largest"),
    )


def _hits(spark: SparkSession, enforced: DataFrame, quotas: QuotaFile, interval: int) -> list[DataFrame]:
    """Decisions of users and clients, those of topics, and those of tenants."""
    times = (F.col("left_out") + 1).alias("times")
    told = enforced.select(
        F.unix_seconds(bucket_start("at", interval)).alias("at"),
        "principal",
        "client_id",
        F.regexp_replace("quota", f"^{of_tenants('')}", "").alias("kind"),
        F.col("quota").startswith(of_tenants("")).alias("of_tenant"),
        F.col("entity_user").isNotNull().alias("of_user"),
        F.col("entity_client_id").isNotNull().alias("of_client"),
        "topics",
        "action",
        F.col("limit").alias("hit"),
        "throttle_ms",
        times,
    )
    nobody = [F.lit(None).cast("string").alias(name) for name in ("owner_user", "owner_client")]
    kinds = [kind for kind, rates in quotas.topic_rates.items() if rates]
    kinds += ["bytes_in"] if quotas.topics or quotas.topics_total is not None else []
    named = told.where(F.col("kind").isin(kinds)).select("*", F.explode("topics").alias("topic"), *nobody)
    found = [_held_back(named.withColumn("of_level", F.expr("true")))]
    if any(one.rates for one in quotas.tenants.values()):
        found.append(_held_back(_of_tenants(spark, told, quotas)))
    if not quotas.limits:
        return found
    pairs = told.select("principal", "client_id").distinct()
    owned = holders(spark, pairs, quotas.limits).drop("limit", "burst")
    same = [told[name].eqNullSafe(owned[name]) for name in _OWNED]
    joined = told.join(owned, on=same[0] & same[1] & same[2], how="inner").select(
        "at", owned["kind"], "owner_user", "owner_client", "of_user", "of_client", "action", "hit", "throttle_ms", "times"
    )
    of_level = F.when(F.col("owner_client").isNull(), F.col("of_user")).otherwise(F.col("of_client"))
    clients = joined.select("*", F.lit(None).cast("string").alias("topic"), of_level.alias("of_level"))
    return [*found, _held_back(clients)]


def _of_tenants(spark: SparkSession, told: DataFrame, quotas: QuotaFile) -> DataFrame:
    """Decisions by the tenant of who asked."""
    members = tenants(spark, told.select("principal").distinct(), quotas)
    limits = [(name, kind) for name, one in quotas.tenants.items() for kind in one.rates]
    limited = F.broadcast(local_frame(spark, limits, "tenant string, kind string"))
    nobody = [F.lit(None).cast("string").alias(name) for name in ("owner_user", "owner_client")]
    owned = told.join(members, on="principal", how="inner").join(limited, on=["tenant", "kind"], how="inner")
    kind = F.concat(F.lit(of_tenants("")), "kind").alias("kind")
    rest = ("at", "action", "hit", "throttle_ms", "times", F.col("of_tenant").alias("of_level"))
    return owned.select(kind, *nobody, F.col("tenant").alias("topic"), *rest)


def _held_back(told: DataFrame) -> DataFrame:
    return told.groupBy(*WHO).agg(
        _times("throttle").alias("throttled"),
        (F.sum(F.when(F.col("action") == "throttle", F.col("throttle_ms")).otherwise(0)) / 1000).alias("throttled_told"),
        _times("refuse").alias("refused"),
        _times("hold").alias("held"),
        F.count_distinct("at").alias("hit_intervals"),
        F.max(F.when(F.col("of_level"), F.col("hit"))).alias("hit_limit"),
    )


def _times(action: str) -> Column:
    return F.sum(F.when(F.col("action") == action, F.col("times")).otherwise(0))
