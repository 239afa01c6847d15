"""What a Metadata response tells of brokers and topics, newer brokers' included; what a request would create; the proxy's own
question."""

import dataclasses
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema

from proxy.wire.headers import client_id_end, flexible, request_body
from proxy.wire.metadata import Broker, Topic, ask, read_auto_create, read_brokers, read_topics, with_unknown, without
from proxy.wire.primitives import BadBytes, Buffer
from proxy.wire.steps import finish_at_once
from tests.messages import make, part_of, read_request, read_response, request, response, versions_of
from tests.support import bad

VERSIONS = versions_of(3)
WITH_FLAG = [version for version in VERSIONS if version >= 4]
WITH_IDS = [version for version in VERSIONS if version >= 10]
ID = UUID("12345678-1234-5678-1234-567812345678")


def metadata(version: int, brokers: list[tuple[int, str, int]], topics: list[tuple[str | None, int]]) -> bytes:
    schema = load_response_schema(3, version)
    topic = part_of(schema, "topics")
    made = []
    for i, (name, partitions) in enumerate(topics):
        given: dict[str, Any] = {"topic_id": ID} if version >= 10 else {}
        parts = tuple(make(part_of(topic, "partitions"), Random(i)) for _ in range(partitions))
        made.append(make(topic, Random(i), name=name, partitions=parts, error_code=0 if partitions else 5, **given))
    nodes = tuple(make(part_of(schema, "brokers"), Random(1), node_id=i, host=host, port=port) for i, host, port in brokers)
    return response(3, version, brokers=nodes, topics=tuple(made))


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_and_topics(version):
    frame = metadata(version, [(0, "a", 9092), (2_000_000_000, "böse", 1)], [("orders", 3), ("empty", 0)])
    assert read_brokers(frame, version) == [Broker(0, "a", 9092), Broker(2_000_000_000, "böse", 1)]
    topic_id = ID.bytes if version >= 10 else b""
    assert list(read_topics(frame, version)) == [Topic(b"orders", topic_id, 3), Topic(b"empty", topic_id, 0, 5)]


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


def wants(version: int, *topics: str | UUID, create: bool = True) -> bytes:
    """A request about these names and ids."""
    topic: Any = part_of(load_request_schema(3, version), "topics")
    made = []
    for wanted in topics:
        ids: dict[str, Any] = {"topic_id": wanted if isinstance(wanted, UUID) else None} if version >= 10 else {}
        made.append(topic(name=None if isinstance(wanted, UUID) else wanted, **ids))
    return request(3, version, client_id="äpp", topics=tuple(made), allow_auto_topic_creation=create)


def body_of(frame: Buffer) -> int:
    version = int.from_bytes(frame[6:8], "big")
    return request_body(frame, client_id_end(frame, 0, len(frame)), len(frame), 3, version)


def read_names(buf: Buffer, pos: int, end: int, version: int) -> list[str]:
    return finish_at_once(read_auto_create(buf, pos, end, version))


