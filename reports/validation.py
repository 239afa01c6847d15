"""The rules for valid lines, and the reason why a line is not valid.

In: the columns that `reports.parse` lays out. Out: one column, null for a good line, else which rule it broke and with which
field. The first broken rule wins; rules run from the outside (is it text?) to the inside (does the interval end after it
starts?), and nothing of a line is judged before its version and type are known. Left to others: where bad lines go
(`reports.transforms.quarantine`).

Rules are SQL, as text, which Spark parses in no time: as columns they were 18,000 calls of Java, and took two seconds.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from reports.reasons import Reason
from reports.schema import COMMON, ENTITY_PARTS, FIELDS, LARGEST_COUNT, VERSIONS, Field, Kind, distinct_fields
from reports.sql import text_list

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
ERROR = "_error"
"""Column: `validation_error`."""
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


def field_value(name: str) -> str:
    """The field `name` of a line, in SQL."""
    return f"{ANY_LINE}.`{name.replace('.', '`.`')}`"


def suspicious() -> str:
    """SQL: true where a text value may have been another JSON value; then DOCUMENT tells."""
    texts = [f.name for f in distinct_fields() if f.kind in (Kind.TEXT, Kind.TIME)]
    texts += [f"entity.{part}" for part in ENTITY_PARTS]
    perhaps = " or ".join(f"rlike({field_value(text)}, r'{_NOT_TEXT_PERHAPS}')" for text in texts)
    return f"coalesce({perhaps}, false)"


def validation_error() -> str:
    """SQL: null for a good line, else the Reason and the field at fault, as `reason:field` or `reason:`."""
    version, kind = field_value("v"), field_value("type")
    version_field, type_field = COMMON[:2]
    versions = ", ".join(map(str, VERSIONS))
    return _first(
        [
            *_whole_line(),
            *_values([version_field]),
            _broken(f"{version} not in ({versions})", Reason.UNKNOWN_VERSION, "v"),
            *_values([type_field]),
            _broken(f"{kind} not in ({text_list(FIELDS)})", Reason.UNKNOWN_TYPE, "type"),
            *(_when(f"{kind} = '{name}'", _first(_of_type(fields))) for name, fields in FIELDS.items()),
        ]
    )


def error_parts() -> list[str]:
    """SQL: `reason` and `field` (null where no single one is at fault) of ERROR."""
    return [f"split_part({ERROR}, ':', 1) as reason", f"nullif(split_part({ERROR}, ':', 2), '') as field"]


def _whole_line() -> list[str]:
    no_json = f"{MISFIT} and {DOCUMENT} is null"
    # A line is one object, so a cut one opens more than it closes. Braces inside texts only matter for the name of the fault.
    opens, closes = (f"length({RAW}) - length(replace({RAW}, '{brace}'))" for brace in "{}")
    cut = f"startswith({RAW}, '{{') and {opens} > {closes}"
    return [
        _broken(f"trim({RAW}) = ''", Reason.EMPTY),
        _broken(f"not is_valid_utf8({RAW})", Reason.NOT_UTF8),
        _broken(f"{no_json} and {cut}", Reason.CUT),
        _broken(no_json, Reason.NOT_JSON),
        _broken(f"{MISFIT} and not startswith(schema_of_variant({DOCUMENT}), 'OBJECT')", Reason.NOT_AN_OBJECT),
    ]


def _of_type(fields: tuple[Field, ...]) -> list[str]:
    rules = _values([*COMMON[2:], *fields])
    if any(field.name == "end" for field in fields):
        rules.append(_broken(f"{time_column('end')} <= {time_column('start')}", Reason.BAD_INTERVAL, "end"))
    return rules


def _values(fields: Sequence[Field]) -> list[str]:
    """The rules for single values: each has its type, is there, and can be true."""
    wrong_types = [_when(_has_wrong_type(field), _why_no_value(field)) for field in fields]
    missing = [_broken(f"{field_value(field.name)} is null", Reason.MISSING, field.name) for field in fields if field.required]
    # Without DOCUMENT no type is wrong: asked once, not once a field.
    large = [_broken(_has_large_count(field.name), Reason.TOO_LARGE, field.name) for field in fields if field.kind is Kind.COUNTS]
    return [
        _when(f"{DOCUMENT} is not null", _first([*large, *wrong_types])),
        *missing,
        *(rule for field in fields for rule in _value(field)),
    ]


def _value(field: Field) -> list[str]:
    value = field_value(field.name)
    match field.kind:
        case Kind.COUNT:
            return _count(value, field.name)
        case Kind.API_KEY:
            return _count(value, field.name, least=-1)
        case Kind.COUNTS:
            counts = f"map_values({value})"
            no_count = _broken(f"exists({counts}, count -> count is null)", Reason.WRONG_TYPE, field.name)
            several = [no_count, *_count(f"array_min({counts})", field.name), *_count(f"array_max({counts})", field.name)]
            return [_when(f"size({value}) > 0", _first(several))]
        case Kind.TIME:
            time = time_column(field.name)
            out_of_range = f"{time} not between cast('{EARLIEST}' as timestamp) and {LATEST}"
            return [
                _broken(f"{value} is not null and {time} is null", Reason.BAD_TIME, field.name),
                _broken(out_of_range, Reason.WRONG_CLOCK, field.name),
            ]
        case Kind.NUMBER:
            # 1e999 is valid JSON, and becomes infinity.
            return [_broken(f"abs({value}) = cast('Infinity' as double)", Reason.TOO_LARGE, field.name)]
        case Kind.TEXT | Kind.TEXTS | Kind.ENTITY:
            return []


def _count(value: str, name: str, least: int = 0) -> list[str]:
    return [_broken(f"{value} < {least}", Reason.NEGATIVE, name), _broken(f"{value} > {LARGEST_COUNT}", Reason.TOO_LARGE, name)]


def _has_wrong_type(field: Field) -> str:
    """True where DOCUMENT has a value for the field which is not of its kind."""
    match field.kind:
        case Kind.TEXT | Kind.TIME:
            return f"{_json_type(field.name)} not in ('STRING', 'VOID')"
        case Kind.ENTITY:
            parts = [_json_type(f"{field.name}.{part}") for part in ENTITY_PARTS]
            no_object = f"not startswith({_json_type(field.name)}, 'OBJECT')"
            return " or ".join([no_object, *(f"coalesce({part} not in ('STRING', 'VOID'), false)" for part in parts)])
        case _:
            # All other kinds are parsed by type: what is there and did not become a value was of another type.
            return f"{_json_type(field.name)} != 'VOID' and {field_value(field.name)} is null"


def _why_no_value(field: Field) -> str:
    """WRONG_TYPE, but for whole numbers that do not fit in 64 bits: these are counts that cannot be true."""
    wrong = f"'{Reason.WRONG_TYPE.value}:{field.name}'"
    if field.kind not in (Kind.COUNT, Kind.API_KEY):
        return wrong
    number = f"try_variant_get({DOCUMENT}, '$.{field.name}', 'double')"
    is_number = f"startswith({_json_type(field.name)}, 'D')"
    large, negative = (f"{reason.value}:{field.name}" for reason in (Reason.TOO_LARGE, Reason.NEGATIVE))
    reason = f"case when {number} >= {_BEYOND} then '{large}' when {number} <= -{_BEYOND} then '{negative}' end"
    return _first([_when(is_number, reason), wrong])


def _has_large_count(name: str) -> str:
    """True where an object of counts has one that does not fit in 64 bits."""
    return f"array_max(map_values(try_variant_get({DOCUMENT}, '$.{name}', 'map<string,double>'))) >= {_BEYOND}"


def _json_type(path: str) -> str:
    """The type of DOCUMENT's value at `path` in Spark's words; null where there is none."""
    return f"schema_of_variant(try_variant_get({DOCUMENT}, '$.{path}', 'variant'))"


def _broken(condition: str, reason: Reason, field: str = "") -> str:
    return _when(condition, f"'{reason.value}:{field}'")


def _when(condition: str, value: str) -> str:
    return f"case when {condition} then {value} end"


def _first(values: Sequence[str]) -> str:
    """The first value that is there."""
    return f"coalesce({', '.join(values)})"
