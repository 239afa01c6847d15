"""Parsing of any line: its fields, with types, or the reason why it is not valid. Slower than `reports.fast_parse`, which leaves
few lines to it.

In: rows of `file`, `raw`. Out: rows of `file`, `reason`, `field`, `raw` and every field of `reports.schema`. No Python runs per
line. Left to others: the rules that a good line keeps (`reports.validation`), finding the files (`reports.read`).
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.schema import Kind, distinct_fields, line_schema
from reports.validation import (
    ANY_LINE,
    DOCUMENT,
    ERROR,
    LATEST,
    MISFIT,
    RAW,
    error_parts,
    field_value,
    latest,
    suspicious,
    time_column,
    validation_error,
)

RAW_LIMIT = 2048
"""Characters of a bad line that are kept."""

_TIME_PATTERN = r"^[12]\d{3}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"
_CORRUPT = "_corrupt"

# Leniencies of Spark's JSON reader that the format does not have.
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}

_WRAPPED = f"""concat('{{"line":', {RAW}, ',"end":true}}')"""
"""SQL: the line in an object of our own. Spark's reader stops at the end of the first value, so that a second object in the same
line, as a torn write leaves it, would be lost without a word."""


def parse_carefully(lines: DataFrame, now: datetime) -> DataFrame:
    """Lines with their fields, flat and typed, times as timestamps.

    In: `file`, `raw`; the time `now`, as a line from long after it has a wrong clock. Out: `file`; `reason`, `field` (the one at
    fault, where there is one) and `raw` (valid UTF-8, at most RAW_LIMIT characters), all null for a good line; then every field of
    `reports.schema`, null for a bad line.
    """
    given: list[Column | str] = ["file", F.col("raw").alias(RAW), latest(now).alias(LATEST)]
    misfit = f"json.line is null or json.end is null or json.{_CORRUPT} is not null"
    # The exact types of JSON values are looked up only where something may be wrong.
    document = f"case when {MISFIT} or {suspicious()} then try_variant_get(try_parse_json({_WRAPPED}), '$.line', 'variant') end"
    kept = f"case when {ERROR} is not null then left(make_valid_utf8({RAW}), {RAW_LIMIT}) end"
    parsed = lines.select(*given).select("*", _json())
    parsed = parsed.selectExpr("file", RAW, LATEST, f"{misfit} as {MISFIT}", f"json.line as {ANY_LINE}")
    looked_up = parsed.selectExpr("*", f"{document} as {DOCUMENT}", *_times())
    judged = looked_up.selectExpr("*", f"{validation_error()} as {ERROR}")
    return judged.selectExpr("file", *error_parts(), f"{kept} as raw", *_good_values())


def _json() -> Column:
    schema = t.StructType().add("line", line_schema()).add("end", "boolean").add(_CORRUPT, "string")
    return F.from_json(F.expr(_WRAPPED), schema, _JSON_OPTIONS).alias("json")


def _times() -> list[str]:
    """The time fields as timestamps; null where the text is no time as the format writes it."""
    names = [field.name for field in distinct_fields() if field.kind is Kind.TIME]
    return [f"{_time(field_value(name))} as {time_column(name)}" for name in names]


def _time(text: str) -> str:
    return f"case when rlike({text}, r'{_TIME_PATTERN}') then try_cast({text} as timestamp) end"


def _good_values() -> list[str]:
    """The fields of a line that has no error."""
    values = {
        field.name: time_column(field.name) if field.kind is Kind.TIME else field_value(field.name) for field in distinct_fields()
    }
    return [f"case when {ERROR} is null then {value} end as `{name}`" for name, value in values.items()]
