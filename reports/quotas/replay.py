"""Replay: the traffic of the logs against limits. In: good lines, each once, and a `QuotaFile`. Out: one row for each owner of a
limit: how much of it was used, and what the limit would have done.

The traffic is what passed: where other limits held somebody back, that one would have sent more. A limit is replayed as a queue
that empties at the limit's rate: what comes faster waits, and while something waits its owner is throttled. The queue at any time
is what came so far less what could go, less the lowest that this ever was: a running sum and a running minimum, so that no row
needs the one before it. Within a bucket traffic is taken for even, so that shorter bursts are not seen.
"""

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import WindowSpec

from reports.quotas.catalogue import KEYS, TOPIC_RATES, Measure
from reports.quotas.file import QuotaFile
from reports.quotas.holders import holders
from reports.transforms.buckets import bucket_start

NEAR = 0.8
"""The part of a limit from which on somebody is near it."""
_WHO = ("kind", "owner_user", "owner_client", "topic")
SCHEMA = (
    "kind string, owner_user string, owner_client string, topic string, limit double, burst double, p50 double, p95 double, "
    "p99 double, peak double, total double, seconds bigint, seconds_over bigint, seconds_throttled double, longest_wait double, "
    "waiting double, first_over timestamp, last_over timestamp"
)
"""Of the outcome. Figures are in the quota's unit per second; `total` and `waiting` in the unit; `waiting` is what had not passed
at the end; `seconds` is how long there was traffic, `seconds_over` how long its average was above the limit."""


