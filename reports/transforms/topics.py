"""Topics: the part of Produce and Fetch for each topic, by principal and client id, over time.

In: good lines, each once. Out: `topics`. Left to others: whole requests (`traffic`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated


def topics(lines: DataFrame, seconds: int) -> DataFrame:
    """Sums for each bucket of `seconds`, topic, principal, client id and API: requests that named it, record bytes, records.

    `topic_id` is set, and `topic` the same, where the proxy had not seen the topic's name. `records` is null where nothing
    counted them.
    """
    usage = lines.where((F.col("type") == "usage") & F.col("topic").isNotNull()).select(
        bucket_start("start", seconds).alias("start"),
        "topic",
        "topic_id",
        "principal",
        "client_id",
        "api",
        "requests",
        "record_bytes",
        "records",
    )
    sums = usage.groupBy("start", "topic", "topic_id", "principal", "client_id", "api").agg(
        *[F.sum(name).alias(name) for name in ("requests", "record_bytes", "records")]
    )
    return dated(sums, seconds)
