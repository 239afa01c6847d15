"""Types of the proxy's settings beside those that all files have. Every refusal says what would be right."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NamedTuple

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from configfile.units import (
    ANY_HOST,
    Duration,
    HostPort,
    Server,
    Size,
    as_text,
    parse_duration,
    parse_host_port,
    parse_server,
    parse_size,
)

__all__ = [
    "ANY_HOST",
    "Address",
    "BrokerIds",
    "Duration",
    "HostPort",
    "PortRange",
    "Ports",
    "Server",
    "Size",
    "Workers",
    "parse_broker_ids",
    "parse_duration",
    "parse_host_port",
    "parse_port_range",
    "parse_server",
    "parse_size",
]

MAX_WORKERS: Final = 256
_BROKER_IDS: Final = "a list of ids and ranges of ids, such as [101, 201, 301] or [100-109, 200-209]"


class PortRange(NamedTuple):
    """Ports from `first` to `last`, both included. (0, 0): whatever is free."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def parse_port_range(value: object) -> PortRange:
    """first-last, or 0 for whatever ports are free."""
    if isinstance(value, PortRange):
        return value
    first, dash, last = str(value).strip().partition("-")
    if str(value).strip() == "0":
        return PortRange(0, 0)
    if not (dash and first.isdecimal() and last.isdecimal() and 0 < int(first) <= int(last) <= 0xFFFF):
        raise ValueError("a range of ports, such as 9193-9292, or 0 for any free ports")
    return PortRange(int(first), int(last))


def parse_broker_ids(value: object) -> tuple[range, ...]:
    """Numbers and ranges of numbers, such as [101, 200-209], none of them twice."""
    if isinstance(value, tuple):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError(_BROKER_IDS)
    parts = tuple(map(_ids, value))
    for i, part in enumerate(parts):
        for other in parts[:i]:
            if both := range(max(part.start, other.start), min(part.stop, other.stop)):
                raise ValueError(f"a list in which no id stands twice, as {both.start} does")
    return parts


def _ids(value: object) -> range:
    first, dash, last = str(value).strip().partition("-")
    last = last if dash else first
    if isinstance(value, bool) or not (first.isdecimal() and last.isdecimal() and int(first) <= int(last) <= 0x7FFFFFFF):
        raise ValueError(_BROKER_IDS)
    return range(int(first), int(last) + 1)


def _as_list(ids: tuple[range, ...]) -> list[int | str]:
    return [part.start if len(part) == 1 else f"{part.start}-{part.stop - 1}" for part in ids]


def parse_workers(value: object) -> int | Literal["auto"]:
    """1 to `MAX_WORKERS`, or auto."""
    if value == "auto":
        return "auto"
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_WORKERS:
        return value
    raise ValueError(f"a number of processes from 1 to {MAX_WORKERS}, or auto")


Address = Annotated[HostPort, PlainValidator(parse_host_port), PlainSerializer(str), as_text("127.0.0.1:9192")]
Ports = Annotated[PortRange, PlainValidator(parse_port_range), PlainSerializer(str), as_text("9193-9292")]
_ONE_OR_SOME: Final = [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"}]
BrokerIds = Annotated[
    tuple[range, ...],
    PlainValidator(parse_broker_ids),
    PlainSerializer(_as_list),
    WithJsonSchema({"type": "array", "minItems": 1, "items": {"anyOf": _ONE_OR_SOME}}),
]
Workers = Annotated[
    int | Literal["auto"],
    PlainValidator(parse_workers),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_WORKERS}, {"const": "auto"}]}),
]
