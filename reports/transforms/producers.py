"""Producer ids: how many were active, by user, over time.

In: good lines, each once. Out: `producer_ids`. Each proxy counts what passes it, and an id may pass several: the maximum of one
proxy is a lower bound, and the sum over proxies an upper one; both are there.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated


def producer_ids(lines: DataFrame, seconds: int) -> DataFrame:
    """For each bucket of `seconds` and user: `active` and `counted` (the maximum of one proxy), `active_all` (sum over
    proxies), `window_ms`, `limit` (the lowest)."""
    rows = lines.where(F.col("type") == "producer_ids").select(
        bucket_start("start", seconds).alias("start"), "user", "proxy", "active", "counted", "window_ms", "limit"
    )
    each = rows.groupBy("start", "user", "proxy").agg(
        F.max("active").alias("active"),
        F.max("counted").alias("counted"),
        F.max("window_ms").alias("window_ms"),
        F.min("limit").alias("limit"),
    )
    sums = each.groupBy("start", "user").agg(
        F.max("active").alias("active"),
        F.max("counted").alias("counted"),
        F.sum("active").alias("active_all"),
        F.max("window_ms").alias("window_ms"),
        F.min("limit").alias("limit"),
    )
    return dated(sums, seconds)