def replay(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """Every limit of `quotas` against the traffic, in buckets of `seconds`; see SCHEMA. Limits without traffic have no
    row."""
    found = spark.createDataFrame([], SCHEMA)
    rates = [limit for limit in quotas.limits if limit.kind != "producer_ids"]
    if rates:
        found = found.unionByName(_queued(_demand(spark, lines, quotas, seconds), seconds))
    if any(limit.kind == "producer_ids" for limit in quotas.limits):
        found = found.unionByName(_ids(spark, lines, quotas, seconds))
    if any(quotas.topic_rates.values()):
        found = found.unionByName(_queued(_topic_demand(spark, lines, quotas, seconds), seconds))
    if quotas.topics_total is not None or quotas.topics:
        found = found.unionByName(_topics(lines, quotas, seconds))
    return found


def _demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """What came for each owner: `at` (seconds since the epoch), `demand`, above 0."""
    measures = {key.kind: key.measure for key in KEYS if key.measure is not None}
    kinds = tuple(measures)
    used = lines.where(F.col("type") == "usage").select(
        F.unix_seconds(bucket_start("start", seconds)).alias("at"),
        "principal",
        "client_id",
        *[_measured(measure).alias(kind) for kind, measure in measures.items()],
    )
    sums = used.groupBy("at", "principal", "client_id").agg(*[F.sum(kind).alias(kind) for kind in kinds])
    pairs = sums.select("principal", "client_id").distinct()
    owned = holders(spark, pairs, [limit for limit in quotas.limits if limit.kind in kinds])
    stack = ", ".join(f"'{kind}', {kind}" for kind in kinds)
    long = sums.select("at", "principal", "client_id", F.expr(f"stack({len(kinds)}, {stack}) as (_kind, demand)")).where(
        "demand > 0"
    )
    same = (
        (long["principal"] == owned["principal"])
        & long["client_id"].eqNullSafe(owned["client_id"])
        & (long["_kind"] == owned["kind"])
    )
    joined = long.join(owned, on=same, how="inner")
    return joined.groupBy(
        "kind", "owner_user", "owner_client", F.lit(None).cast("string").alias("topic"), "limit", "burst", "at"
    ).agg(F.sum("demand").cast("double").alias("demand"))


def _topic_demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """The same for each topic that has a rate of its own, of everybody together."""
    limits = [(kind, topic, rate) for kind, rates in quotas.topic_rates.items() for topic, rate in rates.items()]
    rates = F.broadcast(spark.createDataFrame(limits, "kind string, topic string, limit double"))
    measured = [F.when(_measured(one.measure) > 0, F.lit(one.kind)) for one in TOPIC_RATES]
    rows = lines.where((F.col("type") == "usage") & F.col("topic").isNotNull()).select(
        F.unix_seconds(bucket_start("start", seconds)).alias("at"),
        "topic",
        F.coalesce(*measured).alias("kind"),
        "record_bytes",
    )
    nobody = [F.lit(None).cast("string").alias(name) for name in ("owner_user", "owner_client")]
    sums = rows.groupBy("at", "topic", "kind").agg(F.sum("record_bytes").cast("double").alias("demand"))
    return sums.join(rates, on=["kind", "topic"], how="inner").select(
        "kind", *nobody, "topic", "limit", F.lit(0.0).alias("burst"), "at", "demand"
    )


def _measured(measure: Measure) -> Column:
    """What a line counts towards a limit, 0 where the limit is about other lines."""
    mine = F.col("topic").isNotNull() if measure.by_topic else F.col("topic").isNull()
    if measure.apis:
        mine &= F.col("api_key").isin(*measure.apis)
    return F.when(mine, F.col(measure.field)).otherwise(0)


def _queued(demand: DataFrame, seconds: int) -> DataFrame:
    whose = Window.partitionBy(*_WHO)
    so_far = whose.orderBy("at")
    limit, length = F.col("limit"), F.lit(float(seconds))
    origin = demand.withColumn("origin", F.min("at").over(whose)).withColumn("came", F.sum("demand").over(so_far))
    end = F.col("came") - limit * (F.col("at") + length - F.col("origin"))
    start = F.col("came") - F.col("demand") - limit * (F.col("at") - F.col("origin"))
    walk = origin.select("*", start.alias("before"), end.alias("after"))
    lowest = F.least(F.lit(0.0), F.min(F.least("before", "after")).over(so_far))
    queue = walk.withColumn("queue", F.greatest(F.col("after") - lowest - F.col("burst"), F.lit(0.0)))
    gap = F.lead("at").over(so_far) - F.col("at") - length
    drain = F.col("queue") / limit
    went_on = F.coalesce(F.least(drain, gap), F.lit(0.0))  # what is after the logs does not count
    busy = (F.col("queue") > 0) | (
        F.coalesce(F.lag("queue").over(so_far), F.lit(0.0)) > limit * F.coalesce(_since(so_far, length), F.lit(0.0))
    )
    timed = queue.withColumn("throttled", F.when(busy, length + went_on).otherwise(0.0))
    return _told(timed, seconds, F.sum("throttled"), F.max("queue") / F.first("limit"), F.max_by("queue", "at"))


def _since(so_far: WindowSpec, length: Column) -> Column:
    """Seconds from the end of the bucket before to the start of this one."""
    return F.col("at") - F.lag("at").over(so_far) - length


def _told(rows: DataFrame, seconds: int, throttled: Column, wait: Column, waiting: Column) -> DataFrame:
    rate, length = F.col("demand") / F.lit(float(seconds)), F.lit(seconds)
    over = rate > F.col("limit")
    at = F.timestamp_seconds("at")
    quantiles = F.percentile_approx(rate, [0.5, 0.95, 0.99])
    sums = rows.groupBy(*_WHO).agg(
        F.first("limit").alias("limit"),
        F.first("burst").alias("burst"),
        quantiles.alias("quantiles"),
        F.max(rate).alias("peak"),
        F.sum("demand").alias("total"),
        (F.count("*") * length).alias("seconds"),
        (F.count_if(over) * length).alias("seconds_over"),
        throttled.cast("double").alias("seconds_throttled"),
        wait.cast("double").alias("longest_wait"),
        waiting.cast("double").alias("waiting"),
        F.min(F.when(over, at)).alias("first_over"),
        F.max(F.when(over, at)).alias("last_over"),
    )
    p = [F.col("quantiles")[index].alias(name) for index, name in enumerate(("p50", "p95", "p99"))]
    last = ("peak", "total", "seconds", "seconds_over", "seconds_throttled", "longest_wait", "waiting", "first_over", "last_over")
    return sums.select(*_WHO, "limit", "burst", *p, *last)


def _ids(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """New producer ids within a window: over the limit every Produce of the user is throttled."""
    rows = lines.where(F.col("type") == "producer_ids").select(
        F.unix_seconds(bucket_start("start", seconds)).alias("at"),
        "user",
        "proxy",
        F.col("counted").cast("double").alias("counted"),
    )
    each = rows.groupBy("at", "user", "proxy").agg(F.max("counted").alias("counted"))
    users = each.groupBy("at", "user").agg((F.sum("counted") * F.lit(seconds)).alias("demand"))  # a level, not a sum over time
    pairs = users.select(F.col("user").alias("principal"), F.lit(None).cast("string").alias("client_id")).distinct()
    owned = holders(spark, pairs, [limit for limit in quotas.limits if limit.kind == "producer_ids"])
    joined = users.join(owned.drop("client_id"), on=users["user"] == owned["principal"], how="inner")
    over = F.col("demand") / F.lit(seconds) > F.col("limit")
    named = joined.withColumn("topic", F.lit(None).cast("string"))
    return _told(named, seconds, F.count_if(over) * F.lit(seconds), F.lit(0.0), F.lit(0.0)).withColumn("total", F.col("peak"))


def _topics(lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """Bytes into topics: a topic over its threshold is refused while all together are over the total. Without a threshold of its
    own a topic has an equal share of what the others leave of the total."""
    rows = lines.where((F.col("type") == "usage") & F.col("topic").isNotNull() & (F.col("api") == "Produce")).select(
        F.unix_seconds(bucket_start("start", seconds)).alias("at"), "topic", "record_bytes"
    )
    sums = rows.groupBy("at", "topic").agg(F.sum("record_bytes").cast("double").alias("demand"))
    total = quotas.topics_total if quotas.topics_total is not None else 0.0
    own = quotas.topics or {}
    named = F.create_map(*[F.lit(item) for pair in own.items() for item in pair]) if own else None
    others = sums.where(~F.col("topic").isin(list(own))).agg(F.count_distinct("topic").alias("others"))
    rest = F.greatest(F.lit(total - sum(own.values())), F.lit(0.0)) / F.greatest("others", F.lit(1))
    share = F.when(F.lit(quotas.topics_total is not None), rest)
    limit = F.coalesce(named[F.col("topic")], share) if named is not None else share
    limited = sums.join(F.broadcast(others), how="cross").withColumn("limit", limit).where(F.col("limit") > 0)
    together = F.sum("demand").over(Window.partitionBy("at")) / F.lit(float(seconds))
    marked = limited.select(
        F.lit("bytes_in").alias("kind"),
        *[F.lit(None).cast("string").alias(name) for name in ("owner_user", "owner_client")],
        "topic",
        "limit",
        F.lit(0.0).alias("burst"),
        "at",
        "demand",
        together.alias("together"),
    )
    excess = F.col("demand") - F.col("limit") * F.lit(seconds)
    refused = (excess > 0) & (F.col("together") > F.lit(total))
    return _told(marked, seconds, F.count_if(refused) * F.lit(seconds), F.lit(0.0), F.sum(F.when(refused, excess).otherwise(0.0)))
