"""The rules for valid lines, and the reason why a line is not valid.

In: the columns that `reports.parse` lays out. Out: one column, null for a good line, else which rule it broke and with which
field. The first broken rule wins; rules run from the outside (is it text?) to the inside (does the interval end after it
starts?), and nothing of a line is judged before its version and type are known. Left to others: where bad lines go
(`reports.transforms.quarantine`).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from reports.reasons import Reason
from reports.schema import COMMON, ENTITY_PARTS, FIELDS, LARGEST_COUNT, VERSIONS, Field, Kind, distinct_fields

RAW = "_raw"
"""Column: the line as read."""
MISFIT = "_misfit"
"""Column: true where the line, or one of its values, did not fit the schema."""
DOCUMENT = "_document"
"""Column: the line as a variant, where MISFIT or `suspicious`; null where it is not JSON, too."""

# Spark's reader gives the text of any JSON value for a text field: these are the ones that may have been no text.
_NOT_TEXT_PERHAPS = r"^([\[{]|true$|false$|-?[0-9][0-9.eE+-]*$)"

_BEYOND = "9.2e18"
"""Whole numbers from here on do not fit in 64 bits, or nearly not."""

ANY_LINE = "_any"
"""Column: every field of a line, as a struct."""
LATEST = "_latest"
"""Column: the latest time that a line may be about, see `latest`."""
AHEAD = timedelta(days=2)
"""How far ahead of the report's own clock a line's may be."""
EARLIEST = "2020-01-01 00:00:00"
"""No proxy ran before; a clock that was never set is at 1970 or 2000."""


def latest(now: datetime) -> Column:
    """The latest time that a line may be about, where it is `now`."""
    return F.lit(now + AHEAD)


def time_column(name: str) -> str:
    """Name of the column with the time field `name` as a timestamp, null where its text is no time."""
    return f"_{name}"


def suspicious() -> Column:
    """True where a text value may have been another JSON value: then DOCUMENT tells."""
    texts = [_field(f.name) for f in distinct_fields() if f.kind in (Kind.TEXT, Kind.TIME)]
    texts += [_field(f"entity.{part}") for part in ENTITY_PARTS]
    return F.coalesce(_any(F.rlike(text, F.lit(_NOT_TEXT_PERHAPS)) for text in texts), F.lit(False))


def _field(name: str) -> Column:
    return F.col(f"{ANY_LINE}.{name}")


def validation_error() -> Column:
    """Null for a good line, else the Reason and the field at fault, as `reason:field` or `reason:`."""
    version, kind = _field("v"), _field("type")
    version_field, type_field = COMMON[:2]
    unknown_type = _broken(~kind.isin(list(FIELDS)), Reason.UNKNOWN_TYPE, "type")
    by_type = [F.when(kind == name, F.coalesce(*_of_type(fields))) for name, fields in FIELDS.items()]
    return F.coalesce(
        *_whole_line(),
        *_values([version_field]),
        _broken(~version.isin(list(VERSIONS)), Reason.UNKNOWN_VERSION, "v"),
        *_values([type_field]),
        unknown_type,
        *by_type,
    )


def error_parts(error: Column) -> tuple[Column, Column]:
    """`reason` and `field` (null where no single one is at fault) of a validation error."""
    reason, field = (F.split_part(error, F.lit(":"), F.lit(part)) for part in (1, 2))
    return reason.alias("reason"), F.nullif(field, F.lit("")).alias("field")


def _whole_line() -> list[Column]:
    raw, document = F.col(RAW), F.col(DOCUMENT)
    no_json = F.col(MISFIT) & document.isNull()
    # A line is one object, so a cut one opens more than it closes. Braces inside texts only matter for the name of the fault.
    opens, closes = (F.length(raw) - F.length(F.replace(raw, F.lit(brace))) for brace in "{}")
    cut = F.startswith(raw, F.lit("{")) & (opens > closes)
    return [
        _broken(F.trim(raw) == "", Reason.EMPTY),
        _broken(~F.is_valid_utf8(raw), Reason.NOT_UTF8),
        _broken(no_json & cut, Reason.CUT),
        _broken(no_json, Reason.NOT_JSON),
        _broken(F.col(MISFIT) & ~F.startswith(F.schema_of_variant(document), F.lit("OBJECT")), Reason.NOT_AN_OBJECT),
    ]


def _of_type(fields: tuple[Field, ...]) -> list[Column]:
    rules = _values([*COMMON[2:], *fields])
    if any(field.name == "end" for field in fields):
        ends_first = F.col(time_column("end")) <= F.col(time_column("start"))
        rules.append(_broken(ends_first, Reason.BAD_INTERVAL, "end"))
    return rules


def _values(fields: Sequence[Field]) -> list[Column]:
    """The rules for single values: each has its type, is there, and can be true."""
    wrong_types = [F.when(_has_wrong_type(field), _why_no_value(field)) for field in fields]
    missing = [_broken(_field(field.name).isNull(), Reason.MISSING, field.name) for field in fields if field.required]
    # Without DOCUMENT no type is wrong: asked once, not once a field.
    large = [_broken(_has_large_count(field.name), Reason.TOO_LARGE, field.name) for field in fields if field.kind is Kind.COUNTS]
    return [
        F.when(F.col(DOCUMENT).isNotNull(), F.coalesce(*large, *wrong_types)),
        *missing,
        *(rule for field in fields for rule in _value(field)),
    ]


def _value(field: Field) -> list[Column]:
    value = _field(field.name)
    rules: list[Column] = []
    match field.kind:
        case Kind.COUNT:
            rules += _count(value, field.name)
        case Kind.API_KEY:
            rules += _count(value, field.name, least=-1)
        case Kind.COUNTS:
            counts = F.map_values(value)
            no_count = _broken(F.exists(counts, lambda count: count.isNull()), Reason.WRONG_TYPE, field.name)
            several = [no_count, *_count(F.array_min(counts), field.name), *_count(F.array_max(counts), field.name)]
            rules.append(F.when(F.size(value) > 0, F.coalesce(*several)))
        case Kind.TIME:
            time = F.col(time_column(field.name))
            rules.append(_broken(value.isNotNull() & time.isNull(), Reason.BAD_TIME, field.name))
            out_of_range = ~time.between(F.lit(EARLIEST).cast("timestamp"), F.col(LATEST))
            rules.append(_broken(out_of_range, Reason.WRONG_CLOCK, field.name))
        case Kind.NUMBER:
            # 1e999 is valid JSON, and becomes infinity.
            rules.append(_broken(F.abs(value) == float("inf"), Reason.TOO_LARGE, field.name))
        case Kind.TEXT | Kind.TEXTS | Kind.ENTITY:
            pass
    return rules


def _count(value: Column, name: str, least: int = 0) -> list[Column]:
    return [_broken(value < least, Reason.NEGATIVE, name), _broken(value > LARGEST_COUNT, Reason.TOO_LARGE, name)]


def _has_wrong_type(field: Field) -> Column:
    """True where DOCUMENT has a value for the field which is not of its kind."""
    match field.kind:
        case Kind.TEXT | Kind.TIME:
            wrong = ~_json_type(field.name).isin("STRING", "VOID")
        case Kind.ENTITY:
            parts = [_json_type(f"{field.name}.{part}") for part in ENTITY_PARTS]
            no_object = ~F.startswith(_json_type(field.name), F.lit("OBJECT"))
            wrong = no_object | _any(F.coalesce(~part.isin("STRING", "VOID"), F.lit(False)) for part in parts)
        case _:
            # All other kinds are parsed by type: what is there and did not become a value was of another type.
            wrong = (_json_type(field.name) != "VOID") & _field(field.name).isNull()
    return wrong


def _why_no_value(field: Field) -> Column:
    """WRONG_TYPE, but for whole numbers that do not fit in 64 bits: these are counts that cannot be true."""
    wrong = F.lit(f"{Reason.WRONG_TYPE.value}:{field.name}")
    if field.kind not in (Kind.COUNT, Kind.API_KEY):
        return wrong
    # One text of SQL rather than columns: it is built by one call of Java.
    number = f"try_variant_get({DOCUMENT}, '$.{field.name}', 'double')"
    is_number = f"startswith(schema_of_variant(try_variant_get({DOCUMENT}, '$.{field.name}', 'variant')), 'D')"
    large, negative = (f"{reason.value}:{field.name}" for reason in (Reason.TOO_LARGE, Reason.NEGATIVE))
    reason = f"case when {number} >= {_BEYOND} then '{large}' when {number} <= -{_BEYOND} then '{negative}' end"
    return F.coalesce(F.expr(f"case when {is_number} then {reason} end"), wrong)


def _has_large_count(name: str) -> Column:
    """True where an object of counts has one that does not fit in 64 bits."""
    return F.expr(f"array_max(map_values(try_variant_get({DOCUMENT}, '$.{name}', 'map<string,double>'))) >= {_BEYOND}")


def _json_type(path: str) -> Column:
    """The type of DOCUMENT's value at `path` in Spark's words; null where there is none."""
    return F.schema_of_variant(F.try_variant_get(F.col(DOCUMENT), f"$.{path}", "variant"))


def _broken(condition: Column, reason: Reason, field: str = "") -> Column:
    # One text rather than a struct: a rule is built of half as many Java calls, which is a second of every report.
    return F.when(condition, f"{reason.value}:{field}")


def _any(conditions: Iterable[Column]) -> Column:
    result = F.lit(False)
    for condition in conditions:
        result = result | condition
    return result
