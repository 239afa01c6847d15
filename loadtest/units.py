"""Types of the keys of a scenario: what people write, what the program gets. Every refusal says what would be right."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from configfile.units import as_text, parse_duration, parse_size

MAX: Final = "max"


def _rate(value: object) -> float | Literal["max"]:
    if value == MAX:
        return "max"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e7:
        raise ValueError("a rate above 0, in operations per second, such as 200, or max for as fast as possible")
    return float(value)


def _share(value: object) -> float:
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 10:
        raise ValueError("a share, such as 5% or 0.05")
    return share


def _amount(value: object) -> float:
    if isinstance(value, float):
        return value
    return float(parse_size(value))


def _some_time(value: object) -> float:
    seconds = parse_duration(value)
    if seconds <= 0:
        raise ValueError("a duration above 0, such as 30s")
    return seconds


Rate = Annotated[
    float | Literal["max"],
    BeforeValidator(_rate),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"const": MAX}]}),
]
Share = Annotated[float, BeforeValidator(_share), WithJsonSchema({"type": ["string", "number"], "examples": ["5%"]})]
Amount = Annotated[
    float,
    BeforeValidator(_amount),
    Field(gt=0),
    WithJsonSchema({"type": ["string", "number"], "examples": ["2MiB", 200], "exclusiveMinimum": 0}),
]
_AS_TEXT: Final = PlainSerializer(lambda seconds: f"{seconds:f}".rstrip("0").rstrip(".") + "s", when_used="json")
Duration = Annotated[float, BeforeValidator(parse_duration), _AS_TEXT, as_text("30s")]
SomeTime = Annotated[float, BeforeValidator(_some_time), _AS_TEXT, as_text("30s")]


Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,60}$")]
"""A name that can be part of a topic's."""
