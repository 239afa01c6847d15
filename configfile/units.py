"""Types of settings: what people write, what the program gets. Every refusal says what would be right."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, NamedTuple

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)?")
_FACTOR = {None: 1, "B": 1, "kB": 1000, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_FACTOR |= {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SHORT = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_ISO = re.compile(
    r"P(?:(\d+(?:\.\d+)?)D)?(?:T(?=\d)(?:(\d+(?:\.\d+)?)H)?(?:(\d+(?:\.\d+)?)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def parse_size(value: object) -> int:
    """Bytes: a whole number, or a number with a unit (kB = 1000, KiB = 1024)."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError("a size, such as 64MiB or 1048576")
    match = _SIZE.fullmatch(str(value).strip())
    if not match:
        raise ValueError("a size, such as 64MiB or 1048576")
    return round(float(match[1]) * _FACTOR[match[2]])


def parse_duration(value: object) -> float:
    """Seconds: ISO 8601 (PT1M, PT0.5S, P1D) or a number with ms, s, m, h or d. Weeks, months and years are refused, and
    negative ones."""
    wanted = "a duration, such as 30s, 500ms, PT1M or P1D"
    if isinstance(value, bool) or not isinstance(value, int | str) or (isinstance(value, int) and value):
        raise ValueError(wanted)
    text = str(value).strip()
    if text == "0":
        return 0.0
    if match := _SHORT.fullmatch(text):
        return float(match[1]) * _SECONDS[match[2]]
    match = _ISO.fullmatch(text)
    if not match or not any(match.groups()):
        raise ValueError(wanted)
    days, hours, minutes, seconds = (float(group or 0) for group in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


ANY_HOST = "0.0.0.0"  # noqa: S104


class HostPort(NamedTuple):
    """An address. IPv6 hosts are written in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_host_port(value: object) -> HostPort:
    """host:port or [ipv6]:port; the host may be left out to mean all addresses of this machine."""
    if isinstance(value, HostPort):
        return value
    wanted = "an address, such as kafka-0.example.com:9092 or [::1]:9092"
    host, colon, port = str(value).strip().rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 0xFFFF:
        raise ValueError(wanted)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or " " in host or "/" in host:
        raise ValueError(wanted)
    return HostPort(host or ANY_HOST, int(port))


def as_text(example: str) -> WithJsonSchema:
    """In a JSON schema these are strings; here they are what their parser makes of them."""
    return WithJsonSchema({"type": "string", "examples": [example]})


SIZE_TEXT: Final = r"^\s*[0-9]+(\.[0-9]+)?\s*(B|[kK]B|MB|GB|TB|KiB|MiB|GiB|TiB)?\s*$"
"""What `parse_size` takes, for JSON schemas; people see it where a text does not fit."""
DURATION_TEXT: Final = (
    r"^\s*(0|[0-9]+(\.[0-9]+)?\s*(ms|s|m|h|d)|[Pp]([0-9.]+[Dd])?([Tt]([0-9.]+[Hh])?([0-9.]+[Mm])?([0-9.]+[Ss])?)?)\s*$"
)
"""What `parse_duration` takes, and a few mistakes in ISO 8601, such as `PT`: a pattern without them could not be read."""


def _as_quantity(example: str, pattern: str, **more: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": ["string", "integer"], "pattern": pattern, "examples": [example], **more})


Size = Annotated[int, BeforeValidator(parse_size), _as_quantity("64MiB", SIZE_TEXT, minimum=0)]
Duration = Annotated[
    float, BeforeValidator(parse_duration), _as_quantity("30s", DURATION_TEXT, **{"not": {"type": "integer", "minimum": 1}})
]


def parse_server(value: object) -> HostPort:
    """An address to connect to: it has a host and a port."""
    server = parse_host_port(value)
    if server.port == 0 or server.host == ANY_HOST:
        raise ValueError("the address of a server, such as kafka-0.example.com:9092")
    return server


Server = Annotated[HostPort, PlainValidator(parse_server), PlainSerializer(str), as_text("kafka-0.example.com:9092")]
