"""CreateTopics (key 19, versions 0-7): read a request, leave topics out of it, put topics into its response.

In: bodies. Out: what each topic costs and where it stands; requests and responses in pieces, with what is not touched
taken over as it is, so error codes and tagged fields of newer brokers pass. Sources: CreateTopicsRequest/Response.json
of Apache Kafka 4.3, and of 3.9 for versions 0 and 1; KIP-599."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Final, NamedTuple

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import request_layout, response_frame, response_layout
from proxy.wire.layout import Array, Entity, Fixed, Rewriter, Text
from proxy.wire.primitives import INT16, INT32, BadBytes, Buffer, encode_array_length, encode_string, fixed, string

KEY: Final = 19
VERSIONS: Final = (0, 7)
FIRST_REFUSABLE: Final = 6
"""the first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)"""
FIRST_COMPACT: Final = 5
QUOTA_EXCEEDED: Final = 89


class NewTopic(NamedTuple):
    """A topic to create; `partitions` is -1 where the broker's default decides. [start, stop) is where it stands in the body."""

    name: str
    partitions: int
    start: int
    stop: int


class CreateTopics(NamedTuple):
    """A request body. [array_start, array_stop) is where the array of topics stands, its length included."""

    topics: list[NewTopic]
    array_start: int
    array_stop: int
    validate_only: bool


def read_request(buf: Buffer, pos: int, end: int, version: int) -> CreateTopics:
    """Read a request body, or raise `BadBytes`."""
    layout = _request_layout(version)
    spans = layout.spans(buf, pos, end)
    array_start, array_stop = spans["topics"]
    topics = layout.array("topics")
    _, elements = topics.elements(buf, array_start, end)
    validate_only = version >= 1 and buf[spans["validate_only"][0]] != 0
    return CreateTopics([_new_topic(topics, buf, *place) for place in elements], array_start, array_stop, validate_only)


def _new_topic(topics: Array, buf: Buffer, start: int, stop: int) -> NewTopic:
    element = topics.element
    assert isinstance(element, Entity)
    name, pos = string(buf, start, stop, topics.compact)
    if name is None:
        raise BadBytes("a topic without a name")
    partitions = INT32.unpack_from(buf, pos)[0]
    if partitions == -1:
        at, _ = element.spans(buf, start, stop)["assignments"]
        assigned, _ = element.array("assignments").count(buf, at, stop)
        partitions = assigned if assigned > 0 else -1
    return NewTopic(name, partitions, start, stop)


def without(request: CreateTopics, refused: Collection[int], buf: Buffer, pos: int, end: int, version: int) -> list[Buffer]:
    """The body [pos, end) without the topics at these indices, in pieces."""
    view = memoryview(buf)
    kept = [topic for i, topic in enumerate(request.topics) if i not in refused]
    pieces: list[Buffer] = [view[pos : request.array_start], encode_array_length(len(kept), version >= FIRST_COMPACT)]
    pieces += [view[topic.start : topic.stop] for topic in kept]
    return [*pieces, view[request.array_stop : end]]


def refused_topic(name: str, version: int, message: str) -> bytes:
    """One topic of a response that refuses it, as Kafka 4.2 writes it: no id, no partitions, no configs. `version` is
    one that knows the error."""
    topic_id = bytes(16) if version >= 7 else b""
    error = INT16.pack(QUOTA_EXCEEDED) + encode_string(message, compact=True)
    return (
        encode_string(name, compact=True)
        + topic_id
        + error
        + INT32.pack(-1)
        + INT16.pack(-1)
        + encode_array_length(0, compact=True)
        + b"\0"
    )


def refusal(correlation_id: int, version: int, names: Collection[str], message: str, throttle_ms: int) -> bytes:
    """A whole response frame that refuses these topics."""
    topics = b"".join(refused_topic(name, version, message) for name in names)
    body = INT32.pack(throttle_ms) + encode_array_length(len(names), compact=True) + topics + b"\0"
    return response_frame(correlation_id, body, tagged=True)


