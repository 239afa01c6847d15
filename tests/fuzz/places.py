"""Where the lengths of a message stand, so that they can be made to lie. In: a layout and a body. Out: places.

A `Place` is the length of an array, of a string or of bytes, or the number of tagged fields, in its compact or its old form."""

from __future__ import annotations

from typing import NamedTuple

from proxy.wire.headers import API_VERSIONS, CLIENT_ID_AT, client_id_end, flexible
from proxy.wire.kio_bridge import request_layout, response_layout
from proxy.wire.layout import Array, Blob, EndpointPart, Entity, Layout, Nullable, Text
from proxy.wire.primitives import INT16, INT32, span, uvarint


class Place(NamedTuple):
    """frame[start:stop] is a length, a varint if `compact`; `kind` is "array", "text", "bytes" or "tags"."""

    start: int
    stop: int
    compact: bool
    kind: str


def request_places(frame: bytes, key: int, version: int) -> list[Place]:
    """Of a whole valid request, that of its client id included."""
    stop = client_id_end(frame, 0, len(frame))
    found = [Place(CLIENT_ID_AT, CLIENT_ID_AT + 2, False, "text")]
    if flexible(key, version):
        found.append(Place(stop, stop + 1, True, "tags"))
        stop += 1
    _walk(request_layout(key, version), frame, stop, found)
    return found


def response_places(frame: bytes, key: int, version: int) -> list[Place]:
    """Of a whole valid response."""
    found = []
    pos = 8
    if flexible(key, version) and key != API_VERSIONS:
        found.append(Place(pos, pos + 1, True, "tags"))
        pos += 1
    _walk(response_layout(key, version), frame, pos, found)
    return found


def _walk(part: Layout, buf: bytes, pos: int, found: list[Place]) -> int:
    """Add the places of this part; the position behind it."""
    match part:
        case Entity():
            return _tags(part, buf, _fields(part, buf, pos, found), found)
        case Array():
            count, first = part.count(buf, pos, len(buf))
            found.append(Place(pos, first, part.compact, "array"))
            pos = first
            for _ in range(count):
                pos = _walk(part.element, buf, pos, found)
            return pos
        case Nullable():
            return _walk(part.inner, buf, pos + 1, found) if buf[pos] < 0x80 else pos + 1
        case EndpointPart():
            return _walk(Text(part.compact), buf, pos, found) + part.port_size
        case Text() | Blob():
            width = INT16 if isinstance(part, Text) else INT32
            behind = uvarint(buf, pos, len(buf))[1] if part.compact else pos + width.size
            found.append(Place(pos, behind, part.compact, "text" if isinstance(part, Text) else "bytes"))
            return span(buf, pos, len(buf), part.compact, width)[1]
        case _:
            return part.skip(buf, pos, len(buf))


def _fields(part: Entity, buf: bytes, pos: int, found: list[Place]) -> int:
    for _, field in part.fields:
        pos = _walk(field, buf, pos, found)
    return pos


def _tags(part: Entity, buf: bytes, pos: int, found: list[Place]) -> int:
    if part.tagged is None:
        return pos
    count, behind = uvarint(buf, pos, len(buf))
    found.append(Place(pos, behind, True, "tags"))
    pos = behind
    for _ in range(count):
        tag, at = uvarint(buf, pos, len(buf))
        size, pos = uvarint(buf, at, len(buf))
        found.append(Place(at, pos, True, "bytes"))
        if tag in part.tagged:
            _walk(part.tagged[tag], buf, pos, found)
        pos += size
    return pos
