"""Parsing of any line: its fields, with types, or the reason why it is not valid. Slower than `reports.fast_parse`, which leaves
few lines to it.

In: rows of `file`, `raw`. Out: rows of `file`, `reason`, `field`, `raw` and every field of `reports.schema`. No Python runs per
line. Left to others: the rules that a good line keeps (`reports.validation`), finding the files (`reports.read`).
"""

from collections.abc import Callable
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.schema import Kind, distinct_fields, line_schema
from reports.validation import (
    ANY_LINE,
    DOCUMENT,
    LATEST,
    MISFIT,
    RAW,
    error_parts,
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


Parse = Callable[[DataFrame], DataFrame]


def parser(now: datetime) -> Parse:
    """Makes lines with their fields, flat and typed, times as timestamps, of lines as they were read.

    In: `file`, `raw`; the time `now`, as a line from long after it has a wrong clock. Out: `file`; `reason`, `field` (the one at
    fault, where there is one) and `raw` (valid UTF-8, at most RAW_LIMIT characters), all null for a good line; then every field of
    `reports.schema`, null for a bad line.

    To write down what is to be done takes some seconds, as it is thousands of calls of Java: it may be done before there are lines.
    """
    given: list[Column | str] = ["file", F.col("raw").alias(RAW), latest(now).alias(LATEST)]
    read: list[Column | str] = ["file", RAW, LATEST, *_parsed()]
    # The exact types of JSON values are looked up only where something may be wrong.
    document = F.when(F.col(MISFIT) | suspicious(), F.try_variant_get(F.try_parse_json(_wrapped()), "$.line", "variant"))
    looked_up = [document.alias(DOCUMENT), *_times()]
    judged = validation_error().alias("error")
    bad = F.col("error").isNotNull()
    kept = F.left(F.make_valid_utf8(F.col(RAW)), F.lit(RAW_LIMIT))
    columns: list[Column | str] = ["file", *error_parts(F.col("error")), F.when(bad, kept).alias("raw"), *_good_values(~bad)]

    def parse(lines: DataFrame) -> DataFrame:
        parsed = lines.select(*given).select("*", _json()).select(*read)
        return parsed.select("*", *looked_up).select("*", judged).select(*columns)

    return parse


def _json() -> Column:
    schema = t.StructType().add("line", line_schema()).add("end", "boolean").add(_CORRUPT, "string")
    return F.from_json(_wrapped(), schema, _JSON_OPTIONS).alias("json")


def _parsed() -> list[Column]:
    """Whether something in the line did not fit; its fields as the struct ANY_LINE, all null where it could not be parsed."""
    misfit = F.col("json.line").isNull() | F.col("json.end").isNull() | F.col(f"json.{_CORRUPT}").isNotNull()
    return [misfit.alias(MISFIT), F.col("json.line").alias(ANY_LINE)]


def _wrapped() -> Column:
    """The line in an object of our own.

    Spark's reader stops at the end of the first value, so that a second object in the same line, as a torn write leaves it, would
    be lost without a word.
    """
    return F.concat(F.lit('{"line":'), F.col(RAW), F.lit(',"end":true}'))


def _times() -> list[Column]:
    """The time fields as timestamps; null where the text is no time as the format writes it."""
    names = [field.name for field in distinct_fields() if field.kind is Kind.TIME]
    return [_time(F.col(f"{ANY_LINE}.{name}")).alias(time_column(name)) for name in names]


def _time(text: Column) -> Column:
    return F.when(F.rlike(text, F.lit(_TIME_PATTERN)), text.try_cast("timestamp"))


def _good_values(good: Column) -> list[Column]:
    return [
        F.when(good, F.col(time_column(field.name) if field.kind is Kind.TIME else f"{ANY_LINE}.{field.name}")).alias(field.name)
        for field in distinct_fields()
    ]
