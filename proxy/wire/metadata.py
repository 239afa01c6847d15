"""Metadata (key 3, versions 0-13): what a response tells of brokers and topics, what a request would have created, a request
without some of its topics and the response with these put back, and a question of the proxy's own.

In: a whole response frame as the broker sent it, or a request body. Out: the brokers; and, asked for apart because it takes
longer, the ids and sizes of the topics. Nothing is decoded that the proxy does not need, so error codes and tags of newer
brokers do no harm. Sources: MetadataRequest/Response.json of Apache Kafka 4.3; KIP-204 (auto-creation), KIP-516 (ids)."""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import request_frame, request_layout, response_layout
from proxy.wire.layout import Array, Entity
from proxy.wire.primitives import INT16, INT32, Buffer, encode_array_length, encode_string, fixed, string
from proxy.wire.steps import FEW, MANY, finish_at_once, freed

KEY: Final = 3
VERSIONS: Final = (0, 13)
FIRST_TOPIC_ID: Final = 10
FIRST_WITH_FLAG: Final = 4
"""before this version a request that names a topic creates it"""
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
TOPIC_AUTHORIZATION_FAILED: Final = 29
UNKNOWN_TOPIC_ID: Final = 100
_NO_TOPIC: Final = "."
"""A name that no topic can have (Kafka's Topic.validate)."""
_LONGEST_NAME: Final = 249
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_NO_OPERATIONS: Final = INT32.pack(-(1 << 31))
"""topic_authorized_operations if the request did not ask for them"""
ASK_VERSION: Final = 12
"""of the proxy's own questions: the first that takes topic ids. Brokers since 3.0 know it."""


class Broker(NamedTuple):
    """A broker as its cluster announces it."""

    node_id: int
    host: str
    port: int


class Topic(NamedTuple):
    """A topic: its name as UTF-8 (empty where the answer has none), its id as 16 bytes (empty below version 10), its
    number of partitions, the error code of the answer about it."""

    name: bytes
    topic_id: bytes
    partitions: int
    error: int = 0

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
        error: int = INT16.unpack_from(frame, fixed(pos, 2, end) - 2)[0]
        name, after = string(frame, pos + 2, end, compact)
        topic_id = bytes(frame[after : after + 16]) if version >= FIRST_TOPIC_ID else b""
        size, _ = partitions.count(frame, element.skip_to("partitions", frame, pos, end), end)
        pos = element.skip(frame, pos, end)
        yield Topic((name or "").encode(), topic_id, max(size, 0), error)


def read_auto_create(buf: Buffer, pos: int, end: int, version: int) -> Generator[None, None, list[str]]:
    """The topics that a request body would have created if they are not there, each once; none when nothing may be created.
    Names that no topic can have are left out. `BadBytes` for what is no request. In steps."""
    layout = request_layout(KEY, version)
    topics = layout.array("topics")
    assert isinstance(topics.element, Entity)
    names: dict[str, None] = {}
    count, at = topics.count(buf, layout.skip_to("topics", buf, pos, end), end)
    for i in range(count):
        if i % FEW == FEW - 1:
            yield
        start, at = at, topics.element.skip(buf, at, end)
        name = _name(topics, buf, start, at)
        if name and can_exist(name):
            names[name] = None
    rest = layout.spans(buf, at, end, 1)
    creates = version < FIRST_WITH_FLAG or buf[rest["allow_auto_topic_creation"][0]]
    return list(names) if creates else []


def can_exist(name: str) -> bool:
    """True if a topic may have this name (Kafka's Topic.validate)."""
    return len(name) <= _LONGEST_NAME and _NAME.fullmatch(name) is not None and name not in (".", "..")


def _name(topics: Array, buf: Buffer, start: int, stop: int) -> str | None:
    """The name of the topic that stands there in a request or response; None where it has only an id."""
    assert isinstance(topics.element, Entity)
    return string(buf, topics.element.skip_to("name", buf, start, stop), stop, topics.compact)[0]


def without(buf: Buffer, pos: int, end: int, version: int, names: Collection[str]) -> Generator[None, None, list[Buffer]]:
    """A request body without these topics, in pieces, in steps. Where none is left in version 0, in which no topics means all, one
    stands there that cannot be."""
    view, layout = memoryview(buf), request_layout(KEY, version)
    first, topics = layout.skip_to("topics", buf, pos, end), layout.array("topics")
    kept: list[Buffer] = []
    count, at = topics.count(buf, first, end)
    for i in range(count):
        if i % FEW == FEW - 1:
            yield
        start, at = at, topics.element.skip(buf, at, end)
        if _name(topics, buf, start, at) not in names:
            kept.append(view[start:at])
    if version == 0 and not kept:
        kept = [encode_string(_NO_TOPIC, compact=False)]
    return [view[pos:first], encode_array_length(len(kept), topics.compact), b"".join(kept), view[at:end]]


def with_unknown(frame: Buffer, version: int, names: Collection[str]) -> Generator[None, None, bytes]:
    """A whole response frame that besides says of these topics that they are not there, as Kafka 4.2 does. In steps."""
    layout, end = response_layout(KEY, version), len(frame)
    first, topics = layout.skip_to("topics", frame, response_body(frame, 0, end, KEY, version), end), layout.array("topics")
    entries: list[Buffer] = []
    count, at = topics.count(frame, first, end)
    for i in range(count):
        if i % FEW == FEW - 1:
            yield
        start, at = at, topics.element.skip(frame, at, end)
        if version > 0 or _name(topics, frame, start, at) != _NO_TOPIC:
            entries.append(frame[start:at])
    for i, name in enumerate(names):
        if i % FEW == FEW - 1:
            yield
        entries.append(_unknown(name, version, topics.compact))
    rest = b"".join([frame[4:first], encode_array_length(len(entries), topics.compact), *entries, frame[at:]])
    return INT32.pack(len(rest)) + rest


def _unknown(name: str, version: int, compact: bool) -> bytes:
    """The topic of a response that is not there."""
    head = INT16.pack(UNKNOWN_TOPIC_OR_PARTITION) + encode_string(name, compact)
    topic_id = bytes(16) if version >= FIRST_TOPIC_ID else b""
    internal = b"\0" if version >= 1 else b""
    operations = _NO_OPERATIONS if version >= 8 else b""
    return head + topic_id + internal + encode_array_length(0, compact) + operations + (b"\0" if compact else b"")


def ask(correlation_id: int, client_id: str, names: Iterable[str], ids: Iterable[bytes]) -> bytes:
    """A request frame about these topics that creates none. Brokers take names or ids, not both."""
    return finish_at_once(asking(correlation_id, client_id, [(name, bytes(16)) for name in names] + [(None, it) for it in ids]))


def asking(correlation_id: int, client_id: str, topics: Sequence[tuple[str | None, bytes]]) -> Generator[None, None, bytes]:
    """The same in steps: (name, no id) or (None, id) of each. Made by hand: kio takes ten times as long, and clients say how many
    there are."""
    parts: list[bytes] = [encode_array_length(len(topics), compact=True)]
    for i, (name, topic_id) in enumerate(topics):
        if i % MANY == MANY - 1:
            yield
        parts.append(topic_id + encode_string(name, compact=True) + b"\0")
    parts.append(b"\0\0\0")  # creates none, tells no authorized operations, no tagged fields
    body = b"".join(parts)
    yield from freed(parts)
    return request_frame(KEY, ASK_VERSION, correlation_id, client_id, body, tagged=True)
