"""Latencies: how long requests took, by what took the time, broker and API, over time.

In: good lines, each once; their quantiles are of one interval of one proxy. Out: `latencies`. Quantiles of several intervals cannot
be had from theirs: there is their mean, weighted by requests, and the highest.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated

_KEYS = ("part", "broker_id", "api")


def latencies(lines: DataFrame, seconds: int) -> DataFrame:
    """For each bucket of `seconds`, part, broker and API: `requests`, `p50_ms` and `p99_ms` (means of intervals),
    `worst_p99_ms` (of one interval) and `max_ms`."""
    rows = lines.where(F.col("type") == "latency").withColumn("start", bucket_start("start", seconds))
    return dated(_together(rows, "start", worst=F.max("p99_ms")), seconds)


def _together(rows: DataFrame, *keys: str, worst: Column) -> DataFrame:
    means = [(F.sum(F.col(name) * F.col("requests")) / F.sum("requests")).alias(name) for name in ("p50_ms", "p99_ms")]
    sums = rows.where(F.col("requests") > 0).groupBy(*keys, *_KEYS)
    return sums.agg(F.sum("requests").alias("requests"), *means, worst.alias("worst_p99_ms"), F.max("max_ms").alias("max_ms"))
