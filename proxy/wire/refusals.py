"""Produce requests of which a part is refused: the request without that part, and answers that tell of it.

In: a request that was skimmed with details, or the broker's answer to what was left of it; and which partitions are refused,
with an error code and a message. Out: the bytes to send instead. Records are neither read nor copied.
Source: ProduceRequest.json and ProduceResponse.json of Apache Kafka 4.3, versions 0-13."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Generator, Mapping, Sequence
from itertools import accumulate
from struct import Struct
from typing import Final, NamedTuple

from proxy.wire.addresses import PRODUCE
from proxy.wire.frames import Place
from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import response_frame, response_layout
from proxy.wire.layout import Entity
from proxy.wire.primitives import (
    INT16,
    INT32,
    Buffer,
    array,
    encode_array_length,
    encode_string,
    encode_uvarint,
    skip_tags,
)
from proxy.wire.produce import FIRST_COMPACT, FIRST_MESSAGE, FIRST_THROTTLE, FIRST_TOPIC_ID, Skim
from proxy.wire.steps import FEW, MANY
from proxy.wire.walk import topic_head

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
    return [(part.topic, batch.partition) for part, batches in zip(found.topics, found.batches, strict=True) for batch in batches]


def without(pieces: Sequence[Place], found: Skim, version: int, refused: Collection[Part]) -> Generator[None, None, list[Buffer]]:
    """The body that is made of these pieces without what is refused, in pieces of the same buffers. In steps."""
    assert found.batches is not None
    compact, by_id = version >= FIRST_COMPACT, version >= FIRST_TOPIC_ID
    bases = _bases(pieces)
    kept: list[Buffer] = []
    count = looked = 0
    for part, batches in zip(found.topics, found.batches, strict=True):
        topic = part.topic
        there = [batch for batch in batches if (topic, batch.partition) not in refused]
        if not there and batches:
            continue
        count += 1
        kept.append(_topic_head(topic, len(there), compact=compact, by_id=by_id))
        for batch in there:
            looked += 1
            if looked % MANY == 0:
                yield
            kept += _cut(pieces, bases, batch.start, batch.stop)
            if compact:
                kept.append(b"\0")
        if compact:
            kept.append(b"\0")
    head = _cut(pieces, bases, 0, found.topics_at)
    return [*head, encode_array_length(count, compact), *kept, *([b"\0"] if compact else [])]


def _bases(pieces: Sequence[Place]) -> list[int]:
    """Where each of these pieces starts in what they make up."""
    return list(accumulate((last - first for _, first, last in pieces[:-1]), initial=0))


def _cut(pieces: Sequence[Place], bases: Sequence[int], start: int, stop: int) -> list[Buffer]:
    """Bytes [start, stop) of what these pieces make up, without copying them."""
    found: list[Buffer] = []
    for i in range(bisect_right(bases, start) - 1, len(pieces)):
        buf, first, last = pieces[i]
        base = bases[i]
        if base >= stop:
            break
        a, b = max(start - base, 0), min(stop - base, last - first)
        if a < b:
            found.append(memoryview(buf)[first + a : first + b])
    return found


def refusal(correlation_id: int, version: int, refused: Mapping[Part, Refusal], throttle_ms: int) -> Generator[None, None, bytes]:
    """A whole response frame that refuses all partitions of a request, given in its order. In steps."""
    parts: dict[Part, bytes] = {}
    for i, (part, why) in enumerate(refused.items()):
        if i % MANY == MANY - 1:
            yield
        parts[part] = _refused(version, part[1], why)
    body = yield from _responses(version, parts)
    if version >= FIRST_THROTTLE:
        body += INT32.pack(throttle_ms)
    if version >= FIRST_COMPACT:
        body += b"\0"
    return response_frame(correlation_id, body, tagged=version >= FIRST_COMPACT)


def with_refused(
    frame: bytes, version: int, order: Sequence[Part], refused: Mapping[Part, Refusal]
) -> Generator[None, None, bytes]:
    """The broker's response frame, with these partitions refused besides; all in the order of the request, and what it names
    beyond that behind. In steps."""
    body = response_body(frame, 0, len(frame), PRODUCE, version)  # its first field are the responses
    answered, stop = yield from _answered(frame, body, version)
    parts: dict[Part, bytes] = {}
    for i, part in enumerate(order):
        if i % MANY == MANY - 1:
            yield
        why = refused.get(part)
        if why is not None:
            parts[part] = _refused(version, part[1], why)
        elif part in answered:
            parts[part] = answered.pop(part)
    parts.update(answered)
    responses = yield from _responses(version, parts)
    merged = b"".join((frame[4:body], responses, frame[stop:]))
    return INT32.pack(len(merged)) + merged


def _answered(frame: bytes, pos: int, version: int) -> Generator[None, None, tuple[dict[Part, bytes], int]]:
    """(what the broker said of each partition, where its responses end that start at `pos`). In steps."""
    element = response_layout(PRODUCE, version).array("responses").element
    assert isinstance(element, Entity)
    partition, end = element.array("partition_responses").element, len(frame)
    by_id, compact = version >= FIRST_TOPIC_ID, version >= FIRST_COMPACT
    found: dict[Part, bytes] = {}
    looked = 0
    topics, pos = array(frame, pos, end, compact)
    for _ in range(topics):
        topic, partitions, pos = topic_head(frame, pos, end, compact, by_id)
        for _ in range(partitions):
            looked += 1
            if looked % FEW == 0:
                yield
            start, pos = pos, partition.skip(frame, pos, end)
            found[topic, INT32.unpack_from(frame, start)[0]] = frame[start:pos]
        if compact:
            pos = skip_tags(frame, pos, end)
    return found, pos


def _responses(version: int, parts: Mapping[Part, bytes]) -> Generator[None, None, bytes]:
    """The topics of a response: partitions of a topic that stand side by side are put under one head. In steps."""
    compact, by_id = version >= FIRST_COMPACT, version >= FIRST_TOPIC_ID
    topics: dict[bytes, list[bytes]] = {}
    for i, ((topic, _), encoded) in enumerate(parts.items()):
        if i % MANY == MANY - 1:
            yield
        topics.setdefault(topic, []).append(encoded)
    pieces = [encode_array_length(len(topics), compact)]
    for i, (topic, partitions) in enumerate(topics.items()):
        if i % MANY == MANY - 1:
            yield
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
