"""Ranking: who is largest, and the same over time for a plot.

In: any table with `start` and `seconds`. Out: one row a key; one row a bucket and key, the small keys as one. Left
to others: what a key or a measure means.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start

Measures = Mapping[str, Column]
"""Name of a sum -> what is summed."""


def ranking(table: DataFrame, keys: Sequence[str], measures: Measures, by: Sequence[str]) -> DataFrame:
    """Sums of `measures` for each value of `keys`, the largest in the measures `by` first, equal ones in key order."""
    rows = table.select(*keys, *[value.alias(name) for name, value in measures.items()])
    sums = rows.groupBy(*keys).agg(*[F.sum(name).alias(name) for name in measures])
    weight = reduce(add, [F.col(name) for name in by])
    return sums.orderBy(weight.desc(), *keys)


def main_part(table: DataFrame, key: str, part: str, measure: Column) -> DataFrame:
    """The `part` with most of `measure` in each value of `key`: `key`, `part`, for keys that have any."""
    rows = table.select(key, part, measure.alias("value"))
    sums = rows.groupBy(key, part).agg(F.sum("value").alias("value")).where(F.col("value") > 0)
    return sums.groupBy(key).agg(F.max_by(part, "value").alias(part))


def over_time(table: DataFrame, key: str, shown: Sequence[str], measures: Measures, seconds: int) -> DataFrame:
    """Sums of `measures` for each bucket of `seconds` and key: `start` (seconds since the epoch), `key`, the measures.

    Keys that are not `shown` are one, with the key null.
    """
    rows = table.select(
        F.unix_seconds(bucket_start("start", seconds)).alias("start"),
        F.when(F.col(key).isin(list(shown)), F.col(key)).alias("key"),
        *[value.alias(name) for name, value in measures.items()],
    )
    return rows.groupBy("start", "key").agg(*[F.sum(name).alias(name) for name in measures]).orderBy("start", "key")
