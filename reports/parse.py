"""Parsing room: one line of text becomes its fields, with types, or a reason why it is bad.

In: rows of `file`, `raw`. Out: rows of `file`, `reason`, `field`, `raw` and every field of `reports.schema`. No Python runs per
line. Left to others: the rules that a good line keeps (`reports.verdict`), finding the files (`reports.read`).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.schema import COMMON, FIELDS, SPARK_TYPES, Field, Kind, distinct_fields, line_schema
from reports.verdict import (
    ANY_LINE,
    DOCUMENT,
    LATEST,
    MISFIT,
    RAW,
    USAGE_LINE,
    plainly_good,
    suspicious,
    time_column,
    verdict,
    verdict_parts,
)

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
    # Nearly all lines are plainly good usage lines. They are parsed for the fields of such a line alone, told to be good at little
    # cost, and passed on as one struct, as to copy every field in every step costs as much as to parse them.
    usage = _parsed(lines.select("file", F.col("raw").alias(RAW)), USAGE_LINE, _struct((*COMMON, *FIELDS["usage"])))
    timed = usage.select("*", *[_time(USAGE_LINE, name).alias(f"{USAGE_LINE}{name}") for name in ("start", "end")])
    plain = timed.select("*", F.lit(now + AHEAD).alias(LATEST)).select("*", plainly_good().alias(PLAIN))
    doubtful = _parsed(plain, ANY_LINE, line_schema(), when=~F.col(PLAIN))
    # The exact types of JSON values are looked up only where something may be wrong.
    document = F.when(
        ~F.col(PLAIN) & (F.col(MISFIT) | suspicious()), F.try_variant_get(F.try_parse_json(_wrapped()), "$.line", "variant")
    )
    looked_up = doubtful.select("*", document.alias(DOCUMENT), *_times())
    judged = looked_up.select("*", F.when(~F.col(PLAIN), verdict()).alias("verdict"))
    bad = F.col("verdict").isNotNull()
    kept = F.left(F.make_valid_utf8(F.col(RAW)), F.lit(RAW_LIMIT))
    return judged.select("file", *verdict_parts(F.col("verdict")), F.when(bad, kept).alias("raw"), *_good_values(~bad))


def _struct(fields: Iterable[Field]) -> t.StructType:
    return t.StructType([t.StructField(field.name, SPARK_TYPES[field.kind]) for field in fields])


def _parsed(lines: DataFrame, name: str, schema: t.StructType, when: Column | None = None) -> DataFrame:
    """The line's fields as the struct `name`, all null where it could not be parsed; and whether something in it did not fit."""
    whole = t.StructType().add("line", schema).add("end", "boolean").add(_CORRUPT, "string")
    json = F.from_json(_wrapped(), whole, _JSON_OPTIONS)
    parsed = lines.select("*", (json if when is None else F.when(when, json)).alias("json"))
    misfit = F.col("json.line").isNull() | F.col("json.end").isNull() | F.col(f"json.{_CORRUPT}").isNotNull()
    others = [column for column in lines.columns if column != MISFIT]
    return parsed.select(*others, misfit.alias(MISFIT), F.col("json.line").alias(name))


def _wrapped() -> Column:
    """The line in an object of our own.

    Spark's reader stops at the end of the first value, so that a second object in the same line, as a torn write leaves it, would
    be lost without a word.
    """
    return F.concat(F.lit('{"line":'), F.col(RAW), F.lit(',"end":true}'))


def _times() -> list[Column]:
    """The time fields of a doubtful line as timestamps; null where the text is no time as the format writes it."""
    names = [field.name for field in distinct_fields() if field.kind is Kind.TIME]
    return [F.when(~F.col(PLAIN), _time(ANY_LINE, name)).alias(time_column(name)) for name in names]


def _time(line: str, name: str) -> Column:
    # What the proxy writes has milliseconds. To look at a few of its characters is a third of the work of the pattern.
    text = F.col(f"{line}.{name}")
    usual = (
        (F.length(text) == 24)
        & (F.substring(text, 20, 1) == ".")
        & F.endswith(text, F.lit("Z"))
        & (F.substring(text, 1, 1) == "2")
        & (F.substring(text, 11, 1) == "T")
    )
    return F.when(usual | F.rlike(text, F.lit(_TIME_PATTERN)), text.try_cast("timestamp"))


def _good_values(good: Column) -> list[Column]:
    usage = {field.name for field in (*COMMON, *FIELDS["usage"])}
    values = []
    for field in distinct_fields():
        is_time = field.kind is Kind.TIME
        doubtful = F.when(good, F.col(time_column(field.name) if is_time else f"{ANY_LINE}.{field.name}"))
        plain = (
            F.col(f"{USAGE_LINE}{field.name}" if is_time else f"{USAGE_LINE}.{field.name}") if field.name in usage else F.lit(None)
        )
        values.append(F.when(F.col(PLAIN), plain).otherwise(doubtful).alias(field.name))
    return values
