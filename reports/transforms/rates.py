"""Rates: for how long each principal, client id and topic had which rate, from which percentiles of any period can be computed.

In: good lines, each once. Out: `rates`, a histogram for each day. Histograms of days add up, which percentiles do not. Bins
are an eighth of a doubling wide, so that a percentile is right to within 4.5 %; sums and peaks are exact.
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


def _of_api(api: str, value: str) -> Column:
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
        _of_api("Produce", "request_bytes").alias("produced"),
        _of_api("Fetch", "response_bytes").alias("fetched"),
    )
    clients = _sums(requests, "principal", "client_id")
    topics = usage.where(F.col("topic").isNotNull()).select(
        start, "topic", _of_api("Produce", "record_bytes").alias("produced"), _of_api("Fetch", "record_bytes").alias("fetched")
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


def _sums(rows: DataFrame, *keys: str) -> DataFrame:
    return rows.groupBy("start", *keys).agg(*[F.sum(name).alias(name) for name in DIRECTIONS])


def _scoped(scope: str, rows: DataFrame) -> DataFrame:
    keys: Sequence[str] = ("principal", "client_id", "topic")
    columns = [F.col(key) if key in rows.columns else F.lit(None).cast("string").alias(key) for key in keys]
    return rows.select("start", F.lit(scope).alias("scope"), *columns, *DIRECTIONS)
