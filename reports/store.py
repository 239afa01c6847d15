"""Store room: every good line once, as Parquet, by type and day. All sums are made of it, and no log is parsed twice.

In: parsed lines (`reports.parse`), in any order, with copies. Out: the table `lines`, and what was counted on the way. A day is the
unit: copies of a line are of the same day, so a day's lines and sums depend on nothing but that day's lines. Left to others: sums
(`reports.transforms`), where the table is put (`reports.write`).

Lines are told apart by bitmaps of their numbers, 4 KiB for 32,768 lines, which costs next to nothing; only where a bitmap has fewer
numbers than lines are the lines themselves compared.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.schema import SPARK_TYPES, Kind, distinct_fields

IDENTITY = ("proxy", "boot", "seq")
"""What identifies a line: a second one with the same is a copy."""

BAD = "bad"
"""Stands for the type of a line that is in quarantine."""

_PART = ("proxy", "boot", "part", "day")
_HOUR = 3600


def by_type_and_day(parsed: DataFrame) -> DataFrame:
    """Parsed lines in the columns of `stored_schema`."""
    kind = F.when(F.col("reason").isNull(), F.col("type")).otherwise(BAD)
    day = F.to_date(F.coalesce("start", "at"))
    kept = [name for name in parsed.columns if name != "type"]
    return parsed.select(*kept, kind.alias("type"), day.alias("date"))


def stored_schema() -> t.StructType:
    """How lines are stored: as parsed, with `type` (BAD for those in quarantine) and `date` (UTC, null for these), which are the
    folders that they are in."""
    fields = [field for field in distinct_fields() if field.name != "type"]
    types = {field.name: t.TimestampType() if field.kind is Kind.TIME else SPARK_TYPES[field.kind] for field in fields}
    schema = t.StructType([t.StructField(name, t.StringType()) for name in ("file", "reason", "field", "raw")])
    for name, kind in types.items():
        schema.add(name, kind)
    return schema.add("type", t.StringType()).add("date", t.DateType())


def good(stored: DataFrame) -> DataFrame:
    """The lines that are not in quarantine, copies included."""
    return stored.where(F.col("type") != BAD)


def bad(stored: DataFrame) -> DataFrame:
    """The lines in quarantine: `reason`, `field`, `file`, `raw`."""
    return stored.where(F.col("type") == BAD).select("reason", "field", "file", "raw")


def census(lines: DataFrame) -> DataFrame:
    """How many lines there are of each start of a proxy, by hour and by 32,768 numbers: `copies` tells where one is there twice.

    Out: `date`, `start` (of the hour), `proxy`, `boot`, `part`, `day` (numbers of the 32,768 lines and of the day); `all`, `lines`
    (each once), `first_seq`, `last_seq`; `first`, `last`: the time that they are about, end excluded.
    """
    # An instant lasts a millisecond, so that `last` is an end, excluded, whatever kind of line it is from.
    first, last = F.coalesce("start", "at"), F.coalesce("end", F.col("at") + F.expr("INTERVAL 1 MILLISECOND"))
    hour = F.timestamp_seconds(F.floor(F.unix_seconds(first) / _HOUR) * _HOUR)
    rows = lines.select(
        "date",
        hour.alias("hour"),
        *IDENTITY,
        F.bitmap_bucket_number("seq").alias("part"),
        F.unix_date("date").alias("day"),
        first.alias("first"),
        last.alias("last"),
    )
    counted = rows.groupBy("date", "hour", *_PART).agg(
        F.count("*").alias("all"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position("seq"))).alias("lines"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    return counted.withColumnRenamed("hour", "start")


def once(lines: DataFrame, counted: DataFrame) -> DataFrame:
    """Each line once; `counted` is their `census`, which has copies."""
    places = F.broadcast(counted.where("all > lines").select(*_PART).distinct())
    placed = lines.select("*", F.bitmap_bucket_number("seq").alias("part"), F.unix_date("date").alias("day"))
    suspects = placed.join(places, on=list(_PART), how="left_semi").dropDuplicates(list(IDENTITY))
    return placed.join(places, on=list(_PART), how="left_anti").unionByName(suspects).drop("part", "day")
