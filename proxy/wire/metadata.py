"""Metadata (key 3, versions 0-13): what a response tells of brokers and topics, what a request would have created, and a
question of the proxy's own.

In: a whole response frame as the broker sent it, or a request body. Out: the brokers; and, asked for apart because it takes
longer, the ids and sizes of the topics. Nothing is decoded that the proxy does not need, so error codes and tags of newer
brokers do no harm. Sources: MetadataRequest/Response.json of Apache Kafka 4.3; KIP-204 (auto-creation), KIP-516 (ids)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from kio.index import load_request_schema

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import encode_request, nested, request_layout, response_layout
from proxy.wire.layout import Entity
from proxy.wire.primitives import INT16, INT32, Buffer, string

KEY: Final = 3
VERSIONS: Final = (0, 13)
FIRST_TOPIC_ID: Final = 10
FIRST_WITH_FLAG: Final = 4
"""before this version whoever names a topic creates it"""
ASK_VERSION: Final = 12
"""of the proxy's own questions: the first that takes topic ids. Brokers since 3.0 know it."""


class Broker(NamedTuple):
    """A broker as its cluster announces it."""

    node_id: int
    host: str
    port: int


UNKNOWN_TOPIC_OR_PARTITION: Final = 3
UNKNOWN_TOPIC_ID: Final = 100


class Topic(NamedTuple):
    """A topic: its name as UTF-8 (empty where the answer has none), its id as 16 bytes (empty below version 10), its
    number of partitions, the error code of the answer about it."""

    name: bytes
    topic_id: bytes
    partitions: int
    error: int

    @property
    def absent(self) -> bool:
        """True if the broker says that there is no such topic. Other errors, as that the client may not see it, say nothing."""
        return self.error in (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID)


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
        error: int = INT16.unpack_from(frame, pos)[0]
        topic_id = bytes(frame[after : after + 16]) if version >= FIRST_TOPIC_ID else b""
        size, _ = partitions.count(frame, element.skip_to("partitions", frame, pos, end), end)
        pos = element.skip(frame, pos, end)
        yield Topic((name or "").encode(), topic_id, max(size, 0), error)


class AutoCreate(NamedTuple):
    """The topics that a request would have created if they are not there. `flag` is where the byte stands in the buffer that
    allows it, -1 in versions that have none."""

    names: list[str]
    flag: int


def read_auto_create(buf: Buffer, pos: int, end: int, version: int) -> AutoCreate:
    """What a request body says of it; no names when nothing may be created. `BadBytes` for what is no request."""
    layout = request_layout(KEY, version)
    spans = layout.spans(buf, pos, end)
    flag = spans["allow_auto_topic_creation"][0] if version >= FIRST_WITH_FLAG else -1
    if flag >= 0 and not buf[flag]:
        return AutoCreate([], flag)
    topics = layout.array("topics")
    _, elements = topics.elements(buf, spans["topics"][0], end)
    assert isinstance(topics.element, Entity)
    names = [string(buf, topics.element.skip_to("name", buf, *place), place[1], topics.compact)[0] for place in elements]
    return AutoCreate([name for name in names if name], flag)


def ask(correlation_id: int, client_id: str, names: Iterable[str], ids: Iterable[bytes]) -> bytes:
    """A request frame about these topics that creates none. Brokers take names or ids, not both."""
    schema: Any = load_request_schema(KEY, ASK_VERSION)
    topic = nested(schema, "MetadataRequestTopic")
    topics = [topic(topic_id=None, name=name) for name in names] + [topic(topic_id=UUID(bytes=i), name=None) for i in ids]
    body = schema(topics=tuple(topics), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    return encode_request(correlation_id, client_id, body)
