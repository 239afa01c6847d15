"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), versions 0-1 (KIP-546).

In: bodies. Out: filters, alterations, results; and requests and answers made of these. Entities are as on the wire: pairs of
type and name, None for the default. An answer about quotas keeps what the broker said as it is, but for entities that both
have something to say about."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from io import BytesIO
from typing import Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i32Timedelta

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import decode_request, decode_response, encode_request, encode_response, response_layout
from proxy.wire.layout import Rewriter
from proxy.wire.primitives import INT32, BadBytes, Buffer, encode_array_length

DESCRIBE: Final = 48
ALTER: Final = 49
VERSIONS: Final = (0, 1)
EXACT, DEFAULT_NAME, ANY_NAME = 0, 1, 2
"""kinds of match of a filter"""

Who = tuple[tuple[str, str | None], ...]
"""An entity: (type, name or None for the default) of each of its parts."""


class Component(NamedTuple):
    """One part of a filter."""

    type: str
    match_type: int
    match: str | None


class Filter(NamedTuple):
    """Which entities are asked for; `strict`: those that have no other parts than the components name."""

    components: tuple[Component, ...]
    strict: bool

    def matches(self, who: Who) -> bool:
        """Is this entity asked for?"""
        parts = dict(who)
        if self.strict and len(parts) != len(self.components):
            return False
        return all(component.type in parts and _fits(component, parts[component.type]) for component in self.components)


def _fits(component: Component, name: str | None) -> bool:
    if component.match_type == ANY_NAME:
        return True
    return name is None if component.match_type == DEFAULT_NAME else name == component.match


class Op(NamedTuple):
    """One limit to be set, or taken away."""

    key: str
    value: float
    remove: bool


class Entry(NamedTuple):
    """What is to be altered of one entity."""

    who: Who
    ops: tuple[Op, ...]


class Result(NamedTuple):
    """What became of one entity."""

    error: int
    message: str | None


DONE: Final = Result(0, None)


def read_filter(body: bytes, version: int) -> Filter:
    """What a DescribeClientQuotas request asks for."""
    request = decode_request(DESCRIBE, version, body)
    return Filter(tuple(Component(c.entity_type, c.match_type, c.match) for c in _all(request.components)), request.strict)


def read_alterations(body: bytes, version: int) -> tuple[list[Entry], bool]:
    """(what an AlterClientQuotas request wants, whether it only wants to know if that would do)."""
    request = decode_request(ALTER, version, body)
    entries = [
        Entry(_who(entry.entity), tuple(Op(op.key, float(op.value), op.remove) for op in _all(entry.ops)))
        for entry in _all(request.entries)
    ]
    return entries, request.validate_only


def alter_request(correlation_id: int, client_id: str, version: int, entries: Sequence[Entry], *, validate_only: bool) -> bytes:
    """A whole AlterClientQuotas request."""
    schema = load_request_schema(ALTER, version)
    parts = _parts(schema)
    made = tuple(
        parts.EntryData(
            entity=_entity(parts, entry.who),
            ops=tuple(parts.OpData(key=op.key, value=op.value, remove=op.remove) for op in entry.ops),
        )
        for entry in entries
    )
    return encode_request(correlation_id, client_id, schema(entries=made, validate_only=validate_only))  # type: ignore[call-arg]


def read_results(frame: bytes, version: int) -> tuple[int, dict[frozenset[tuple[str, str | None]], Result]]:
    """(throttle time in ms, what became of each entity) of an AlterClientQuotas response."""
    response = decode_response(ALTER, version, frame)
    results = {frozenset(_who(e.entity)): Result(int(e.error_code), e.error_message) for e in _all(response.entries)}
    return _ms(response.throttle_time), results


def alter_response(correlation_id: int, version: int, throttle_ms: int, results: Sequence[tuple[Who, Result]]) -> bytes:
    """A whole AlterClientQuotas response."""
    schema = load_response_schema(ALTER, version)
    parts = _parts(schema)
    entries = tuple(
        parts.EntryData(error_code=ErrorCode(result.error), error_message=result.message, entity=_entity(parts, who))
        for who, result in results
    )
    time = i32Timedelta.parse(timedelta(milliseconds=throttle_ms))
    return encode_response(correlation_id, schema(throttle_time=time, entries=entries))  # type: ignore[call-arg]


def describe_request(correlation_id: int, client_id: str, version: int, wanted: Filter) -> bytes:
    """A whole DescribeClientQuotas request."""
    schema = load_request_schema(DESCRIBE, version)
    parts = _parts(schema)
    components = tuple(parts.ComponentData(entity_type=c.type, match_type=c.match_type, match=c.match) for c in wanted.components)
    return encode_request(correlation_id, client_id, schema(components=components, strict=wanted.strict))  # type: ignore[call-arg]


def read_description(frame: bytes, version: int) -> tuple[Result, dict[Who, dict[str, float]]]:
    """(whether it was done, limits by entity) of a DescribeClientQuotas response."""
    response = decode_response(DESCRIBE, version, frame)
    found = {_who(entry.entity): {v.key: float(v.value) for v in _all(entry.values)} for entry in response.entries or ()}
    return Result(int(response.error_code), response.error_message), found


def with_entries(frame: bytes, version: int, own: Mapping[Who, Mapping[str, float]]) -> list[Buffer] | None:
    """A DescribeClientQuotas response with these limits too; None when it is an error, and stays as it is."""
    response = decode_response(DESCRIBE, version, frame)
    if int(response.error_code) or response.entries is None:
        return None
    layout, parts = response_layout(DESCRIBE, version), _parts(type(response))
    end = len(frame)
    start = layout.skip_to("entries", frame, response_body(frame, 0, end, DESCRIBE, version), end)
    first, spans = layout.array("entries").elements(frame, start, end)
    left = {frozenset(who): (who, values) for who, values in own.items()}
    r = Rewriter(frame, start, end, lambda _: ("", 0))
    r.replace(start, first)  # the count, which is put in front at last
    count = len(spans)
    for entry, (at, stop) in zip(response.entries, spans, strict=True):
        shared = left.pop(frozenset(_who(entry.entity)), None)
        if shared is not None:
            values = {**{v.key: float(v.value) for v in _all(entry.values)}, **shared[1]}
            r.replace(at, stop, _entry(parts, _who(entry.entity), values))
    stop = spans[-1][1] if spans else first
    r.replace(stop, stop, *(_entry(parts, who, values) for who, values in left.values()))
    body: list[Buffer] = [memoryview(frame)[4:start], encode_array_length(count + len(left), layout.tagged is not None)]
    body += r.finish(end)
    return [INT32.pack(sum(map(len, body))), *body]


def _entry(parts: Any, who: Who, values: Mapping[str, float]) -> bytes:
    entry = parts.EntryData(
        entity=_entity(parts, who), values=tuple(parts.ValueData(key=key, value=value) for key, value in values.items())
    )
    out = BytesIO()
    entity_writer(type(entry))(out, entry)
    return out.getvalue()


def _parts(schema: Any) -> Any:
    """Where the classes of the parts of a message are."""
    return importlib.import_module(schema.__module__)


def _entity(parts: Any, who: Who) -> tuple[Any, ...]:
    return tuple(parts.EntityData(entity_type=kind, entity_name=name) for kind, name in who)


def _who(entity: Any) -> Who:
    return tuple((part.entity_type, part.entity_name) for part in _all(entity))


def _all(array: Any) -> Any:
    """An array that may not be null, which kio takes all the same."""
    if array is None:
        raise BadBytes("a null array where none may be")
    return array


def _ms(time: timedelta) -> int:
    return int(time.total_seconds() * 1000)
