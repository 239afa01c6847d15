"""Every valid line once, as Parquet, by type and day. All sums are made of it, and no log is parsed twice.

In: parsed lines (`reports.parse`), in any order, with copies. Out: the table `lines`, and what was counted on the way. A day is the
unit: copies of a line are of the same day, so a day's lines and sums depend on nothing but that day's lines. Left to others: sums
(`reports.transforms`), where the table is put (`reports.publish`).

Lines are told apart by bitmaps of their numbers, a word for 64 lines, which Spark fills within each task and without a sort; only
where there are fewer bits than lines are the lines themselves compared, by 32,768.
"""

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.arrow_rows import table_schema
from reports.reasons import QUARANTINED
from reports.schema import column_type, distinct_fields
from reports.transforms.buckets import bucket_start

IDENTITY = ("proxy", "boot", "seq")
"""What identifies a line: a second one with the same is a copy."""

_PART = ("proxy", "boot", "part", "day")
_POSITION = ("stored_in", "stored_at")
_HOUR = 3600
WRITERS = table_schema(
    "date date, start timestamp, proxy string, boot string, first_seq bigint, last_seq bigint, lines bigint, "
    "first timestamp, last timestamp"
)
"""The table `writers`."""
_MAX_BROADCAST = 1_000_000
"""Up to this number of duplicates are broadcast; more are joined by a shuffle."""
_WORD, _PART_BITS = 6, 15
"""Bits of a number that tell the lines of one word apart, and of one part."""


def by_type_and_day(parsed: DataFrame) -> DataFrame:
    """Parsed lines in the columns of `stored_schema`."""
    kind = F.when(F.col("reason").isNull(), F.col("type")).otherwise(QUARANTINED)
    day = F.to_date(F.coalesce("start", "at"))
    kept = [name for name in parsed.columns if name != "type"]
    return parsed.select(*kept, kind.alias("type"), day.alias("date"))


def stored_schema() -> t.StructType:
    """How lines are stored: as parsed, with `type` (or QUARANTINED) and `date` (UTC, null for quarantined lines), the names of
    their folders."""
    fields = [field for field in distinct_fields() if field.name != "type"]
    schema = t.StructType([t.StructField(name, t.StringType()) for name in ("file", "reason", "field", "raw")])
    for field in fields:
        schema.add(field.name, column_type(field))
    return schema.add("type", t.StringType()).add("date", t.DateType())


def valid_lines(stored: DataFrame) -> DataFrame:
    """The lines that are not in quarantine, copies included."""
    return stored.where(F.col("type") != QUARANTINED)


def with_row_position(stored: DataFrame) -> DataFrame:
    """Lines with the file and the row that each of them is stored at, for `deduplicate`; straight from where they are stored."""
    where = (F.col("_metadata.file_path"), F.col("_metadata.row_index"))
    return stored.select("*", *[column.alias(name) for column, name in zip(where, _POSITION, strict=True)])


def sequence_counts(lines: DataFrame) -> DataFrame:
    """How many lines there are of each start of a proxy, by hour and by 32,768 numbers: `copies` tells where one is there twice.

    Out: `date`, `start` (of the hour), `proxy`, `boot`, `part`, `day` (numbers of the 32,768 lines and of the day); `all`, `lines`
    (each once), `first_seq`, `last_seq`; `first`, `last`: the time that they are about, end excluded.
    """
    # An instant lasts a millisecond, so that `last` is an end, excluded, whatever kind of line it is from.
    first, last = F.coalesce("start", "at"), F.coalesce("end", F.col("at") + F.expr("INTERVAL 1 MILLISECOND"))
    rows = lines.select(
        "date", *IDENTITY, F.shiftright("seq", _WORD).alias("word"), first.alias("first"), last.alias("last")
    ).select("*", bucket_start("first", _HOUR).alias("start"))
    bit = F.expr(f"shiftleft(1L, cast(seq & {2**_WORD - 1} as int))")
    words = rows.groupBy("date", "start", "proxy", "boot", "word").agg(
        F.count("*").alias("all"),
        F.bit_or(bit).alias("seen"),
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    part = F.shiftright("word", _PART_BITS - _WORD).alias("part")
    return words.groupBy("date", "start", "proxy", "boot", part, F.unix_date("date").alias("day")).agg(
        F.sum("all").alias("all"),
        F.sum(F.bit_count("seen")).alias("lines"),
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )


def seconds_told(counted: pa.Table) -> float:
    """How long the time is that the lines of a `sequence_counts` are about, in whole seconds."""
    first, last = pc.min(counted["first"]).as_py(), pc.max(counted["last"]).as_py()
    return float(last.timestamp() // 1 - first.timestamp() // 1) if first and last else 0.0


def writers(counted: pa.Table) -> pa.Table:
    """One row for each hour and start of a proxy, of a `sequence_counts`; the columns of WRITERS."""
    ways = {"first_seq": "min", "last_seq": "max", "lines": "sum", "first": "min", "last": "max"}
    found = counted.group_by(["date", "start", "proxy", "boot"]).aggregate(list(ways.items()))
    rows = found.rename_columns({f"{name}_{way}": name for name, way in ways.items()})
    return rows.select(WRITERS.names).sort_by([(name, "ascending") for name in ("start", "proxy", "boot")])


def _copied(counted: pa.Table) -> pa.Table:
    return counted.filter(pc.greater(counted["all"], counted["lines"]))


def duplicates_by_day(counted: pa.Table) -> dict[date, int]:
    """The days with copies, by a `sequence_counts`, and how many lines of each are too many."""
    copied = _copied(counted)
    surplus = pc.subtract(copied["all"], copied["lines"])
    days = pa.table({"date": copied["date"], "copies": surplus}).group_by("date").aggregate([("copies", "sum")])
    return dict(zip(days["date"].to_pylist(), days["copies_sum"].to_pylist(), strict=True))


def places_of_copies(counted: pa.Table) -> pa.Table:
    """Where lines are there twice, by a `sequence_counts`: starts of a proxy, days, and 32,768 numbers."""
    return _copied(counted).select(_PART).group_by(list(_PART)).aggregate([])


def deduplicate(lines: DataFrame, places: DataFrame, copies: int) -> DataFrame:
    """The lines without duplicates. `lines` have their positions (`with_row_position`), `places` are where copies are
    (`places_of_copies`), `copies` is the number of duplicates.

    Only IDENTITY is compared, so that whole lines are neither shuffled nor sorted.
    """
    placed = lines.select(*IDENTITY, *_POSITION, F.shiftright("seq", _PART_BITS).alias("part"), F.unix_date("date").alias("day"))
    suspects = placed.join(F.broadcast(places), on=list(_PART), how="left_semi")
    number = F.row_number().over(Window.partitionBy("day", *IDENTITY).orderBy(*_POSITION))
    surplus = suspects.select(*_POSITION, number.alias("number")).where("number > 1").select(*_POSITION)
    sent = F.broadcast(surplus) if copies <= _MAX_BROADCAST else surplus
    return lines.join(sent, on=list(_POSITION), how="left_anti").drop(*_POSITION)
