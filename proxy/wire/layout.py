"""The shape of any message, compiled from kio's schema classes.

In: a kio entity class and the bytes of a body. Out: where the body ends, or `BadBytes`; or the body with every broker
address in it replaced.

Two things need it. kio allocates what a length on the wire claims, so a strict layout walks every length before kio may
see bytes that came over the wire; it also says no to tagged fields that kio would not survive. And addresses stand in
many responses: `rewrite` copies what it need not understand. Not for the hot path: that has readers of its own."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Generator, Hashable
from functools import cache
from typing import Any, Final, Protocol, cast

from proxy.wire.primitives import (
    INT8,
    INT32,
    BadBytes,
    Buffer,
    array,
    encode_string,
    encode_uvarint,
    fixed,
    span,
    string,
    uvarint,
)
from proxy.wire.steps import FEW

MAX_DEPTH: Final = 32
"""No message of the protocol nests deeper; schemas are finite, so this only guards the compiler."""

_FIXED: Final = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "float64": 8, "bool": 1,
    "uuid": 16, "error_code": 2, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8,
}  # fmt: skip

Endpoint = Callable[[int | None], tuple[str, int]]
"""node id (None where the message names none) -> (host, port) to show instead of the real one."""


class Rewriter:
    """A copy in progress: what is behind `copied` was not touched and is taken over as it is."""

    __slots__ = ("buf", "copied", "end", "endpoint", "out", "pos")

    def __init__(self, buf: Buffer, pos: int, end: int, endpoint: Endpoint) -> None:
        self.buf, self.pos, self.end, self.endpoint = buf, pos, end, endpoint
        self.copied = pos
        self.out: list[Buffer] = []

    def replace(self, start: int, stop: int, *new: Buffer) -> None:
        """Put `new` in the place of [start, stop)."""
        if start > self.copied:
            self.out.append(memoryview(self.buf)[self.copied : start])
        self.out.extend(new)
        self.copied = stop

    def finish(self, end: int) -> list[Buffer]:
        self.replace(end, end)
        return self.out


class Layout(Protocol):
    """A part of a message."""

    least: int
    """bytes that it takes at least"""
    holds_endpoint: bool

    def skip(self, buf: Buffer, pos: int, end: int) -> int: ...
    def rewrite(self, r: Rewriter) -> None: ...


class _Plain:
    """What has no address in it."""

    holds_endpoint = False

    def rewrite(self, r: Rewriter) -> None:
        r.pos = self.skip(r.buf, r.pos, r.end)

    def skip(self, buf: Buffer, pos: int, end: int) -> int:
        raise NotImplementedError


class Fixed(_Plain):
    def __init__(self, size: int) -> None:
        self.least = size

    def skip(self, buf: Buffer, pos: int, end: int) -> int:  # noqa: ARG002
        return fixed(pos, self.least, end)


class Text(_Plain):
    """A string that has to be UTF-8, as kio insists on it."""

    def __init__(self, compact: bool) -> None:
        self.compact, self.least = compact, 1 if compact else 2

    def skip(self, buf: Buffer, pos: int, end: int) -> int:
        return string(buf, pos, end, self.compact)[1]


class Blob(_Plain):
    """Bytes or records."""

    def __init__(self, compact: bool) -> None:
        self.compact, self.least = compact, 1 if compact else 4

    def skip(self, buf: Buffer, pos: int, end: int) -> int:
        return span(buf, pos, end, self.compact, INT32)[1]


class Array:
    def __init__(self, element: Layout, compact: bool) -> None:
        self.element, self.compact = element, compact
        self.least = 1 if compact else 4
        self.holds_endpoint = element.holds_endpoint

    def skip(self, buf: Buffer, pos: int, end: int) -> int:
        count, pos = self.count(buf, pos, end)
        if isinstance(self.element, Fixed):
            return pos + max(count, 0) * self.element.least
        for _ in range(count):
            pos = self.element.skip(buf, pos, end)
        return pos

    def count(self, buf: Buffer, pos: int, end: int) -> tuple[int, int]:
        """(number of elements, -1 when null; where the first starts)."""
        return array(buf, pos, end, self.compact, max(self.element.least, 1))

    def elements(self, buf: Buffer, pos: int, end: int) -> tuple[int, list[tuple[int, int]]]:
        """(where the first element starts, (start, end) of each). A null array has none."""
        count, pos = self.count(buf, pos, end)
        first, found = pos, []
        for _ in range(count):
            stop = self.element.skip(buf, pos, end)
            found.append((pos, stop))
            pos = stop
        return first, found

    def rewrite(self, r: Rewriter) -> None:
        count, r.pos = self.count(r.buf, r.pos, r.end)
        for _ in range(count):
            self.element.rewrite(r)


class Nullable:
    """An entity that may be null: a byte in front says so."""

    def __init__(self, inner: Layout) -> None:
        self.inner, self.least, self.holds_endpoint = inner, 1, inner.holds_endpoint

    def skip(self, buf: Buffer, pos: int, end: int) -> int:
        pos = fixed(pos, 1, end)
        return pos if INT8.unpack_from(buf, pos - 1)[0] < 0 else self.inner.skip(buf, pos, end)

    def rewrite(self, r: Rewriter) -> None:
        r.pos = fixed(r.pos, 1, r.end)
        if INT8.unpack_from(r.buf, r.pos - 1)[0] >= 0:
            self.inner.rewrite(r)


class EndpointPart:
    """Host and port, which stand side by side in every message; the id of their node was read just before, or there is none."""

    holds_endpoint = True

    def __init__(self, compact: bool, port_size: int) -> None:
        self.compact, self.port_size = compact, port_size
        self.least = (1 if compact else 2) + port_size

    def skip(self, buf: Buffer, pos: int, end: int) -> int:
        _, pos = string(buf, pos, end, self.compact)
        return fixed(pos, self.port_size, end)

    def rewrite_as(self, r: Rewriter, node_id: int | None) -> None:
        start = r.pos
        host, at = string(r.buf, start, r.end, self.compact)
        r.pos = fixed(at, self.port_size, r.end)
        if not host:  # no node, as FindCoordinator answers with an error: nothing to hide
            return
        new_host, new_port = r.endpoint(node_id)
        r.replace(start, r.pos, encode_string(new_host, self.compact), new_port.to_bytes(self.port_size, "big"))

    def rewrite(self, r: Rewriter) -> None:
        self.rewrite_as(r, None)


class Entity:
    """A struct: its fields in order, then its tagged fields when the version is flexible."""

    def __init__(self, fields: list[tuple[str, Layout]], tagged: dict[int, Layout] | None, strict: bool = False) -> None:
        self.fields, self.tagged, self._strict = fields, tagged, strict
        self.least = sum(part.least for _, part in fields) + (tagged is not None)
        self.tags_hold_endpoint = any(part.holds_endpoint for part in (tagged or {}).values())
        self.holds_endpoint = self.tags_hold_endpoint or any(part.holds_endpoint for _, part in fields)

    def skip(self, buf: Buffer, pos: int, end: int) -> int:
        for _, part in self.fields:
            pos = part.skip(buf, pos, end)
        return self.skip_tags(buf, pos, end)

    def skip_tags(self, buf: Buffer, pos: int, end: int) -> int:
        """The position behind its tagged fields, which start at `pos`."""
        if self.tagged is None:
            return pos
        count, pos = uvarint(buf, pos, end)
        for _ in range(count):
            pos = self._skip_tag(buf, pos, end)
        return pos

    def array(self, name: str) -> Array:
        """The array in the field of this name."""
        part = next(part for field, part in self.fields if field == name)
        assert isinstance(part, Array)
        return part

    def skip_to(self, name: str, buf: Buffer, pos: int, end: int) -> int:
        """Where the field of this name starts."""
        for field, part in self.fields:
            if field == name:
                return pos
            pos = part.skip(buf, pos, end)
        raise KeyError(name)

    def spans(self, buf: Buffer, pos: int, end: int, first: int = 0) -> dict[str, tuple[int, int]]:
        """Where each field that is not tagged stands: name -> (start, end); `pos` is where the field of number `first` starts."""
        found = {}
        for name, part in self.fields[first:]:
            stop = part.skip(buf, pos, end)
            found[name] = (pos, stop)
            pos = stop
        return found

    def read(self, buf: Buffer, pos: int, end: int) -> tuple[dict[str, tuple[int, int]], int]:
        """(`spans` of an entity that starts at `pos`, where it ends)."""
        found = {}
        for name, part in self.fields:
            stop = part.skip(buf, pos, end)
            found[name] = (pos, stop)
            pos = stop
        return found, self.skip_tags(buf, pos, end)

    def _skip_tag(self, buf: Buffer, pos: int, end: int) -> int:
        tag, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        stop = fixed(pos, size, end)
        part = (self.tagged or {}).get(tag)
        if part is None:
            if self._strict:
                raise BadBytes(f"tagged field {tag} is not known")
        elif part.skip(buf, pos, stop) != stop:
            raise BadBytes(f"tagged field {tag} is not as long as it says")
        return stop

    def rewrite(self, r: Rewriter) -> None:
        self.rewrite_fields(r, len(self.fields))
        if self.tagged is not None:
            self.rewrite_tags(r)

    def rewrite_fields(self, r: Rewriter, count: int) -> None:
        """The first `count` fields."""
        node_id: int | None = None
        for name, part in self.fields[:count]:
            if isinstance(part, EndpointPart):
                part.rewrite_as(r, node_id)
                continue
            start = r.pos
            part.rewrite(r)
            if name in ("node_id", "broker_id"):
                node_id = INT32.unpack_from(r.buf, start)[0]

    def rewrite_tags(self, r: Rewriter) -> None:
        count, r.pos = uvarint(r.buf, r.pos, r.end)
        for _ in range(count):
            tag, size_at = uvarint(r.buf, r.pos, r.end)
            size, start = uvarint(r.buf, size_at, r.end)
            r.pos = fixed(start, size, r.end)
            part = (self.tagged or {}).get(tag)
            if part is None or not part.holds_endpoint:
                continue
            inner = Rewriter(r.buf, start, r.pos, r.endpoint)
            part.rewrite(inner)
            data = b"".join(inner.finish(r.pos))
            r.replace(size_at, r.pos, encode_uvarint(len(data)), data)


TEXT: Final = Text(compact=False)


def old_entity(*fields: tuple[str, Layout]) -> Entity:
    """A struct of a version that is not flexible."""
    return Entity(list(fields), None)


def old_array(*fields: tuple[str, Layout]) -> Array:
    """An array of such structs."""
    return Array(old_entity(*fields), compact=False)


def rewriting_endpoints(layout: Entity, buf: Buffer, pos: int, end: int, endpoint: Endpoint) -> Generator[None, None, list[Buffer]]:
    """The body at [pos, end) in pieces, every broker address replaced. What follows the last address is not looked at. In steps
    where addresses stand in tagged fields only, behind everything else."""
    r = Rewriter(buf, pos, end, endpoint)
    last = max((i for i, (_, part) in enumerate(layout.fields) if part.holds_endpoint), default=-1)
    if not layout.tags_hold_endpoint:
        layout.rewrite_fields(r, last + 1)
    elif last >= 0:
        layout.rewrite(r)
    else:
        for _, part in layout.fields:
            r.pos = yield from skipping(part, buf, r.pos, end)
        layout.rewrite_tags(r)
    return r.finish(end)


def skipping(part: Layout, buf: Buffer, pos: int, end: int) -> Generator[None, None, int]:
    """`Layout.skip` in steps, for what may have very many elements."""
    if isinstance(part, Entity):
        for _, field in part.fields:
            pos = (yield from skipping(field, buf, pos, end)) if isinstance(field, Array) else field.skip(buf, pos, end)
        return part.skip_tags(buf, pos, end)
    if not isinstance(part, Array) or isinstance(part.element, Fixed):
        return part.skip(buf, pos, end)
    count, pos = part.count(buf, pos, end)
    for i in range(count):
        if i % FEW == FEW - 1:
            yield
        pos = yield from skipping(part.element, buf, pos, end)
    return pos


@cache
def layout_of(entity: Hashable, strict: bool = False) -> Entity:
    """The layout of a kio schema class; a strict one refuses tagged fields that are not known, as kio would not survive them."""
    return _entity(cast(type[Any], entity), strict, 0)


def _entity(entity: type[Any], strict: bool, depth: int) -> Entity:
    if depth > MAX_DEPTH:
        raise TypeError(f"{entity} nests too deep")
    hints = typing.get_type_hints(entity)
    compact = bool(entity.__flexible__)
    plain: list[tuple[str, Layout]] = []
    tagged: dict[int, Layout] = {}
    for f in dataclasses.fields(entity):
        part = _field(hints[f.name], f.metadata.get("kafka_type"), compact, lambda inner: _entity(inner, strict, depth + 1))
        if "tag" in f.metadata:
            tagged[f.metadata["tag"]] = part
        else:
            plain.append((f.name, part))
    return Entity(_with_endpoints(plain, compact), tagged if compact else None, strict)


def _with_endpoints(fields: list[tuple[str, Layout]], compact: bool) -> list[tuple[str, Layout]]:
    names = [name for name, _ in fields]
    if "host" not in names or "port" not in names:
        return fields
    at = names.index("host")
    if names[at + 1] != "port":
        raise TypeError("host and port do not stand side by side")
    return [*fields[:at], ("endpoint", EndpointPart(compact, fields[at + 1][1].least)), *fields[at + 2 :]]


def _field(hint: Any, kafka_type: str | None, compact: bool, entity: Callable[[type[Any]], Entity]) -> Layout:
    kinds = typing.get_args(hint)
    nullable = type(None) in kinds
    if nullable:
        (hint,) = (kind for kind in kinds if kind is not type(None))
    if typing.get_origin(hint) is tuple:
        return Array(_field(typing.get_args(hint)[0], kafka_type, compact, entity), compact)
    if dataclasses.is_dataclass(hint):
        inner = entity(cast(type[Any], hint))
        return Nullable(inner) if nullable else inner
    if kafka_type == "string":
        return Text(compact)
    if kafka_type in ("bytes", "records"):
        return Blob(compact)
    if kafka_type in _FIXED:
        return Fixed(_FIXED[kafka_type])
    raise TypeError(f"no layout for kafka type {kafka_type!r}")
