"""Produce requests of which a part is refused: the request without that part, and answers that tell of it.

In: a request that was skimmed with details, or the broker's answer to what was left of it; and which partitions are refused,
with an error code and a message. Out: the bytes to send instead. Records are neither read nor copied.
Source: ProduceRequest.json and ProduceResponse.json of Apache Kafka 4.3, versions 0-13."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from struct import Struct
from typing import Final, NamedTuple

from proxy.wire.addresses import PRODUCE
from proxy.wire.frames import Place
from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import response_frame, response_layout
from proxy.wire.layout import Array, Entity
from proxy.wire.primitives import (
    INT16,
    INT32,
    Buffer,
    encode_array_length,
    encode_string,
    encode_uvarint,
    span,
)
from proxy.wire.produce import FIRST_COMPACT, FIRST_MESSAGE, FIRST_THROTTLE, FIRST_TOPIC_ID, Skim

_FIRST_TIME: Final = 2
_FIRST_START_OFFSET: Final = 5
_PARTITION: Final = Struct(">ihq")
"""index, error code, base offset"""
_NONE: Final = Struct(">q").pack(-1)

Part = tuple[bytes, int]
"""(topic as the request names it: UTF-8, or 16 bytes of an id; partition)"""


class Refusal(NamedTuple):
    """What the client is told of a partition."""

    code: int
    message: str


def parts_of(found: Skim) -> list[Part]:
    """All partitions of a request, in its order."""
    assert found.batches is not None
    return [(topic, batch.partition) for (topic, *_), batches in zip(found.topics, found.batches, strict=True) for batch in batches]


def without(pieces: Sequence[Place], found: Skim, version: int, refused: Collection[Part]) -> list[Buffer]:
    """The body that is made of these pieces without what is refused, in pieces of the same buffers."""
    assert found.batches is not None
    compact, by_id = version >= FIRST_COMPACT, version >= FIRST_TOPIC_ID
    kept: list[Buffer] = []
    count = 0
    for (topic, *_), batches in zip(found.topics, found.batches, strict=True):
        there = [batch for batch in batches if (topic, batch.partition) not in refused]
        if not there and batches:
            continue
        count += 1
        kept.append(_topic_head(topic, len(there), compact=compact, by_id=by_id))
        for batch in there:
            kept += cut(pieces, batch.start, batch.stop)
            if compact:
                kept.append(b"\0")
        if compact:
            kept.append(b"\0")
    head = cut(pieces, 0, found.topics_at)
    return [*head, encode_array_length(count, compact), *kept, *([b"\0"] if compact else [])]


def cut(pieces: Iterable[Place], start: int, stop: int) -> list[Buffer]:
    """Bytes [start, stop) of what these pieces make up, without copying them."""
    found: list[Buffer] = []
    base = 0
    for buf, first, last in pieces:
        size = last - first
        a, b = max(start - base, 0), min(stop - base, size)
        if a < b:
            found.append(memoryview(buf)[first + a : first + b])
        base += size
        if base >= stop:
            break
    return found


def refusal(correlation_id: int, version: int, refused: Mapping[Part, Refusal], throttle_ms: int) -> bytes:
    """A whole response frame that refuses all partitions of a request, given in its order."""
    body = _responses(version, {part: _refused(version, part[1], why) for part, why in refused.items()})
    if version >= FIRST_THROTTLE:
        body += INT32.pack(throttle_ms)
    if version >= FIRST_COMPACT:
        body += b"\0"
    return response_frame(correlation_id, body, tagged=version >= FIRST_COMPACT)


def with_refused(frame: bytes, version: int, order: Sequence[Part], refused: Mapping[Part, Refusal]) -> bytes:
    """The broker's response frame, with these partitions refused besides; all in the order of the request, and what it names
    beyond that behind."""
    body, end = response_body(frame, 0, len(frame), PRODUCE, version), len(frame)
    layout = response_layout(PRODUCE, version)
    start, stop = layout.spans(frame, body, end)["responses"]
    answered = _answered(frame, layout.array("responses"), start, stop, version)
    parts: dict[Part, bytes] = {}
    for part in order:
        why = refused.get(part)
        if why is not None:
            parts[part] = _refused(version, part[1], why)
        elif part in answered:
            parts[part] = answered.pop(part)
    parts.update(answered)
    merged = b"".join((frame[4:start], _responses(version, parts), frame[stop:]))
    return INT32.pack(len(merged)) + merged


def _answered(frame: bytes, topics: Array, start: int, stop: int, version: int) -> dict[Part, bytes]:
    """What the broker said of each partition."""
    element = topics.element
    assert isinstance(element, Entity)
    partitions = element.array("partition_responses")
    by_id, compact = version >= FIRST_TOPIC_ID, version >= FIRST_COMPACT
    named = "topic_id" if by_id else "name"
    found: dict[Part, bytes] = {}
    for place in topics.elements(frame, start, stop)[1]:
        spans = element.spans(frame, *place)
        a, b = spans[named] if by_id else span(frame, *spans[named], compact)
        topic = frame[a:b] if a >= 0 else b""
        for first, last in partitions.elements(frame, *spans["partition_responses"])[1]:
            found[topic, INT32.unpack_from(frame, first)[0]] = frame[first:last]
    return found


def _responses(version: int, parts: Mapping[Part, bytes]) -> bytes:
    """The topics of a response: partitions of a topic that stand side by side are put under one head."""
    compact, by_id = version >= FIRST_COMPACT, version >= FIRST_TOPIC_ID
    topics: dict[bytes, list[bytes]] = {}
    for (topic, _), encoded in parts.items():
        topics.setdefault(topic, []).append(encoded)
    pieces = [encode_array_length(len(topics), compact)]
    for topic, partitions in topics.items():
        pieces += [_topic_head(topic, len(partitions), compact=compact, by_id=by_id), *partitions]
        if compact:
            pieces.append(b"\0")
    return b"".join(pieces)


def _topic_head(topic: bytes, partitions: int, *, compact: bool, by_id: bool) -> bytes:
    length = b"" if by_id else encode_uvarint(len(topic) + 1) if compact else INT16.pack(len(topic))
    return length + topic + encode_array_length(partitions, compact)


def _refused(version: int, partition: int, why: Refusal) -> bytes:
    compact = version >= FIRST_COMPACT
    said = _PARTITION.pack(partition, why.code, -1)
    if version >= _FIRST_TIME:
        said += _NONE
    if version >= _FIRST_START_OFFSET:
        said += _NONE
    if version >= FIRST_MESSAGE:
        said += encode_array_length(0, compact) + encode_string(why.message, compact)
    return said + b"\0" if compact else said
