"""A report's values read back from `summary.json`.

In: the text of the file. Out: the `Report` that was written, or None where it is not one of this version. Left to others:
writing it (`reports.pipeline`).
"""

import json
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from reports.summary.model import Report


def read_report(text: str) -> Report | None:
    """The report in a `summary.json`; None where a value is missing, is unknown, or has another type than the model says."""
    try:
        found = _value(Report, json.loads(text))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, Report) else None


def _value(kind: Any, value: Any) -> Any:
    """`value`, as JSON has it, as a `kind`.

    Raises:
        ValueError: it is not one.
    """
    if get_origin(kind) is UnionType:
        (of_value,) = (one for one in get_args(kind) if one is not NoneType)
        return None if value is None else _value(of_value, value)
    if get_origin(kind) is tuple:
        return _items(get_args(kind), value)
    if is_dataclass(kind) and isinstance(kind, type):
        return _fields(kind, value)
    if kind is datetime and isinstance(value, str):
        return datetime.fromisoformat(value)
    numbers = (int, float) if kind is float else (int,)
    allowed = numbers if kind in (int, float) else (kind,)
    if not isinstance(value, allowed) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{value!r} is no {kind}")
    return value


def _items(kinds: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is no list")
    each = kinds[:1] * len(value) if kinds[-1] is Ellipsis else kinds
    return tuple(_value(kind, item) for kind, item in zip(each, value, strict=True))


def _fields(kind: type, value: Any) -> Any:
    hints = get_type_hints(kind)
    known = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not isinstance(value, dict) or not needed <= value.keys() <= known:
        raise ValueError(f"not the fields of {kind.__name__}")
    return kind(**{name: _value(hints[name], item) for name, item in value.items()})
