"""Volumes: how full each was, and which topics took the space.

In: good lines, each once; several proxies report the same volume, and each row is from the last report. Out: `volumes`,
`volume_topics`. Left to others: when they will be full (`reports.forecast`).
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start, dated

REST = "<rest>"
"""The topic of bytes on a volume of topics that its lines do not name."""

VOLUME = ("broker_id", "log_dir")
"""What identifies a volume; the broker is null where a proxy checked its own file system and does not know the broker."""

_SIZES = ("total_bytes", "usable_bytes", "limit_bytes", "soft_limit_bytes", "replica_bytes")


def volumes(lines: DataFrame, seconds: int) -> DataFrame:
    """The last observation in each bucket of `seconds`, with the lowest `usable_bytes` and `factor` in it, and how many there
    were."""
    last = ", ".join(f"max_by({name}, struct(at, proxy, seq)) as {name}" for name in ("source", *_SIZES))
    sums = f"""
        select start, {", ".join(VOLUME)}, source, total_bytes, usable_bytes, total_bytes - usable_bytes as used_bytes,
            {", ".join(_SIZES[2:])}, least_usable_bytes, least_factor, observations
        from (
            select {bucket_start("at", seconds)} as start, {", ".join(VOLUME)}, {last},
                min(usable_bytes) as least_usable_bytes, min(factor) as least_factor, count(*) as observations
            from {{lines}} where type = 'volume' group by all
        )
    """
    return query(dated(sums, seconds), lines=lines)


def volume_topics(lines: DataFrame) -> DataFrame:
    """The bytes of each topic's replicas on each volume, at the first and at the last check of each day that named all topics, or,
    where none did, that named the largest. What is left of the bytes of all replicas is of the topic REST."""
    volume = ", ".join(VOLUME)
    # Pairs of topic and bytes that add up to the bytes of all replicas.
    more = "coalesce(more_topic_bytes, cast(map() as map<string, bigint>))"
    pairs = f"transform(concat(map_entries(topic_bytes), map_entries({more})), one -> struct(one.key as topic, one.value as bytes))"
    rest = "replica_bytes - aggregate(pairs, 0L, (total, one) -> total + one.bytes)"
    return query(
        f"""
        with seen as (
            select date, {volume}, struct(topic_bytes, more_topic_bytes, replica_bytes) as told,
                struct(more_topic_bytes is null as some, at, proxy, seq) as first_order,
                struct(more_topic_bytes is not null as every, at, proxy, seq) as last_order
            from {{lines}} where type = 'volume' and replica_bytes is not null
        ),
        ends as (
            select date, {volume}, min_by(told, first_order) as first, max_by(told, last_order) as last
            from seen group by date, {volume}
        ),
        looks as (
            select date, {volume}, 'first' as look, first.* from ends
            union all
            select date, {volume}, 'last' as look, last.* from ends
        ),
        paired as (select date, {volume}, look, {pairs} as pairs, replica_bytes from looks),
        rows as (
            select date, {volume}, look, inline(array_append(pairs, struct('{REST}' as topic, greatest({rest}, 0L) as bytes)))
            from paired
        )
        select date, {volume}, topic,
            max(if(look = 'first', bytes, null)) as first_bytes, max(if(look = 'last', bytes, null)) as last_bytes
        from rows group by date, {volume}, topic
        """,
        lines=lines,
    )
