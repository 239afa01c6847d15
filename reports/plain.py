"""Plain room: the lines about which there is no doubt, which are nearly all, parsed at little cost.

In: rows of `file`, `raw`. Out: usage lines with their fields, and the others as text. A proxy writes a usage line in one way: the
fields in the order of `reports.schema`, no blanks. One pattern tells such a line from all others, and leaves nothing of the
format's rules to ask but its times; JSON is then read by Spark. A line that does not match is not bad, it is looked at with care
(`reports.parse`): the pattern may be too strict, and must never be too lenient.
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.schema import COMMON, FIELDS, VERSIONS, Field, Kind, column_type, distinct_fields
from reports.verdict import EARLIEST, latest

DOUBTFUL = "doubtful"
"""Stands for the type of a line that was not parsed."""

USAGE = (*COMMON, *FIELDS["usage"])

# Java matches a greedy class of characters, after which comes none of it, in one tight loop.
_TEXT = r'"[^"\\\x00-\x1f]*"'
_COUNT = r"(?:0|[1-9][0-9]{0,14})"  # below LARGEST_COUNT, which has 16 digits
# Bounded, as Java's matcher goes a frame deeper with each.
_COUNTS = rf"\{{(?:{_TEXT}:{_COUNT}(?:,{_TEXT}:{_COUNT}){{0,20}})?\}}"
_TIME = r'"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z"'
_VALUES = {Kind.TEXT: _TEXT, Kind.COUNT: _COUNT, Kind.COUNTS: _COUNTS, Kind.TIME: _TIME}


def usage_pattern() -> str:
    """What a usage line looks like as proxies write it, as a regular expression of Java."""
    return r"\A\{" + ",".join(f'"{field.name}":{_value(field)}' for field in USAGE) + r"\}\z"


def _value(field: Field) -> str:
    match field.name:
        case "v":
            return f"(?:{'|'.join(map(str, VERSIONS))})"
        case "type":
            return '"usage"'
    return _VALUES[field.kind] if field.required else f"(?:{_VALUES[field.kind]}|null)"


def sort_out(lines: DataFrame, now: datetime) -> DataFrame:
    """Lines in the columns of `reports.store.stored_schema`: plain ones with type `usage` and their fields; all others with the
    type DOUBTFUL and `raw`, as it was read."""
    raw = F.col("raw")
    looks_plain = F.rlike(raw, F.lit(usage_pattern())) & F.is_valid_utf8(raw)
    # Named apart: Spark would parse the line anew for each field that it sees used.
    parsed = lines.select("file", "raw", F.when(looks_plain, F.from_json(raw, _schema())).alias("line"))
    good = parsed.select("file", "raw", F.when(_times_are_good(now), F.col("line")).alias("line"))
    plain = F.col("line").isNotNull()
    names = {field.name for field in USAGE}
    values = [
        (F.col(f"line.{field.name}") if field.name in names else F.lit(None).cast(column_type(field))).alias(field.name)
        for field in distinct_fields()
        if field.name != "type"
    ]
    null = F.lit(None).cast("string")
    return good.select(
        "file",
        null.alias("reason"),
        null.alias("field"),
        F.when(~plain, raw).alias("raw"),
        *values,
        F.when(plain, "usage").otherwise(DOUBTFUL).alias("type"),
        F.to_date("line.start").alias("date"),
    )


def _schema() -> t.StructType:
    """Spark reads times as the pattern has them; one that there is not, a 30th of February, is null."""
    return t.StructType([t.StructField(field.name, column_type(field)) for field in USAGE])


def _times_are_good(now: datetime) -> Column:
    start, end = F.col("line.start"), F.col("line.end")
    return (start >= F.lit(EARLIEST).cast("timestamp")) & (start < end) & (end < latest(now))