def auto_create(version: int, frame: bytes) -> list[str]:
    return read_names(frame, body_of(frame), len(frame), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_names_that_a_request_would_create(version):
    assert auto_create(version, wants(version, "orders", "users-1_x.y", "orders")) == ["orders", "users-1_x.y"]


@pytest.mark.parametrize("version", VERSIONS)
def test_names_that_no_topic_can_have_create_nothing(version):
    assert auto_create(version, wants(version, "", ".", "..", "a b", "ünï", "x" * 250, "x" * 249)) == ["x" * 249]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_whoever_names_a_topic_creates_it(version):
    assert auto_create(version, wants(version, "orders", create=False)) == ["orders"]


@pytest.mark.parametrize("version", WITH_FLAG)
def test_who_may_not_create_creates_nothing(version):
    assert auto_create(version, wants(version, "orders", "users", create=False)) == []


@pytest.mark.parametrize("version", WITH_FLAG)
def test_any_flag_but_zero_allows_it(version):
    frame, other = wants(version, "orders"), wants(version, "orders", create=False)
    (at,) = (i for i in range(len(frame)) if frame[i] != other[i])
    for value in (b"\x02", b"\xff"):
        assert auto_create(version, frame[:at] + value + frame[at + 1 :]) == ["orders"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_about_no_topic_or_about_all_creates_nothing(version):
    assert auto_create(version, wants(version)) == []
    if version >= 1:
        assert auto_create(version, request(3, version, client_id="äpp", topics=None, allow_auto_topic_creation=True)) == []


@pytest.mark.parametrize("version", WITH_IDS)
def test_an_id_creates_nothing(version):
    assert auto_create(version, wants(version, ID)) == []
    assert auto_create(version, wants(version, "orders", ID, "users")) == ["orders", "users"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("create", [True, False])
def test_no_part_of_a_request_passes(version, create):
    frame = wants(version, "orders", "b", create=create)
    own_tags = flexible(3, version)  # these are not looked at
    for size in range(body_of(frame), len(frame) - own_tags):
        assert bad(read_names, frame, body_of(frame), size, version), f"{size} of {len(frame)} bytes pass"
        assert bad(read_names, frame[:size], body_of(frame), size, version), f"{size} of {len(frame)} bytes pass"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_wanted_name_that_is_no_utf_8_does_not_pass(version):
    assert bad(auto_create, version, wants(version, "orders").replace(b"orders", b"or\xffers"))


@pytest.mark.parametrize("version", VERSIONS)
def test_more_wanted_topics_than_there_are_bytes_do_not_pass(version):
    frame = wants(version, "orders")
    start = body_of(frame)
    many, size = (b"\xff\xff\xff\xff\x07", 1) if flexible(3, version) else (b"\x7f\xff\xff\xff", 4)
    assert bad(auto_create, version, frame[:start] + many + frame[start + size :])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_in_the_midst_of_others(version):
    frame = wants(version, "orders", "users")
    data = memoryview(b"before" + frame + frame)
    assert read_names(data, 6 + body_of(frame), 6 + len(frame), version) == ["orders", "users"]
    rest = finish_at_once(without(data, 6 + body_of(frame), 6 + len(frame), version, {"users"}))
    assert frame[4 : body_of(frame)] + b"".join(rest) == wants(version, "orders")[4:]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 9])
def test_tagged_fields_of_a_newer_client_pass(version):
    frame = wants(version, "orders", "users")
    frame = newer(frame, b"\7orders", b"\x63\2ab")
    assert frame[-1] == 0
    frame = frame[:-1] + b"\1\x63\2XY"
    assert auto_create(version, frame) == ["orders", "users"]
    start = body_of(frame)
    kept = b"".join(finish_at_once(without(frame, start, len(frame), version, {"users"})))
    assert kept == newer(wants(version, "orders"), b"\7orders", b"\x63\2ab")[start:-1] + b"\1\x63\2XY"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("left_out", [{"a"}, {"b", "c"}, {"a", "b", "c"}, {"a", "elsewhere"}])
def test_a_request_without_some_topics_is_the_same_without_them(version, left_out):
    frame = wants(version, "a", "b", "c", "a")
    start = body_of(frame)
    kept = [name for name in ("a", "b", "c", "a") if name not in left_out]
    wanted = wants(version, *(kept or (["."] if version == 0 else [])))
    assert b"".join(finish_at_once(without(frame, start, len(frame), version, left_out))) == wanted[start:], (
        "no topics are all in version 0"
    )


@pytest.mark.parametrize("version", WITH_IDS)
def test_ids_stay_in_a_request_without_some_names(version):
    frame = wants(version, "a", ID)
    assert (
        b"".join(finish_at_once(without(frame, body_of(frame), len(frame), version, {"a"}))) == wants(version, ID)[body_of(frame) :]
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("there", [(), (("orders", 3),), ((".", 0),)])
def test_a_response_that_says_of_more_topics_that_they_are_not_there(version, there):
    frame = metadata(version, [(1, "a", 9092)], [(name, n) for name, n in there])
    told = read_response(3, version, finish_at_once(with_unknown(frame, version, ["new", "newer"])))
    before = read_response(3, version, frame)
    kept = [topic for topic in before.topics if version > 0 or topic.name != "."]
    assert list(told.topics[:-2]) == kept
    assert dataclasses.replace(told, topics=before.topics) == before, "all the rest is as it was"
    for topic, name in zip(told.topics[-2:], ("new", "newer"), strict=True):
        assert (topic.name, int(topic.error_code), topic.partitions) == (name, 3, ())
        assert not getattr(topic, "is_internal", False)
        assert getattr(topic, "topic_id", None) is None
        assert getattr(topic, "topic_authorized_operations", -(1 << 31)) == -(1 << 31)


@pytest.mark.parametrize("client_id", ["app", "", "äpp" * 50])
@pytest.mark.parametrize(
    ("names", "ids"), [(["orders", "ünï"], []), ([], [ID.bytes, UUID(int=7).bytes]), ([], []), ([f"t{i}" for i in range(300)], [])]
)
def test_the_proxys_own_question(client_id, names, ids):
    frame = ask(0x01020304, client_id, names, ids)
    assert frame[4:12] == b"\0\3\0\x0c" + b"\1\2\3\4"
    stop = client_id_end(frame, 0, len(frame))
    assert frame[14:stop].decode() == client_id
    got = read_request(3, 12, frame)
    assert [(topic.name, topic.topic_id) for topic in got.topics] == [(name, None) for name in names] + [
        (None, UUID(bytes=i)) for i in ids
    ]
    assert got.topics is not None, "null would be all topics of the cluster"
    assert not got.allow_auto_topic_creation
    assert not got.include_topic_authorized_operations
    assert auto_create(12, frame) == [], "it creates nothing"


def test_the_proxys_own_question_takes_what_can_be_read_once_only():
    got = read_request(3, 12, ask(1, "app", iter(["orders"]), iter([])))
    assert [topic.name for topic in got.topics] == ["orders"]
