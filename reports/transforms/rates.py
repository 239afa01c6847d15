"""Rates: for how long each principal, client id and topic had which rate, from which percentiles of any period can be computed.

In: good lines, each once. Out: `rates`, a histogram for each day; `percentiles` of it. A histogram of one day adds up with those of
others, which percentiles do not. Its bins are an eighth of a doubling wide, so that a percentile is right to within 4.5 %; sums and
peaks are exact.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start

STEPS = 8
"""Bins for each doubling of the rate."""
SCOPES = ("principal", "client", "topic")
DIRECTIONS = ("produced", "fetched")
ENTITY = ("scope", "principal", "client_id", "topic")
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def of_api(api: str, value: str) -> Column:
    """`value` where the row is about this API, else 0."""
    return F.when(F.col("api") == api, F.col(value)).otherwise(0)


def rates(lines: DataFrame, seconds: int) -> DataFrame:
    """Seconds at each rate, the rate averaged over buckets of `seconds`; time without traffic is left out.

    Out: `date`, `scope` (principal, client or topic), `principal`, `client_id`, `topic` (null where not of the scope), `direction`,
    `bin` (rates from 2^(bin/8) bytes per second on), `seconds`, `bytes`, `peak` (bytes per second, the highest).
    """
    usage = lines.where((F.col("type") == "usage") & F.col("api").isin("Produce", "Fetch"))
    start = bucket_start("start", seconds).alias("start")
    requests = usage.where(F.col("topic").isNull()).select(
        start,
        "principal",
        "client_id",
        of_api("Produce", "request_bytes").alias("produced"),
        of_api("Fetch", "response_bytes").alias("fetched"),
    )
    clients = _sums(requests, "principal", "client_id")
    topics = usage.where(F.col("topic").isNotNull()).select(
        start, "topic", of_api("Produce", "record_bytes").alias("produced"), of_api("Fetch", "record_bytes").alias("fetched")
    )
    every = _scoped("client", clients).unionByName(_scoped("principal", _sums(clients, "principal")))
    every = every.unionByName(_scoped("topic", _sums(topics, "topic")))
    long = every.select("start", *ENTITY, F.expr("stack(2, 'produced', produced, 'fetched', fetched) as (direction, bytes)"))
    rate = F.col("bytes") / F.lit(seconds)
    binned = long.where(F.col("bytes") > 0).select(
        F.to_date("start").alias("date"),
        *ENTITY,
        "direction",
        F.floor(F.log2(rate) * STEPS).cast("int").alias("bin"),
        "bytes",
        rate.alias("rate"),
    )
    return binned.groupBy("date", *ENTITY, "direction", "bin").agg(
        (F.count("*") * seconds).alias("seconds"), F.sum("bytes").alias("bytes"), F.max("rate").alias("peak")
    )


def percentiles(histogram: DataFrame) -> DataFrame:
    """For each entity: `produced_p50`, `_p95`, `_p99`, `_peak`, and the same of `fetched`, bytes per second, null without
    traffic."""
    bins = histogram.groupBy(*ENTITY, "direction", "bin").agg(F.sum("seconds").alias("seconds"), F.max("peak").alias("peak"))
    # The bins of one entity and direction are few (at most some 300), so they are looked at as one array.
    ordered = F.sort_array(F.collect_list(F.struct("bin", "seconds")))
    rows = bins.groupBy(*ENTITY, "direction").agg(
        ordered.alias("bins"), F.sum("seconds").alias("total"), F.max("peak").alias("peak")
    )
    by_direction = rows.select(*ENTITY, "direction", *[_quantile(q).alias(name) for name, q in _QUANTILES.items()], "peak")
    wide = [
        F.max(F.when(F.col("direction") == direction, F.col(name))).alias(f"{direction}_{name}")
        for direction in DIRECTIONS
        for name in (*_QUANTILES, "peak")
    ]
    return by_direction.groupBy(*ENTITY).agg(*wide)


def _quantile(q: float) -> Column:
    """The rate that is not exceeded for the part `q` of the time: the middle of its bin, and never above the peak."""
    start = F.struct(F.lit(0).cast("bigint").alias("sum"), F.lit(None).cast("int").alias("found"))

    def step(state: Column, item: Column) -> Column:
        summed = state["sum"] + item["seconds"]
        reached = state["found"].isNull() & (summed >= F.col("total") * F.lit(q))
        return F.struct(summed.alias("sum"), F.when(reached, item["bin"]).otherwise(state["found"]).alias("found"))

    found = F.aggregate("bins", start, step, lambda state: state["found"])
    return F.least(F.pow(F.lit(2.0), (found + 0.5) / STEPS), F.col("peak"))


def _sums(rows: DataFrame, *keys: str) -> DataFrame:
    return rows.groupBy("start", *keys).agg(*[F.sum(name).alias(name) for name in DIRECTIONS])


def _scoped(scope: str, rows: DataFrame) -> DataFrame:
    keys: Sequence[str] = ("principal", "client_id", "topic")
    columns = [F.col(key) if key in rows.columns else F.lit(None).cast("string").alias(key) for key in keys]
    return rows.select("start", F.lit(scope).alias("scope"), *columns, *DIRECTIONS)
