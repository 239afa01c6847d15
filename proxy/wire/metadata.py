"""Metadata (key 3, versions 0-13): what a response tells of brokers and topics.

In: a whole response frame as the broker sent it. Out: the brokers; and, asked for apart because it takes longer, the
ids and sizes of the topics. Nothing is decoded that the proxy does not need, so error codes and tags of newer brokers
do no harm. Source: MetadataResponse.json of Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import response_layout
from proxy.wire.layout import Entity
from proxy.wire.primitives import INT32, Buffer, string

KEY: Final = 3
VERSIONS: Final = (0, 13)
FIRST_TOPIC_ID: Final = 10


class Broker(NamedTuple):
    """A broker as its cluster announces it."""

    node_id: int
    host: str
    port: int


class Topic(NamedTuple):
    """A topic: its name as UTF-8 (empty where the answer has none), its id as 16 bytes (empty below version 10), its
    number of partitions."""

    name: bytes
    topic_id: bytes
    partitions: int


def read_brokers(frame: Buffer, version: int) -> list[Broker]:
    """The brokers of a response; all that are alive, as Metadata always names all."""
    layout = response_layout(KEY, version)
    body = response_body(frame, 0, len(frame), KEY, version)
    at = layout.skip_to("brokers", frame, body, len(frame))
    compact = layout.tagged is not None
    _, elements = layout.array("brokers").elements(frame, at, len(frame))
    return [_broker(frame, start, stop, compact) for start, stop in elements]


def _broker(frame: Buffer, start: int, stop: int, compact: bool) -> Broker:
    host, pos = string(frame, start + 4, stop, compact)
    return Broker(INT32.unpack_from(frame, start)[0], host or "", INT32.unpack_from(frame, pos)[0])


def read_topics(frame: Buffer, version: int) -> Iterator[Topic]:
    """The topics of a response, one at a time: a large response takes milliseconds, so that the caller may spread them out."""
    layout = response_layout(KEY, version)
    end = len(frame)
    pos = layout.skip_to("topics", frame, response_body(frame, 0, end, KEY, version), end)
    topics = layout.array("topics")
    count, pos = topics.count(frame, pos, end)
    element = topics.element
    assert isinstance(element, Entity)
    partitions = element.array("partitions")
    compact = layout.tagged is not None
    for _ in range(count):
        name, after = string(frame, pos + 2, end, compact)
        topic_id = bytes(frame[after : after + 16]) if version >= FIRST_TOPIC_ID else b""
        size, _ = partitions.count(frame, element.skip_to("partitions", frame, pos, end), end)
        pos = element.skip(frame, pos, end)
        yield Topic((name or "").encode(), topic_id, max(size, 0))
