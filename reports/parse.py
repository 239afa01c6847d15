"""Parsing room: one line of text becomes its fields, with types, or a reason why it is bad.

In: rows of `file`, `raw`. Out: rows of `file`, `reason`, `field`, `raw` and every field of `reports.schema`. No Python runs per
line. Left to others: the rules that a good line keeps (`reports.verdict`), finding the files (`reports.read`).
"""

from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.schema import Kind, distinct_fields, line_schema
from reports.verdict import DOCUMENT, LATEST, MISFIT, RAW, plainly_good, suspicious, time_column, verdict, verdict_parts

RAW_LIMIT = 2048
"""Characters of a bad line that are kept."""

AHEAD = timedelta(days=2)
"""How far ahead of the report's own clock a line's may be."""

PLAIN = "_plain"
_TIME_PATTERN = r"^[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"
_CORRUPT = "_corrupt"

# Leniencies of Spark's JSON reader that the format does not have.
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}


def parse(lines: DataFrame, now: datetime) -> DataFrame:
    """Lines with their fields, flat and typed, times as timestamps.

    In: `file`, `raw`; the time now, as a line from long after it has a wrong clock. Out: `file`; `reason`, `field` (the one at
    fault, where there is one) and `raw` (valid UTF-8, at most RAW_LIMIT characters), all null for a good line; then every field of
    `reports.schema`, null for a bad line.
    """
    flat = _fields(lines.select("file", F.col("raw").alias(RAW))).select("*", *_times(), F.lit(now + AHEAD).alias(LATEST))
    # Nearly all lines are plainly good, and are told so at little cost. The exact types of JSON values are looked up only where
    # something may be wrong: that costs as much as the parse itself.
    document = F.when(F.col(MISFIT) | suspicious(), _document())
    looked_up = flat.select("*", plainly_good().alias(PLAIN)).select("*", F.when(~F.col(PLAIN), document).alias(DOCUMENT))
    judged = looked_up.select("*", F.when(~F.col(PLAIN), verdict()).alias("verdict"))
    bad = F.col("verdict").isNotNull()
    kept = F.left(F.make_valid_utf8(F.col(RAW)), F.lit(RAW_LIMIT))
    return judged.select("file", *verdict_parts(F.col("verdict")), F.when(bad, kept).alias("raw"), *_good_values(~bad))


def _fields(lines: DataFrame) -> DataFrame:
    """`file`, RAW, every field (null where it could not be parsed) and MISFIT: something in the line did not fit the schema."""
    schema = t.StructType().add("line", line_schema()).add("end", "boolean").add(_CORRUPT, "string")
    parsed = lines.select("file", RAW, F.from_json(_wrapped(), schema, _JSON_OPTIONS).alias("json"))
    misfit = F.col("json.line").isNull() | F.col("json.end").isNull() | F.col(f"json.{_CORRUPT}").isNotNull()
    return parsed.select("file", RAW, misfit.alias(MISFIT), "json.line.*")


def _wrapped() -> Column:
    """The line in an object of our own.

    Spark's reader stops at the end of the first value, so that a second object in the same line, as a torn write leaves it, would
    be lost without a word.
    """
    return F.concat(F.lit('{"line":'), F.col(RAW), F.lit(',"end":true}'))


def _document() -> Column:
    return F.try_variant_get(F.try_parse_json(_wrapped()), "$.line", "variant")


def _times() -> list[Column]:
    """The time fields as timestamps, beside their texts; null where the text is no time as the format writes it."""
    names = [field.name for field in distinct_fields() if field.kind is Kind.TIME]
    return [F.when(_is_time(name), F.col(name).try_cast("timestamp")).alias(time_column(name)) for name in names]


def _is_time(name: str) -> Column:
    # What the proxy writes has milliseconds. To look at a few of its characters is a third of the work of the pattern.
    text = F.col(name)
    usual = (
        (F.length(text) == 24) & (F.substring(text, 20, 1) == ".") & F.endswith(text, F.lit("Z")) & (F.substring(text, 1, 1) == "2")
    )
    return usual & (F.substring(text, 11, 1) == "T") | F.rlike(text, F.lit(_TIME_PATTERN))


def _good_values(good: Column) -> list[Column]:
    return [F.when(good, F.col(time_column(f.name) if f.kind is Kind.TIME else f.name)).alias(f.name) for f in distinct_fields()]