def with_refused(frame: Buffer, version: int, names: Collection[str], message: str, throttle_ms: int) -> list[Buffer]:
    """The broker's response with these topics refused besides, and a throttle time of `throttle_ms` at least."""
    end, body = len(frame), response_body(frame, 0, len(frame), KEY, version)
    layout = _response_layout(version)
    array_start, array_stop = layout.spans(frame, body, end)["topics"]
    count, first = layout.array("topics").count(frame, array_start, end)
    view = memoryview(frame)
    length = encode_array_length(max(count, 0) + len(names), compact=True)
    refused = [refused_topic(name, version, message) for name in names]
    pieces: list[Buffer] = [_throttled(frame, body, throttle_ms), length, view[first:array_stop], *refused, view[array_stop:]]
    return _framed(frame, body, pieces)


def with_throttle(frame: Buffer, version: int, messages: Mapping[str, str], throttle_ms: int) -> list[Buffer]:
    """The broker's response with a throttle time of `throttle_ms` at least, and the messages of these topics where they
    were created.

    Versions 0 and 1 have no throttle time, version 0 has no message: such a client feels the mute only.
    """
    end, body = len(frame), response_body(frame, 0, len(frame), KEY, version)
    layout = _response_layout(version)
    r = Rewriter(frame, body, end, _no_endpoint)
    if version >= 2:
        r.replace(body, body + 4, _throttled(frame, body, throttle_ms))
    if version >= 1:
        topics = layout.array("topics")
        _, elements = topics.elements(frame, layout.skip_to("topics", frame, body, end), end)
        for start, stop in elements:
            _explain(r, topics, start, stop, messages)
    return _framed(frame, body, r.finish(end))


def _explain(r: Rewriter, topics: Array, start: int, stop: int, messages: Mapping[str, str]) -> None:
    assert isinstance(topics.element, Entity)
    spans = topics.element.spans(r.buf, start, stop)
    name, _ = string(r.buf, start, stop, topics.compact)
    message = messages.get(name or "")
    if message is not None and INT16.unpack_from(r.buf, spans["error_code"][0])[0] == 0:
        r.replace(*spans["error_message"], encode_string(message, topics.compact))


def _throttled(frame: Buffer, body: int, throttle_ms: int) -> bytes:
    """The throttle time, the broker's own if that is larger."""
    fixed(body, 4, len(frame))
    return INT32.pack(max(throttle_ms, INT32.unpack_from(frame, body)[0]))


def _framed(frame: Buffer, body: int, pieces: list[Buffer]) -> list[Buffer]:
    size = body - 4 + sum(len(piece) for piece in pieces)
    return [INT32.pack(size) + frame[4:body], *pieces]


def _no_endpoint(node_id: int | None) -> tuple[str, int]:
    raise AssertionError(f"CreateTopics names no broker, asked for {node_id}")


@cache
def _request_layout(version: int) -> Entity:
    """kio knows versions 2 and up; 0 and 1 (brokers before 4.0) are alike, but 0 has no validate_only."""
    if version >= 2:
        return request_layout(KEY, version)
    text = Text(compact=False)
    assignment = Entity([("partition_index", Fixed(4)), ("broker_ids", Array(Fixed(4), compact=False))], None)
    config = Entity([("name", text), ("value", text)], None)
    assignments, configs = Array(assignment, compact=False), Array(config, compact=False)
    topic = Entity(
        [
            ("name", text),
            ("num_partitions", Fixed(4)),
            ("replication_factor", Fixed(2)),
            ("assignments", assignments),
            ("configs", configs),
        ],
        None,
    )
    rest = [("timeout", Fixed(4)), *([("validate_only", Fixed(1))] if version == 1 else [])]
    return Entity([("topics", Array(topic, compact=False)), *rest], None)


@cache
def _response_layout(version: int) -> Entity:
    if version >= 2:
        return response_layout(KEY, version)
    text = Text(compact=False)
    message = [("error_message", text)] if version == 1 else []
    return Entity([("topics", Array(Entity([("name", text), ("error_code", Fixed(2)), *message], None), compact=False))], None)
