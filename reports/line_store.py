"""Every valid line once, as Parquet, by type and day. All sums are made of it, and no log is parsed twice.

In: parsed lines (`reports.parse`), in any order, with copies. Out: the table `lines`, and what was counted on the way. A day is the
unit: copies of a line are of the same day, so a day's lines and sums depend on nothing but that day's lines. Left to others: sums
(`reports.transforms`), where there are copies at all (`reports.line_counts`), where the table is put (`reports.publish`).
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.line_counts import PART_BITS
from reports.reasons import QUARANTINED
from reports.schema import column_type, distinct_fields

IDENTITY = ("proxy", "boot", "seq")
"""What identifies a line: a second one with the same is a copy."""

_PART = ("proxy", "boot", "part", "day")
_POSITION = ("stored_in", "stored_at")
_MAX_BROADCAST = 1_000_000
"""Up to this number of duplicates are broadcast; more are joined by a shuffle."""


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


def deduplicate(lines: DataFrame, places: DataFrame, copies: int) -> DataFrame:
    """The lines without duplicates. `lines` have their positions (`with_row_position`), `places` are where copies are
    (`reports.line_counts.places_of_copies`), `copies` is the number of duplicates.

    Only IDENTITY is compared, so that whole lines are neither shuffled nor sorted.
    """
    placed = lines.select(*IDENTITY, *_POSITION, F.shiftright("seq", PART_BITS).alias("part"), F.unix_date("date").alias("day"))
    suspects = placed.join(F.broadcast(places), on=list(_PART), how="left_semi")
    number = F.row_number().over(Window.partitionBy("day", *IDENTITY).orderBy(*_POSITION))
    surplus = suspects.select(*_POSITION, number.alias("number")).where("number > 1").select(*_POSITION)
    sent = F.broadcast(surplus) if copies <= _MAX_BROADCAST else surplus
    return lines.join(sent, on=list(_POSITION), how="left_anti").drop(*_POSITION)
