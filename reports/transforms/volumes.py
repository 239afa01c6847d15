"""Volumes: how full each was, and which topics took the space.

In: good lines, each once; several proxies report the same volume, and each row is from the last report. Out: `volumes`,
`volume_topics`. Left to others: when they will be full (`reports.forecast`).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated

REST = "<rest>"
"""The topic of bytes on a volume of topics that its lines do not name."""

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
    """The bytes of each topic's replicas on each volume, at the first and at the last check of each day that named all topics, or,
    where none did, that named the largest. What is left of the bytes of all replicas is of the topic REST."""
    order = ("at", "proxy", "seq")
    seen = lines.where((F.col("type") == "volume") & F.col("replica_bytes").isNotNull()).select(
        "date",
        *VOLUME,
        F.struct(F.col("more_topic_bytes").isNull().alias("largest_alone"), *order).alias("first_order"),
        F.struct(F.col("more_topic_bytes").isNotNull().alias("all"), *order).alias("last_order"),
        F.struct("topic_bytes", "more_topic_bytes", "replica_bytes").alias("told"),
    )
    ends = seen.groupBy("date", *VOLUME).agg(
        F.min_by("told", "first_order").alias("first"), F.max_by("told", "last_order").alias("last")
    )
    rows = [
        ends.select("date", *VOLUME, F.explode(_with_rest(F.col(name))).alias("row"), F.lit(name).alias("end"))
        for name in ("first", "last")
    ]
    columns = [F.max(F.when(F.col("end") == name, F.col("row.bytes"))).alias(f"{name}_bytes") for name in ("first", "last")]
    return rows[0].unionByName(rows[1]).groupBy("date", *VOLUME, F.col("row.topic").alias("topic")).agg(*columns)


def _with_rest(told: Column) -> Column:
    """Pairs of topic and bytes that add up to the bytes of all replicas."""
    more = F.coalesce(told["more_topic_bytes"], F.create_map().cast("map<string,bigint>"))
    pairs = F.transform(
        F.concat(F.map_entries(told["topic_bytes"]), F.map_entries(more)),
        lambda pair: F.struct(pair["key"].alias("topic"), pair["value"].alias("bytes")),
    )
    rest = told["replica_bytes"] - F.aggregate(pairs, F.lit(0).cast("bigint"), lambda total, pair: total + pair["bytes"])
    return F.array_append(pairs, F.struct(F.lit(REST).alias("topic"), F.greatest(rest, F.lit(0)).alias("bytes")))
