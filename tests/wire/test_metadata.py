"""What a Metadata response tells of brokers and topics, newer brokers' included."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema

from proxy.wire.metadata import Broker, Topic, read_brokers, read_topics
from proxy.wire.primitives import BadBytes
from tests.messages import make, part_of, response, versions_of

VERSIONS = versions_of(3)
ID = UUID("12345678-1234-5678-1234-567812345678")


def metadata(version: int, brokers: list[tuple[int, str, int]], topics: list[tuple[str | None, int]]) -> bytes:
    schema = load_response_schema(3, version)
    topic = part_of(schema, "topics")
    made = []
    for i, (name, partitions) in enumerate(topics):
        given: dict[str, Any] = {"topic_id": ID} if version >= 10 else {}
        parts = tuple(make(part_of(topic, "partitions"), Random(i)) for _ in range(partitions))
        made.append(make(topic, Random(i), name=name, partitions=parts, **given))
    nodes = tuple(make(part_of(schema, "brokers"), Random(1), node_id=i, host=host, port=port) for i, host, port in brokers)
    return response(3, version, brokers=nodes, topics=tuple(made))


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_and_topics(version):
    frame = metadata(version, [(0, "a", 9092), (2_000_000_000, "böse", 1)], [("orders", 3), ("empty", 0)])
    assert read_brokers(frame, version) == [Broker(0, "a", 9092), Broker(2_000_000_000, "böse", 1)]
    topic_id = ID.bytes if version >= 10 else b""
    assert list(read_topics(frame, version)) == [Topic(b"orders", topic_id, 3), Topic(b"empty", topic_id, 0)]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_cluster(version):
    frame = metadata(version, [], [])
    assert read_brokers(frame, version) == []
    assert list(read_topics(frame, version)) == []


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_without_a_name(version):
    assert next(read_topics(metadata(version, [], [(None, 1)]), version)).name == b""


@pytest.mark.parametrize("version", [0, 9, 12])
def test_no_part_of_a_response_passes(version):
    frame = metadata(version, [(1, "a", 2)], [("orders", 2)])
    whole = list(read_topics(frame, version))
    for size in range(8, len(frame)):
        try:
            assert list(read_topics(frame[:size], version)) == whole, "behind the last topic there is nothing to read"
        except BadBytes:
            continue
        assert size > len(frame) - 30


def newer(frame: bytes, mark: bytes, tag: bytes) -> bytes:
    """The frame with a tagged field in the (empty) section of tagged fields behind `mark`."""
    at = frame.index(mark) + len(mark)
    assert frame[at] == 0
    frame = frame[:at] + b"\1" + tag + frame[at + 1 :]
    return (len(frame) - 4).to_bytes(4, "big") + frame[4:]


def test_an_error_code_of_a_newer_broker_does_no_harm():
    frame = metadata(12, [(1, "a", 9092)], [("orders", 1)])
    at = frame.index(b"\7orders") - 2
    frame = frame[:at] + b"\x27\x0f" + frame[at + 2 :]
    assert [topic.name for topic in read_topics(frame, 12)] == [b"orders"]


def test_a_tagged_field_of_a_newer_broker_does_no_harm():
    schema = load_response_schema(3, 12)
    node = part_of(schema, "brokers")(node_id=1, host="a", port=9092, rack="rack")
    topic = make(part_of(schema, "topics"), Random(1), name="orders", partitions=(), topic_authorized_operations=0x01020304)
    frame = response(3, 12, brokers=(node,), topics=(topic,))
    assert read_brokers(newer(frame, b"\5rack", b"\x63\2ab"), 12) == [Broker(1, "a", 9092)]
    assert [t.name for t in read_topics(newer(frame, b"\1\2\3\4", b"\x63\2ab"), 12)] == [b"orders"]
    both = newer(newer(frame, b"\5rack", b"\x63\2ab"), b"\1\2\3\4", b"\x63\2ab")
    assert [t.name for t in read_topics(both, 12)] == [b"orders"]
