"""Volumes: how full each was, and which topics took the space.

In: good lines, each once; several proxies report the same volume, and each row is from the last report. Out: `volumes`,
`volume_topics`. Left to others: when they will be full (`reports.forecast`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated

VOLUME = ("broker_id", "log_dir")
"""What identifies a volume; the broker is null where a proxy checked its own file system and does not know the broker."""

_SIZES = ("total_bytes", "usable_bytes", "limit_bytes", "soft_limit_bytes", "replica_bytes")


def volumes(lines: DataFrame, seconds: int) -> DataFrame:
    """The last observation in each bucket of `seconds`, with the lowest `usable_bytes` and `factor` in it, and how many there
    were."""
    seen = lines.where(F.col("type") == "volume").select(
        bucket_start("at", seconds).alias("start"),
        *VOLUME,
        "source",
        *_SIZES,
        "factor",
        F.struct("at", "proxy", "seq").alias("order"),
    )
    last = [F.max_by(name, "order").alias(name) for name in ("source", *_SIZES)]
    sums = seen.groupBy("start", *VOLUME).agg(
        *last,
        F.min("usable_bytes").alias("least_usable_bytes"),
        F.min("factor").alias("least_factor"),
        F.count("*").alias("observations"),
    )
    used = F.col("total_bytes") - F.col("usable_bytes")
    ordered = ("start", *VOLUME, "source", "total_bytes", "usable_bytes", used.alias("used_bytes"), *_SIZES[2:])
    return dated(sums.select(*ordered, "least_usable_bytes", "least_factor", "observations"), seconds)


def volume_topics(lines: DataFrame) -> DataFrame:
    """The bytes of each topic's replicas on each volume, of those that took most: at the first and at the last check of each
    day."""
    seen = lines.where(F.col("type") == "volume").select(
        "date", *VOLUME, "at", F.struct("at", "proxy", "seq").alias("order"), "topic_bytes"
    )
    ends = seen.groupBy("date", *VOLUME).agg(
        F.min_by("topic_bytes", "order").alias("first"), F.max_by("topic_bytes", "order").alias("last")
    )
    rows = [
        ends.select("date", *VOLUME, F.explode(name).alias("topic", "bytes"), F.lit(name).alias("end"))
        for name in ("first", "last")
    ]
    return (
        rows[0]
        .unionByName(rows[1])
        .groupBy("date", *VOLUME, "topic")
        .agg(*[F.max(F.when(F.col("end") == name, F.col("bytes"))).alias(f"{name}_bytes") for name in ("first", "last")])
    )
