"""What a Metadata response tells of brokers and topics, newer brokers' included; what a request would create; the proxy's own
question."""

from random import Random
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema, load_response_schema

from proxy.wire.headers import client_id_end, flexible, request_body
from proxy.wire.metadata import AutoCreate, Broker, Topic, ask, read_auto_create, read_brokers, read_topics
from proxy.wire.primitives import BadBytes, Buffer
from tests.messages import make, part_of, read_request, request, response, versions_of
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
        made.append(make(topic, Random(i), name=name, error_code=29 * i, partitions=parts, **given))
    nodes = tuple(make(part_of(schema, "brokers"), Random(1), node_id=i, host=host, port=port) for i, host, port in brokers)
    return response(3, version, brokers=nodes, topics=tuple(made))


@pytest.mark.parametrize("version", VERSIONS)
def test_brokers_and_topics(version):
    frame = metadata(version, [(0, "a", 9092), (2_000_000_000, "böse", 1)], [("orders", 3), ("empty", 0)])
    assert read_brokers(frame, version) == [Broker(0, "a", 9092), Broker(2_000_000_000, "böse", 1)]
    topic_id = ID.bytes if version >= 10 else b""
    assert list(read_topics(frame, version)) == [Topic(b"orders", topic_id, 3, 0), Topic(b"empty", topic_id, 0, 29)]


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


def auto_create(version: int, frame: bytes) -> AutoCreate:
    return read_auto_create(frame, body_of(frame), len(frame), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_names_that_a_request_would_create(version):
    assert auto_create(version, wants(version, "orders", "ünï", "orders")).names == ["orders", "ünï", "orders"]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_whoever_names_a_topic_creates_it(version):
    assert auto_create(version, wants(version, "orders", create=False)) == AutoCreate(["orders"], -1)


@pytest.mark.parametrize("version", WITH_FLAG)
def test_who_may_not_create_creates_nothing(version):
    frame = wants(version, "orders", "users", create=False)
    found = auto_create(version, frame)
    assert found.names == []
    assert found.flag == auto_create(version, wants(version, "orders", "users")).flag


@pytest.mark.parametrize("version", WITH_FLAG)
@pytest.mark.parametrize("names", [("orders", "users"), ()])
def test_a_request_whose_flag_is_cleared_is_the_same_without_it(version, names):
    frame = wants(version, *names)
    flag = auto_create(version, frame).flag
    assert frame[flag] == 1
    cleared = frame[:flag] + b"\0" + frame[flag + 1 :]
    assert cleared == wants(version, *names, create=False)
    assert not read_request(3, version, cleared).allow_auto_topic_creation


@pytest.mark.parametrize("version", WITH_FLAG)
def test_any_flag_but_zero_allows_it(version):
    frame = wants(version, "orders")
    flag = auto_create(version, frame).flag
    for value in (b"\x02", b"\xff"):
        assert auto_create(version, frame[:flag] + value + frame[flag + 1 :]) == AutoCreate(["orders"], flag)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_about_no_topic_or_about_all_creates_nothing(version):
    assert auto_create(version, wants(version)).names == []
    if version >= 1:
        frame = request(3, version, client_id="äpp", topics=None, allow_auto_topic_creation=True)
        assert auto_create(version, frame).names == []
        assert (frame[auto_create(version, frame).flag] == 1) or version < 4


@pytest.mark.parametrize("version", WITH_IDS)
def test_an_id_creates_nothing(version):
    assert auto_create(version, wants(version, ID)).names == []
    assert auto_create(version, wants(version, "orders", ID, "users")).names == ["orders", "users"]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_name_creates_nothing(version):
    assert auto_create(version, wants(version, "", "orders")).names == ["orders"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("create", [True, False])
def test_no_part_of_a_request_passes(version, create):
    frame = wants(version, "orders", "b", create=create)
    own_tags = flexible(3, version)  # these are not looked at
    for size in range(body_of(frame), len(frame) - own_tags):
        assert bad(read_auto_create, frame, body_of(frame), size, version), f"{size} of {len(frame)} bytes pass"
        assert bad(read_auto_create, frame[:size], body_of(frame), size, version), f"{size} of {len(frame)} bytes pass"


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
    alone = auto_create(version, frame)
    data = memoryview(b"before" + frame + frame)
    found = read_auto_create(data, 6 + body_of(frame), 6 + len(frame), version)
    assert found == AutoCreate(["orders", "users"], alone.flag if alone.flag < 0 else 6 + alone.flag)


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= 9])
def test_tagged_fields_of_a_newer_client_pass(version):
    frame = wants(version, "orders", "users")
    frame = newer(frame, b"\7orders", b"\x63\2ab")
    assert frame[-1] == 0
    frame = frame[:-1] + b"\1\x63\2XY"
    found = auto_create(version, frame)
    assert found.names == ["orders", "users"]
    assert frame[found.flag] == 1


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
    assert auto_create(12, frame).names == [], "it creates nothing"


def test_the_proxys_own_question_takes_what_can_be_read_once_only():
    got = read_request(3, 12, ask(1, "app", iter(["orders"]), iter([])))
    assert [topic.name for topic in got.topics] == ["orders"]
