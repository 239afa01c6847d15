"""kio behind a gate. In: bodies. Out: kio entities, or `BadBytes`; and the other way round.

kio allocates what a length claims (a few bytes can abort the process) and raises KeyError, ValueError or OverflowError
on what a newer peer may send. So every body passes `layout` first, and whatever kio raises after that becomes
`BadBytes`."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from proxy.wire.headers import response_body
from proxy.wire.layout import Entity, layout_of
from proxy.wire.primitives import INT16, INT32, BadBytes, encode_string


@cache
def request_layout(key: int, version: int) -> Entity:
    """The layout of a request body."""
    return layout_of(load_request_schema(key, version))


@cache
def response_layout(key: int, version: int) -> Entity:
    """The layout of a response body."""
    return layout_of(load_response_schema(key, version))


def decode_request(key: int, version: int, body: bytes) -> Any:
    """The kio entity of a request body."""
    return _decode(load_request_schema(key, version), body, 0)


def parts_of(schema: Any) -> Any:
    """The module with kio's classes of the structures within a message. Each version of a message has classes of its own."""
    return import_module(schema.__module__)


def encoded(entity: Any) -> bytes:
    """The bytes of a kio entity."""
    out = BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def decode_response(key: int, version: int, frame: bytes) -> Any:
    """The kio entity in a whole response frame, its 4-byte size included."""
    return _decode(load_response_schema(key, version), frame, response_body(frame, 0, len(frame), key, version))


def encode_response(correlation_id: int, body: Any) -> bytes:
    """A whole response frame, its 4-byte size included."""
    return response_frame(correlation_id, encoded(body), tagged=type(body).__header_schema__.__version__ == 1)


def encode_request(correlation_id: int, client_id: str, body: Any) -> bytes:
    """A whole request frame, its 4-byte size included."""
    entity = type(body)
    tagged = entity.__header_schema__.__version__ == 2
    return request_frame(int(entity.__api_key__), int(entity.__version__), correlation_id, client_id, encoded(body), tagged=tagged)


def request_frame(key: int, version: int, correlation_id: int, client_id: str, body: bytes, *, tagged: bool) -> bytes:
    """A whole request frame around a body; `tagged`: the header has tagged fields."""
    header = INT16.pack(key) + INT16.pack(version) + INT32.pack(correlation_id)
    header += encode_string(client_id, compact=False) + (b"\0" if tagged else b"")
    return INT32.pack(len(header) + len(body)) + header + body


def response_frame(correlation_id: int, body: bytes, *, tagged: bool) -> bytes:
    """A whole response frame around a body; `tagged`: the header has tagged fields."""
    header = INT32.pack(correlation_id) + (b"\0" if tagged else b"")
    return INT32.pack(len(header) + len(body)) + header + body


def _decode(entity: Any, buf: bytes, pos: int) -> Any:
    layout_of(entity, strict=True).skip(buf, pos, len(buf))
    try:
        decoded, _ = entity_reader(entity)(buf, pos)
    except (SerialError, ValueError, KeyError, OverflowError) as e:
        raise BadBytes(f"{entity.__name__} v{entity.__version__}: {e}") from e
    return decoded
