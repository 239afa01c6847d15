"""What owners of limits want: what they used in the busy intervals of the logs, and how the limits in force held them back.

In: good lines, each once, the decisions among them, and a `QuotaFile`. Out: the columns of COLUMNS for each owner, of which
`advice.limits` makes a suggestion. `kafka-quota-proxy quotas suggest` reads the same lines in its own way
(`proxy/operate/suggest.py`), and a test holds both to the same outcome.

Who asked decides whose limit it was, as with traffic: a limit of a tenant holds back the user who asked, too, and one of a user its
tenant. Limits of what there is at a time are those of whom the decision names, as topics are not of who asks.
"""

from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, TimestampType

from advice.use import LEVEL_SECONDS, PERCENTILE
from reports.arrow_rows import local_frame
from reports.quotas.catalogue import TOPIC_STORED
from reports.quotas.holders import holders, tenants
from reports.quotas.limits import LEVELS, QuotaFile, of_tenants
from reports.quotas.replay import SCHEMA, WHO, demand, levels
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
    used, had = demand(spark, lines, quotas, interval), levels(spark, lines, quotas)
    histories = [] if used is None else [_used(used, interval)]
    histories += [] if had is None else [_most(had)]
    parts = [replayed, *histories, *_hits(spark, enforced, quotas, interval)]
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


def _most(had: DataFrame) -> DataFrame:
    most = F.max("level")
    return had.groupBy(*WHO).agg(F.count("*").alias("intervals"), most.alias("used"), most.alias("largest"))


def _hits(spark: SparkSession, enforced: DataFrame, quotas: QuotaFile, interval: int) -> list[DataFrame]:
    """Decisions of users and clients, those of topics, and those of tenants."""
    times = (F.col("left_out") + 1).alias("times")
    levels = [*LEVELS, *map(of_tenants, LEVELS), TOPIC_STORED]
    stored = [kind for kind in levels if kind.endswith("stored_bytes")]
    looks, intervals = (F.unix_seconds(bucket_start("at", seconds)) for seconds in (LEVEL_SECONDS, interval))
    told = enforced.select(
        F.when(F.col("quota").isin(levels), looks).otherwise(intervals).alias("at"),
        "principal",
        "client_id",
        F.regexp_replace("quota", f"^{of_tenants('')}", "").alias("kind"),
        F.col("quota").startswith(of_tenants("")).alias("of_tenant"),
        F.col("entity_user").isNotNull().alias("of_user"),
        F.col("entity_client_id").isNotNull().alias("of_client"),
        "entity_user",
        "entity_tenant",
        "topics",
        "action",
        # Who is slowed down while a budget fills is so by a rate: that is not the limit of the budget.
        F.when(~(F.col("quota").isin(stored) & (F.col("action") == "throttle")), F.col("limit")).alias("hit"),
        "throttle_ms",
        times,
    )
    nobody = [F.lit(None).cast("string").alias(name) for name in ("owner_user", "owner_client")]
    kinds = [kind for kind, limits in quotas.of_topics().items() if limits]
    kinds += ["bytes_in"] if quotas.topics or quotas.topics_total is not None else []
    named = told.where(F.col("kind").isin(kinds)).select("*", F.explode("topics").alias("topic"), *nobody)
    found = [_held_back(named.withColumn("of_level", F.expr("true")))]
    if any(one.rates for one in quotas.tenants.values()):
        found.append(_held_back(_of_tenants(spark, told, quotas)))
    found += _of_levels(spark, told, quotas)
    rates = [limit for limit in quotas.limits if limit.kind not in LEVELS]
    if not rates:
        return found
    pairs = told.select("principal", "client_id").distinct()
    owned = holders(spark, pairs, rates).drop("limit", "burst")
    same = [told[name].eqNullSafe(owned[name]) for name in _OWNED]
    joined = told.join(owned, on=same[0] & same[1] & same[2], how="inner").select(
        "at", owned["kind"], "owner_user", "owner_client", "of_user", "of_client", "action", "hit", "throttle_ms", "times"
    )
    of_level = F.when(F.col("owner_client").isNull(), F.col("of_user")).otherwise(F.col("of_client"))
    clients = joined.select("*", F.lit(None).cast("string").alias("topic"), of_level.alias("of_level"))
    return [*found, _held_back(clients)]


def _of_levels(spark: SparkSession, told: DataFrame, quotas: QuotaFile) -> list[DataFrame]:
    """Decisions by limits of what there is at a time, of users and of tenants."""
    found, nobody = [], F.lit(None).cast("string")
    columns = ("at", "action", "hit", "throttle_ms", "times", F.expr("true").alias("of_level"))
    limits = [limit for limit in quotas.limits if limit.kind in LEVELS]
    if limits:
        mine = told.where(F.col("kind").isin(list(LEVELS)) & F.col("of_user"))
        pairs = mine.select(F.col("entity_user").alias("principal"), nobody.alias("client_id")).distinct()
        owned = holders(spark, pairs, limits).select(F.col("principal").alias("entity_user"), "kind", "owner_user", "owner_client")
        joined = mine.join(owned, on=["entity_user", "kind"], how="inner")
        found.append(_held_back(joined.select("kind", "owner_user", "owner_client", nobody.alias("topic"), *columns)))
    rows = [(name, kind) for name, one in quotas.tenants.items() for kind in one.levels]
    if rows:
        limited = F.broadcast(local_frame(spark, rows, "entity_tenant string, kind string"))
        joined = told.where("of_tenant").join(limited, on=["entity_tenant", "kind"], how="inner")
        whose = (nobody.alias("owner_user"), nobody.alias("owner_client"), F.col("entity_tenant").alias("topic"))
        found.append(_held_back(joined.select(F.concat(F.lit(of_tenants("")), "kind").alias("kind"), *whose, *columns)))
    return found


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
