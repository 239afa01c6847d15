"""Any value as JSON in UTF-8, come what may: what is said of a fault must not be a fault itself.

In: a value. Out: bytes. What JSON or UTF-8 has no form for is written as text, with `?` for what is no Unicode."""

from __future__ import annotations

from typing import Any, Final

import orjson

_OPTIONS: Final = orjson.OPT_NON_STR_KEYS
_DEEPEST: Final = 20
_LARGEST: Final = 1 << 63


def as_json(value: Any) -> bytes:
    """Never raises."""
    try:
        return orjson.dumps(value, default=str, option=_OPTIONS)
    except Exception:  # a lone surrogate, a number beyond 64 bits, an object that cannot be printed, a circle
        return orjson.dumps(_plain(value, _DEEPEST))


def _plain(value: Any, deepest: int) -> Any:
    """The same, of types and texts that JSON has."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and -_LARGEST <= value < _LARGEST:
        return int(value)
    if isinstance(value, dict) and deepest:
        return {_text(key): _plain(each, deepest - 1) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and deepest:
        return [_plain(each, deepest - 1) for each in value]
    return _text(value)


def _text(value: Any) -> str:
    try:
        return str(value).encode(errors="replace").decode()
    except Exception:
        return f"<{type(value).__name__}>"
