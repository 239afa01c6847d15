"""Queries in SQL. In: a text, and the DataFrames that it names in braces. Out: a DataFrame.

Each function of Spark that Python calls is several calls of Java, so that a report of columns made in Python spends seconds on
saying what it wants. A text is one call.
"""

from collections.abc import Iterable

from pyspark.sql import DataFrame


def query(text: str, **frames: DataFrame) -> DataFrame:
    """What `text` says of `frames`, of which there is one at least."""
    spark = next(iter(frames.values())).sparkSession
    return spark.sql(text, None, **frames)


def text_list(values: Iterable[str]) -> str:
    """Texts that have no quotes in them, as `in (…)` takes them."""
    return ", ".join(f"'{value}'" for value in values)
