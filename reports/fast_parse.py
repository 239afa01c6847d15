"""The fast path of parsing: usage lines as proxies write them, nearly all lines, by one regular expression.

In: rows of `file`, `raw`. Out: usage lines with their fields, and the others as text. A proxy always writes the fields of a usage
line in the order of `reports.schema`, without blanks. A line that matches the pattern keeps all rules of the format except those
for times, which are checked here. All other lines go to `reports.parse`: the pattern may be too strict, but never too lenient.
"""

from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.schema import COMMON, FIELDS, UNPARSED, VERSIONS, Field, Kind, column_type
from reports.validation import EARLIEST, latest

USAGE = (*COMMON, *FIELDS["usage"])
_VALUES = tuple(field for field in USAGE if field.name != "type")

# Java matches a greedy class of characters, after which comes none of it, in one tight loop.
_TEXT = r'[^"\\\x00-\x1f]*'
_COUNT = r"0|[1-9][0-9]{0,14}"  # below LARGEST_COUNT, which has 16 digits
_TIME = r"2[0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}"
_DAY = 86_400
_LONGEST = 2**31 - 1
_MAX_COUNTS = 2
"""Entries of an object of counts that are picked out. Few requests are refused by more quotas within one interval."""

# Between values, and none of a text's characters; before an optional text stands a quote, which tells it from null.
_BETWEEN = "\x01"
_BROKEN = "\ufffd"
"""What Java makes of a byte that is not UTF-8."""


def usage_pattern() -> str:
    """What a usage line looks like as proxies write it, as a regular expression of Java, with a group for each value; of an
    object of counts it is one for each name and each count."""
    return r"\A\{" + ",".join(f'"{field.name}":{_value(field)}' for field in USAGE) + r"\}\z"


def _value(field: Field) -> str:
    match field.kind:
        case _ if field.name == "v":
            return f"({'|'.join(map(str, VERSIONS))})"
        case _ if field.name == "type":
            return '"usage"'
        case Kind.TEXT:
            return f'"({_TEXT})"' if field.required else f'(?:("{_TEXT})"|null)'
        case Kind.TIME:
            return f'"({_TIME})Z"'
        case Kind.COUNT:
            return f"({_COUNT})" if field.required else f"(?:({_COUNT})|null)"
        case Kind.API_KEY:
            return f"(-1|{_COUNT})"
        case _:
            entry = f'("{_TEXT})":({_COUNT})'
            return rf"\{{(?:{entry}(?:,{entry})?)?\}}"


def _groups(field: Field) -> int:
    return 2 * _MAX_COUNTS if field.kind is Kind.COUNTS else 1


def parse_fast(lines: DataFrame, now: datetime) -> DataFrame:
    """Lines as they are stored: those that match with type `usage`, their `date` and their fields; all others with the type
    UNPARSED and `raw`, as it was read. Columns are `file`, `raw`, the fields of a usage line and `date`."""
    raw, flat = F.col("raw"), F.col("flat")
    picked = _BETWEEN.join(f"${group + 1}" for group in range(sum(map(_groups, _VALUES))))
    # A line that does not match stays as it is.
    matched = F.startswith(raw, F.lit("{")) & ~F.startswith(flat, F.lit("{")) & ~F.contains(flat, F.lit(_BROKEN))
    # Each step is named apart: Spark would do it anew for each value that it sees used.
    flattened = lines.select("file", "raw", F.regexp_replace(raw, F.lit(usage_pattern()), F.lit(picked)).alias("flat"))
    parts = flattened.select("file", "raw", F.when(matched, F.split(flat, _BETWEEN)).alias("parts"))
    values = parts.select("file", "raw", *_picked())
    judged = values.select("*", F.coalesce(_times_are_good(now) & F.col("refused").isNotNull(), F.lit(False)).alias("matches"))
    matches = F.col("matches")
    day = F.date_from_unix_date(F.expr(f"cast(unix_seconds(start) div {_DAY} as int)"))
    return judged.select(
        "file",
        F.when(~matches, raw).alias("raw"),
        *[F.when(matches, F.col(field.name)).alias(field.name) for field in _VALUES],
        F.when(matches, "usage").otherwise(UNPARSED).alias("type"),
        F.when(matches, day).alias("date"),
    )


def _picked() -> list[Column]:
    """The values of `parts`, with their types."""
    columns, at = [], 0
    for field in _VALUES:
        parts = [F.get(F.col("parts"), F.lit(at + group)) for group in range(_groups(field))]
        columns.append(_typed(field, parts).alias(field.name))
        at += _groups(field)
    return columns


def _typed(field: Field, parts: list[Column]) -> Column:
    text = parts[0]
    match field.kind:
        case Kind.TEXT:
            return text if field.required else F.when(text != "", _unquoted(text))
        case Kind.COUNT | Kind.API_KEY:
            # Spark's cast fails by an exception, which costs as much as a line.
            return text.try_cast("bigint") if field.required else F.when(text != "", text.try_cast("bigint"))
        case Kind.TIME:
            # The session's time zone is UTC. A time that there is not, a 30th of February, becomes null.
            return text.try_cast("timestamp")
        case _:
            return _map(parts).cast(column_type(field))


def _map(parts: list[Column]) -> Column:
    """A map of name, count, name, count; a name is "" where there is none. Null where two names are the same: Spark would make an
    error of it."""
    first, second = (F.create_map(_unquoted(name), count.try_cast("bigint")) for name, count in (parts[:2], parts[2:]))
    both = F.when(parts[0] != parts[2], F.map_concat(first, second))
    return F.when(parts[2] != "", both).when(parts[0] != "", first).otherwise(F.create_map())


def _unquoted(text: Column) -> Column:
    return F.substring(text, 2, _LONGEST)


def _times_are_good(now: datetime) -> Column:
    start, end = F.col("start"), F.col("end")
    return (start >= F.lit(EARLIEST).cast("timestamp")) & (start < end) & (end < latest(now))
