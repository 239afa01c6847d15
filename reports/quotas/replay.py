"""Replay: the traffic of the logs against limits. In: good lines, each once, and a `QuotaFile`. Out: one row for each owner of a
limit: how much of it was used, and what the limit would have done.

The traffic is what passed: where other limits held somebody back, that one would have sent more. A limit is replayed as the
proxy enforces it: a rate lets 10 s of itself pass at once, what comes beyond is a debt that is paid at the rate, and while there is
a debt its owner is throttled. Who sends again as soon as it may stays at the limit, and counts as throttled for as long as that.

Limits of what there is at a time (topics, partitions, stored bytes) are held against what the logs say that tenants, users and
topics had: what is there stays, and what would come on top of the limit is refused. So what had not passed at the end is growth
alone, and an owner counts as throttled for as long as it had more than the limit, as nothing could be added then.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from advice.use import LEVEL_SECONDS
from reports.arrow_rows import local_frame
from reports.quotas.catalogue import KEYS, TOPIC_RATES, TOPIC_STORED, Measure
from reports.quotas.holders import holders, tenants
from reports.quotas.limits import LEVELS, QuotaFile, of_tenants
from reports.tables import Lengths
from reports.transforms.buckets import interval_bucket

BURST_SECONDS = 10
"""Seconds of a rate that pass at once, as in the proxy."""
_AT_LIMIT = 0.05
"""The part of a burst by which somebody may be below a limit and count as at it: requests do not end with the interval."""
_SHORT = 0.1
"""The part of a burst that passes in a short interval, at most."""
NEAR = 0.8
"""The part of a limit from which on somebody is near it."""
_NO_RATES = {"producer_ids", *LEVELS}
WHO = ("kind", "owner_user", "owner_client", "topic")
"""Whose limit a row is about. The kinds of tenants have the name of the tenant in `topic`, as ledgers do."""
SCHEMA = (
    "kind string, owner_user string, owner_client string, topic string, limit double, burst double, p50 double, p95 double, "
    "p99 double, peak double, total double, seconds bigint, seconds_over bigint, seconds_throttled double, longest_wait double, "
    "waiting double, first_over timestamp, last_over timestamp, times bigint"
)
"""Of the outcome. Figures are in the quota's unit per second; `total` and `waiting` in the unit; `waiting` is what had not passed
at the end; `seconds` is how long there was traffic, `seconds_over` how long its average was above the limit, `times` how
often its throttling began."""


def replay(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, lengths: Lengths) -> DataFrame:
    """Every limit of `quotas` against the traffic; see SCHEMA. Queues are walked by the logs' intervals, rates are averages over
    `lengths.rates`. Limits without traffic have no row."""
    seconds = lengths.rates
    found = local_frame(spark, [], SCHEMA)
    came = demand(spark, lines, quotas, lengths.interval)
    if came is not None:
        found = found.unionByName(_queued(came, lengths))
    if any(limit.kind == "producer_ids" for limit in quotas.limits):
        found = found.unionByName(_ids(spark, lines, quotas, seconds))
    if quotas.topics_total is not None or quotas.topics:
        found = found.unionByName(_topics(lines, quotas, seconds))
    had = levels(spark, lines, quotas)
    return found if had is None else found.unionByName(_held(had))


def demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame | None:
    """What came for each owner of a rate in each bucket: WHO, `limit`, `burst`, `at` (seconds since the epoch) and `demand`, above
    0. None without a rate."""
    found = []
    if any(limit.kind not in _NO_RATES for limit in quotas.limits):
        found.append(_demand(spark, lines, quotas, seconds))
    if any(quotas.topic_rates.values()):
        found.append(_topic_demand(spark, lines, quotas, seconds))
    if any(one.rates for one in quotas.tenants.values()):
        found.append(_tenant_demand(spark, lines, quotas, seconds))
    return reduce(DataFrame.unionByName, found) if found else None


def _demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """What came for each owner: `at` (seconds since the epoch), `demand`, above 0."""
    kinds = _measures(limit.kind for limit in quotas.limits)
    long = _came(lines, kinds, ("principal", "client_id"), seconds)
    # Of the lines themselves: of their sums, Spark would reckon these a second time.
    pairs = lines.where(F.col("type") == "usage").select("principal", "client_id").distinct()
    owned = holders(spark, pairs, [limit for limit in quotas.limits if limit.kind in kinds])
    same = (
        (long["principal"] == owned["principal"])
        & long["client_id"].eqNullSafe(owned["client_id"])
        & (long["_kind"] == owned["kind"])
    )
    joined = long.join(owned, on=same, how="inner")
    return joined.groupBy(
        "kind", "owner_user", "owner_client", F.lit(None).cast("string").alias("topic"), "limit", "burst", "at"
    ).agg(F.sum("demand").cast("double").alias("demand"))


def _tenant_demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """The same for each tenant, of all its users together."""
    kinds = _measures(kind for one in quotas.tenants.values() for kind in one.rates)
    limits = [(name, kind, of_tenants(kind), rate) for name, one in quotas.tenants.items() for kind, rate in one.rates.items()]
    rates = F.broadcast(local_frame(spark, limits, "tenant string, _kind string, kind string, limit double"))
    principals = lines.where(F.col("type") == "usage").select("principal").distinct()
    came = _came(lines, kinds, ("principal",), seconds).join(tenants(spark, principals, quotas), on="principal", how="inner")
    nobody = [F.lit(None).cast("string").alias(name) for name in ("owner_user", "owner_client")]
    owned = came.join(rates, on=["tenant", "_kind"], how="inner")
    return owned.groupBy("kind", *nobody, F.col("tenant").alias("topic"), "limit", F.lit(0.0).alias("burst"), "at").agg(
        F.sum("demand").cast("double").alias("demand")
    )


def levels(spark: SparkSession, lines: DataFrame, quotas: QuotaFile) -> DataFrame | None:
    """What each owner of a limit of what there is at a time had: WHO, `limit`, `at` (seconds since the epoch, of LEVEL_SECONDS) and
    `level`, the most that one proxy saw. None without a limit."""
    limits = [limit for limit in quotas.limits if limit.kind in LEVELS]
    of_groups = [(name, of_tenants(kind), limit) for name, one in quotas.tenants.items() for kind, limit in one.levels.items()]
    of_topics = [(topic, TOPIC_STORED, limit) for topic, limit in quotas.topics_stored.items()]
    found = []
    if limits:
        had = _had(lines, {kind: LEVELS[kind] for kind in {limit.kind for limit in limits}}, "user")
        pairs = had.select(F.col("name").alias("principal"), F.lit(None).cast("string").alias("client_id")).distinct()
        owned = holders(spark, pairs, limits).select("principal", F.col("kind").alias("_of"), "owner_user", "owner_client", "limit")
        joined = had.join(owned, on=(had["name"] == owned["principal"]) & (had["kind"] == owned["_of"]), how="inner")
        found.append(joined.withColumn("topic", F.lit(None).cast("string")))
    for rows, name, fields in (
        (of_groups, "tenant", {of_tenants(kind): level for kind, level in LEVELS.items()}),
        (of_topics, "topic", {TOPIC_STORED: "stored_bytes"}),
    ):
        if rows:
            limited = F.broadcast(local_frame(spark, rows, "name string, kind string, limit double"))
            wanted = {kind: field for kind, field in fields.items() if any(kind == row[1] for row in rows)}
            nobody = {one: F.lit(None).cast("string") for one in ("owner_user", "owner_client")}
            joined = _had(lines, wanted, name).join(limited, on=["name", "kind"], how="inner")
            found.append(joined.withColumns({**nobody, "topic": F.col("name")}))
    return reduce(DataFrame.unionByName, [one.select(*WHO, "limit", "at", "level") for one in found]) if found else None


def _had(lines: DataFrame, fields: Mapping[str, str], name: str) -> DataFrame:
    """`name`, `kind`, `at`, `level` of those whose name is in a column of lines `owned`; `fields`: kind -> field."""
    owned = lines.where((F.col("type") == "owned") & F.col(name).isNotNull())
    stack = ", ".join(f"'{kind}', {field}" for kind, field in fields.items())
    columns = [interval_bucket(LEVEL_SECONDS).alias("at"), F.col(name).alias("name")]
    each = owned.select(*columns, F.expr(f"stack({len(fields)}, {stack}) as (kind, level)")).where("level is not null")
    return each.groupBy("name", "kind", "at").agg(F.max("level").cast("double").alias("level"))


def _held(had: DataFrame) -> DataFrame:
    """The outcome for limits of what there is at a time."""
    zero = F.lit(0.0)
    looks = F.array_sort(F.collect_list(F.struct("at", "level")))
    start = F.struct(
        zero.alias("had"),
        F.lit(None).cast("double").alias("before"),
        zero.alias("refused"),
        F.lit(0).alias("times"),
        F.first("limit").alias("limit"),
    )
    rows = had.withColumn("demand", F.col("level") * LEVEL_SECONDS).withColumn("burst", zero)
    walk = F.aggregate(looks, start, _look)
    over = F.col("level") > F.col("limit")
    throttled = F.count_if(over) * F.lit(LEVEL_SECONDS)
    return _told(rows, LEVEL_SECONDS, throttled, zero, walk["refused"], walk["times"]).withColumn("total", F.col("peak"))


def _look(state: Column, look: Column) -> Column:
    """One look. `had`: what there would be under the limit; `before`: what the look before saw, null before the first."""
    level, limit = look["level"], state["limit"]
    had = F.when(state["before"].isNull(), level).otherwise(state["had"])
    more = level - F.coalesce(state["before"], level)
    now = F.when(more > 0, F.least(had + more, F.greatest(had, limit))).otherwise(F.greatest(had + more, F.lit(0.0)))
    begins = (level > limit) & (F.coalesce(state["before"], F.lit(0.0)) <= limit)
    return F.struct(
        now.alias("had"),
        level.alias("before"),
        (state["refused"] + F.greatest(had + more - now, F.lit(0.0))).alias("refused"),
        (state["times"] + F.when(begins, 1).otherwise(0)).alias("times"),
        limit.alias("limit"),
    )


def _measures(kinds: Iterable[str]) -> dict[str, Measure]:
    """What these kinds of users and client ids measure, of those that logs tell of."""
    wanted = set(kinds)
    return {key.kind: key.measure for key in KEYS if key.measure is not None and key.kind in wanted}


def _came(lines: DataFrame, measures: Mapping[str, Measure], by: Sequence[str], seconds: int) -> DataFrame:
    """What came in each bucket: `at`, the columns of `by`, `_kind`, `demand` above 0."""
    figures = [_measured(measure).alias(kind) for kind, measure in measures.items()]
    used = lines.where(F.col("type") == "usage").select(interval_bucket(seconds).alias("at"), *by, *figures)
    sums = used.groupBy("at", *by).agg(*[F.sum(kind).alias(kind) for kind in measures])
    stack = ", ".join(f"'{kind}', {kind}" for kind in measures)
    return sums.select("at", *by, F.expr(f"stack({len(measures)}, {stack}) as (_kind, demand)")).where("demand > 0")


def _topic_demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """The same for each topic that has a rate of its own, of everybody together."""
    limits = [(kind, topic, rate) for kind, rates in quotas.topic_rates.items() for topic, rate in rates.items()]
    rates = F.broadcast(local_frame(spark, limits, "kind string, topic string, limit double"))
    measured = [F.when(_measured(one.measure) > 0, F.lit(one.kind)) for one in TOPIC_RATES]
    rows = lines.where((F.col("type") == "usage") & F.col("topic").isNotNull()).select(
        interval_bucket(seconds).alias("at"),
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


def _queued(demand: DataFrame, lengths: Lengths) -> DataFrame:
    own = demand.withColumn("burst", F.when(F.col("burst") > 0, F.col("burst")).otherwise(F.col("limit") * BURST_SECONDS))
    each = own.groupBy(*WHO, "limit", "burst", (F.col("at") - F.col("at") % lengths.rates).alias("at")).agg(
        F.sum("demand").alias("demand"), F.collect_list(F.struct("at", "demand")).alias("parts")
    )
    zero = F.lit(0.0)
    start = F.struct(
        (-F.first("burst")).alias("level"),
        F.lit(0.0).alias("end"),
        zero.alias("throttled"),
        zero.alias("longest"),
        F.lit(0).alias("times"),
        F.first("limit").alias("limit"),
        F.first("burst").alias("burst"),
    )
    parts = F.array_sort(F.flatten(F.collect_list("parts")))
    walk = F.aggregate(parts, start, lambda state, part: _step(state, part, float(lengths.interval)))
    rest = F.greatest(walk["level"], zero)
    return _told(each, lengths.rates, walk["throttled"], walk["longest"] / walk["limit"], rest, walk["times"])


def _step(state: Column, part: Column, length: float) -> Column:
    """One interval. `level` is what came beyond the burst less what could go: above 0 it is a debt, at -burst nothing was used.

    Who waits as told is never far above 0, and at 0 as long as there is something to send. When in the interval it came is not
    known: at its start it would be gone soonest, but it cannot have come sooner than who waits as told may send it. In an interval
    longer than the burst takes it came evenly.
    """
    limit, burst, zero = state["limit"], state["burst"], F.lit(0.0)
    passes = limit * length
    gap = F.greatest(part["at"] - state["end"], zero)
    before = F.greatest(state["level"] - limit * gap, -burst)
    sooner = F.greatest(before + part["demand"] - passes, -burst)
    last = part["demand"] * F.least(burst / passes, F.lit(1.0))
    later = F.least(F.greatest(before - passes, -burst) + last, zero)
    level = F.greatest(sooner, later)
    # What came in a short interval is reckoned up to an interval too soon, so that its owner seems to have that much left.
    near = -F.greatest(burst * _AT_LIMIT, F.when(passes <= burst * _SHORT, passes).otherwise(zero))
    begin = F.when((before >= near) & (before < 0), zero).otherwise(before)
    at_limit = (before >= near) | (level >= near)
    throttled = F.when(at_limit, F.least(F.greatest((begin + part["demand"]) / limit, zero), F.lit(length))).otherwise(zero)
    # What was left of a debt when the interval before ended was paid in the time without traffic.
    # Who is still at the limit after it has waited: no request came, as it was told to wait.
    goes_on = (state["throttled"] > 0) & (state["level"] >= near) & (before >= near)
    paid = F.when(goes_on, gap).otherwise(F.least(F.greatest(state["level"], zero) / limit, gap))
    begins = (throttled > 0) & ~goes_on
    return F.struct(
        level.alias("level"),
        (part["at"] + F.lit(length)).alias("end"),
        (state["throttled"] + throttled + paid).alias("throttled"),
        F.greatest(state["longest"], level).alias("longest"),
        (state["times"] + F.when(begins, 1).otherwise(0)).alias("times"),
        limit.alias("limit"),
        burst.alias("burst"),
    )


def _told(rows: DataFrame, seconds: int, throttled: Column, wait: Column, waiting: Column, times: Column) -> DataFrame:
    rate, length = F.col("demand") / F.lit(float(seconds)), F.lit(seconds)
    over = rate > F.col("limit")
    at = F.timestamp_seconds("at")
    quantiles = F.percentile_approx(rate, [0.5, 0.95, 0.99])
    sums = rows.groupBy(*WHO).agg(
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
        times.cast("bigint").alias("times"),
    )
    p = [F.col("quantiles")[index].alias(name) for index, name in enumerate(("p50", "p95", "p99"))]
    last = ("peak", "total", "seconds", "seconds_over", "seconds_throttled", "longest_wait", "waiting")
    return sums.select(*WHO, "limit", "burst", *p, *last, "first_over", "last_over", "times")


def _ids(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """New producer ids within a window: over the limit every Produce of the user is throttled."""
    rows = lines.where(F.col("type") == "producer_ids").select(
        interval_bucket(seconds).alias("at"),
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
    return _told(named, seconds, F.count_if(over) * F.lit(seconds), F.lit(0.0), F.lit(0.0), F.count_if(over)).withColumn(
        "total", F.col("peak")
    )


def _topics(lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """Bytes into topics: a topic over its threshold is refused while all together are over the total. Without a threshold of its
    own a topic has an equal share of what the others leave of the total."""
    rows = lines.where((F.col("type") == "usage") & F.col("topic").isNotNull() & (F.col("api") == "Produce")).select(
        interval_bucket(seconds).alias("at"), "topic", "record_bytes"
    )
    sums = rows.groupBy("at", "topic").agg(F.sum("record_bytes").cast("double").alias("demand"))
    total = quotas.topics_total if quotas.topics_total is not None else 0.0
    own = quotas.topics or {}
    named = F.broadcast(local_frame(sums.sparkSession, list(own.items()), "topic string, own double"))
    both = sums.join(named, on="topic", how="left")
    others = both.where("own is null").agg(F.count_distinct("topic").alias("others"))
    rest = F.greatest(F.lit(total - sum(own.values())), F.lit(0.0)) / F.greatest("others", F.lit(1))
    limit = F.coalesce("own", F.when(F.lit(quotas.topics_total is not None), rest))
    limited = both.join(F.broadcast(others), how="cross").withColumn("limit", limit).where(F.col("limit") > 0)
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
    rest = F.sum(F.when(refused, excess).otherwise(0.0))
    return _told(marked, seconds, F.count_if(refused) * F.lit(seconds), F.lit(0.0), rest, F.count_if(refused))
