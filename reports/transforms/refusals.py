"""Refusals: items refused, by quota and by who asked, over time. Complete, as usage lines sum every request.

In: good lines, each once. Out: `refusals`. Left to others: whose quota it was, and why (`decisions`, which are a sample).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated
from reports.transforms.traffic import OTHER


def refusals(lines: DataFrame, seconds: int) -> DataFrame:
    """Sums for each bucket of `seconds`, quota, principal, client id and API: items (topics or partitions) refused.

    Only lines about whole requests count, so that an item is not counted again in the line about its topic.
    """
    of_request = F.col("topic").isNull() | (F.col("topic") == OTHER)
    usage = lines.where((F.col("type") == "usage") & of_request).select(
        bucket_start("start", seconds).alias("start"), "principal", "client_id", "api", F.explode("refused").alias("quota", "items")
    )
    sums = usage.groupBy("start", "quota", "principal", "client_id", "api").agg(F.sum("items").alias("items"))
    return dated(sums.where(F.col("items") > 0), seconds)
