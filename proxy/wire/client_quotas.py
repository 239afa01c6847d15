"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), versions 0-1 (KIP-546).

In: bodies. Out: filters, alterations, results; and requests and answers made of these. Entities are as on the wire: pairs of
type and name, None for the default. An answer about quotas keeps what the broker said as it is, but for entities that both
have something to say about."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.serial.errors import SerialError

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import (
    decode_request,
    decode_response,
    encode_request,
    encoded,
    parts_of,
    request_frame,
    response_frame,
    response_layout,
)
from proxy.wire.layout import layout_of
from proxy.wire.primitives import INT16, INT32, BadBytes, Buffer, encode_array_length, fixed
from proxy.wire.steps import FEW, MANY

DESCRIBE: Final = 48
ALTER: Final = 49
VERSIONS: Final = (0, 1)
FIRST_COMPACT: Final = 1
EXACT, DEFAULT_NAME, ANY_NAME = 0, 1, 2
"""kinds of match of a filter"""

T = TypeVar("T")
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
        """True if this entity is asked for."""
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
    components = dict.fromkeys(Component(c.entity_type, c.match_type, c.match) for c in _all(request.components))
    return Filter(tuple(components), request.strict)


def read_alterations(body: bytes, version: int) -> Generator[None, None, tuple[list[Entry], bool]]:
    """(what an AlterClientQuotas request wants, whether it only wants to know if that would do). In steps."""
    schema, end = load_request_schema(ALTER, version), len(body)
    entries: list[Entry] = []
    at = yield from _read_entries(schema, body, 0, lambda entry, _: entries.append(_alteration(entry)))
    layout_of(schema, strict=True).skip_tags(body, fixed(at, 1, end), end)
    return entries, body[at] != 0


def _alteration(entry: Any) -> Entry:
    return Entry(_who(entry.entity), tuple(Op(op.key, float(op.value), op.remove) for op in _all(entry.ops)))


def alter_request(
    correlation_id: int, client_id: str, version: int, entries: Sequence[Entry], *, validate_only: bool
) -> Generator[None, None, bytes]:
    """A whole AlterClientQuotas request, in steps."""
    parts, tags = parts_of(load_request_schema(ALTER, version)), b"\0" if version >= FIRST_COMPACT else b""

    def made(entry: Entry) -> bytes:
        ops = tuple(parts.OpData(key=op.key, value=op.value, remove=op.remove) for op in entry.ops)
        return encoded(parts.EntryData(entity=_entity(parts, entry.who), ops=ops))

    array = yield from _encode_entries(entries, made, version)
    body = array + (b"\1" if validate_only else b"\0") + tags
    return request_frame(ALTER, version, correlation_id, client_id, body, tagged=version >= FIRST_COMPACT)


def read_results(frame: bytes, version: int) -> Generator[None, None, tuple[int, dict[frozenset[tuple[str, str | None]], Result]]]:
    """(throttle time in ms, what became of each entity) of an AlterClientQuotas response, in steps."""
    start, results = response_body(frame, 0, len(frame), ALTER, version), {}

    def take(entry: Any, _: Buffer) -> None:
        results[frozenset(_who(entry.entity))] = Result(int(entry.error_code), entry.error_message)

    at = yield from _read_entries(load_response_schema(ALTER, version), frame, fixed(start, 4, len(frame)), take)
    layout_of(load_response_schema(ALTER, version), strict=True).skip_tags(frame, at, len(frame))
    return INT32.unpack_from(frame, start)[0], results


def alter_response(
    correlation_id: int, version: int, throttle_ms: int, results: Sequence[tuple[Who, Result]]
) -> Generator[None, None, bytes]:
    """A whole AlterClientQuotas response, in steps."""
    parts, compact = parts_of(load_response_schema(ALTER, version)), version >= FIRST_COMPACT

    def made(outcome: tuple[Who, Result]) -> bytes:
        who, result = outcome
        code, entity = ErrorCode(result.error), _entity(parts, who)
        return encoded(parts.EntryData(error_code=code, error_message=result.message, entity=entity))

    array = yield from _encode_entries(results, made, version)
    return response_frame(correlation_id, INT32.pack(throttle_ms) + array + (b"\0" if compact else b""), tagged=compact)


def _read_entries(schema: Any, buf: bytes, pos: int, take: Callable[[Any, Buffer], None]) -> Generator[None, None, int]:
    """Read the entries that stand there, each checked before kio may see it, and hand them over with their bytes; the position
    behind them. In steps."""
    view, array, end = memoryview(buf), layout_of(schema, strict=True).array("entries"), len(buf)
    read = entity_reader(parts_of(schema).EntryData)
    count, pos = array.count(buf, pos, end)
    if count < 0:
        raise BadBytes("a null array where none may be")
    for i in range(count):
        if i % FEW == FEW - 1:
            yield
        start, pos = pos, array.element.skip(buf, pos, end)
        try:
            entry, _ = read(buf, start)
        except (SerialError, ValueError, KeyError, OverflowError) as e:
            raise BadBytes(f"an entry of quotas: {e}") from e
        take(entry, view[start:pos])
    return pos


def _encode_entries(entries: Sequence[T], made: Callable[[T], bytes], version: int) -> Generator[None, None, bytes]:
    """An array of them, in steps."""
    found = [encode_array_length(len(entries), version >= FIRST_COMPACT)]
    for i, entry in enumerate(entries):
        if i % FEW == FEW - 1:
            yield
        found.append(made(entry))
    return b"".join(found)


def describe_request(correlation_id: int, client_id: str, version: int, wanted: Filter) -> bytes:
    """A whole DescribeClientQuotas request."""
    schema = load_request_schema(DESCRIBE, version)
    parts = parts_of(schema)
    components = tuple(parts.ComponentData(entity_type=c.type, match_type=c.match_type, match=c.match) for c in wanted.components)
    return encode_request(correlation_id, client_id, schema(components=components, strict=wanted.strict))  # type: ignore[call-arg]


def read_description(frame: bytes, version: int) -> tuple[Result, dict[Who, dict[str, float]]]:
    """(whether it was done, limits by entity) of a DescribeClientQuotas response."""
    response = decode_response(DESCRIBE, version, frame)
    found = {_who(entry.entity): {v.key: float(v.value) for v in _all(entry.values)} for entry in response.entries or ()}
    return Result(int(response.error_code), response.error_message), found


def is_error(frame: bytes, version: int) -> bool:
    """Is this DescribeClientQuotas response an error? The code stands behind the throttle time."""
    at = response_body(frame, 0, len(frame), DESCRIBE, version) + 4
    return bool(INT16.unpack_from(frame, fixed(at, 2, len(frame)) - 2)[0])


def with_entries(frame: bytes, version: int, own: Mapping[Who, Mapping[str, float]]) -> Generator[None, None, list[Buffer] | None]:
    """A DescribeClientQuotas response with these limits too; None when it is an error, and stays as it is. In steps."""
    schema, end = load_response_schema(DESCRIBE, version), len(frame)
    layout, parts = response_layout(DESCRIBE, version), parts_of(schema)
    start = layout.skip_to("entries", frame, response_body(frame, 0, end, DESCRIBE, version), end)
    count, _ = layout.array("entries").count(frame, start, end)
    if is_error(frame, version) or count < 0:
        return None
    left: dict[frozenset[tuple[str, str | None]], tuple[Who, Mapping[str, float]]] = {}
    for i, (who, values) in enumerate(own.items()):
        if i % MANY == MANY - 1:
            yield
        left[frozenset(who)] = who, values
    kept: list[Buffer] = []

    def take(entry: Any, as_it_is: Buffer) -> None:
        who = _who(entry.entity)
        shared = left.pop(frozenset(who), None)
        if shared is None:
            kept.append(as_it_is)
        else:
            kept.append(_entry(parts, who, {v.key: float(v.value) for v in _all(entry.values)} | dict(shared[1])))

    stop = yield from _read_entries(schema, frame, start, take)
    for i, (who, values) in enumerate(left.values()):
        if i % FEW == FEW - 1:
            yield
        kept.append(_entry(parts, who, values))
    total = encode_array_length(len(kept), layout.tagged is not None)
    body: list[Buffer] = [memoryview(frame)[4:start], total, b"".join(kept), memoryview(frame)[stop:]]
    return [INT32.pack(sum(map(len, body))), *body]


def _entry(parts: Any, who: Who, values: Mapping[str, float]) -> bytes:
    made = tuple(parts.ValueData(key=key, value=value) for key, value in values.items())
    return encoded(parts.EntryData(entity=_entity(parts, who), values=made))


def _entity(parts: Any, who: Who) -> tuple[Any, ...]:
    return tuple(parts.EntityData(entity_type=kind, entity_name=name) for kind, name in who)


def _who(entity: Any) -> Who:
    return tuple((part.entity_type, part.entity_name) for part in _all(entity))


def _all(array: Any) -> Any:
    """An array that may not be null, which kio takes all the same."""
    if array is None:
        raise BadBytes("a null array where none may be")
    return array
