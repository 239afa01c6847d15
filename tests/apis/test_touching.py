"""The APIs that the proxy touches without limiting them: addresses, versions, sums per topic."""

import dataclasses
from random import Random
from uuid import UUID

import pytest

from proxy.wire.metadata import Broker
from tests.messages import REAL_HOST, batch, make, part_of, produce, read_response, request, response
from tests.wire.test_fetch import fetched
from tests.wire.test_share_fetch import share_fetched, topic_id

TOPIC_ID = b"orders".ljust(16, b"-")


def brokers(version: int) -> bytes:
    from kio.index import load_response_schema

    node = part_of(load_response_schema(3, version), "brokers")
    return response(
        3, version, 1, brokers=tuple(make(node, Random(i), node_id=i, host=f"{REAL_HOST}-{i}", port=9092) for i in (1, 2))
    )


@pytest.mark.parametrize("version", range(14))
def test_metadata_shows_the_proxy_and_teaches_it_the_brokers(world, version):
    w = world()
    d = w.dialogue()
    frame = brokers(version)
    d.client(request(3, version, 1)).broker(frame)
    assert d.to_broker
    shown = read_response(3, version, d.to_client)
    assert [(node.host, node.port) for node in shown.brokers] == [("proxy.example", 9201), ("proxy.example", 9202)]
    assert w.cluster.brokers == [Broker(1, f"{REAL_HOST}-1", 9092), Broker(2, f"{REAL_HOST}-2", 9092)]
    assert w.cluster.metadata == [(frame, version)]


def test_metadata_of_a_newer_broker_reaches_its_client(world):
    """A tagged field may be added without a new version."""
    d = world().dialogue()
    frame = brokers(12)
    schema = part_of(type(read_response(3, 12, frame)), "brokers")
    frame = response(3, 12, 1, brokers=(schema(node_id=1, host=REAL_HOST, port=9092, rack="rack"),), topics=())
    at = frame.index(b"\5rack") + 5
    frame = frame[:at] + b"\1\x63\2ab" + frame[at + 1 :]
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    d.client(request(3, 12, 1)).broker(frame)
    assert d.to_broker
    assert d.world.watcher.broker_failures == []
    assert b"\1\x63\2ab" in d.to_client


@pytest.mark.parametrize("version", [6, 99, 0x7FFF])
def test_a_version_of_api_versions_that_the_proxy_does_not_know_is_answered_as_kafka_does(world, version):
    d = world().dialogue()
    frame = b"\0\x12" + version.to_bytes(2, "big") + b"\0\0\0\7\xff\xff\0\2x\2y\0"
    d.client(len(frame).to_bytes(4, "big") + frame)
    answer = d.to_client
    assert answer[4:8] == b"\0\0\0\7"
    assert int(read_response(18, 0, answer).error_code) == 35
    d.client(request(18, 3, 8))
    assert d.to_broker == request(18, 3, 8)


@pytest.mark.parametrize("version", range(10, 14))
def test_produce_answers_show_the_proxy_whether_like_the_last_or_not(world, version):
    from kio.index import load_response_schema

    d = world().dialogue()
    schema = load_response_schema(0, version)
    node = make(part_of(schema, "node_endpoints"), Random(1), node_id=7)
    topic = make(part_of(schema, "responses"), Random(3))
    for i, nodes in enumerate([(), (), (), (node,), (), (node,)]):
        answer = response(0, version, i, responses=(topic,), node_endpoints=nodes)
        d.client(produce(version, i, batch())).broker(answer)
        got = d.to_client
        assert REAL_HOST.encode() not in got
        assert (got == answer) == (nodes == ())
    assert d.to_broker


@pytest.mark.parametrize("version", range(10, 14))
def test_a_produce_answer_as_long_as_the_last_is_not_taken_for_it(world, version):
    from kio.index import load_response_schema

    d = world().dialogue()
    schema = load_response_schema(0, version)
    topic = part_of(schema, "responses")
    part = make(part_of(topic, "partition_responses"), Random(1), record_errors=(), error_message=None)
    node = part_of(schema, "node_endpoints")(node_id=7, host=REAL_HOST, port=9092, rack=None)

    def answer(number: int, message: str | None, *nodes: object) -> bytes:
        told = dataclasses.replace(part, error_message=message)
        made = make(topic, Random(2), partition_responses=(told,))
        return response(0, version, number, responses=(made,), node_endpoints=nodes)

    named = answer(2, None, node)
    plain = answer(1, "x" * (len(named) - len(answer(1, None))))
    assert len(plain) == len(named)
    d.client(produce(version, 1, batch())).broker(plain)
    d.client(produce(version, 2, batch())).broker(named)
    assert d.to_broker
    got = d.to_client
    assert got.startswith(plain)
    assert REAL_HOST.encode() not in got


@pytest.mark.parametrize("topics", [0, 1, 2])
@pytest.mark.parametrize("version", range(10, 14))
def test_produce_answers_about_any_number_of_topics_pass(world, version, topics):
    from kio.index import load_response_schema

    d = world().dialogue()
    made = tuple(make(part_of(load_response_schema(0, version), "responses"), Random(i)) for i in range(topics))
    answer = response(0, version, 1, responses=made, node_endpoints=())
    d.client(produce(version, 1, batch())).broker(answer)
    assert d.to_broker
    assert d.world.watcher.broker_failures == []
    assert d.to_client == answer


def test_fetched_bytes_are_counted_per_topic(world):
    w = world()
    d = w.dialogue()
    for version in (4, 11, 12):
        d.client(request(1, version, 1)).broker(fetched(version, Random(1), ("orders", [100, 20]), ("users", [7])))
    assert d.to_broker
    assert d.to_client
    rows = {row.key.topic: (row.requests, row.record_bytes) for row in w.rows() if row.key.topic is not None}
    assert rows == {"orders": (3, 360), "users": (3, 21)}


@pytest.mark.parametrize("limit", [1 << 16, 10], ids=["held", "streamed"])
def test_bytes_fetched_by_a_share_group_are_counted_per_topic(world, limit):
    w = world(max_held_response=limit)
    w.cluster.names[topic_id("orders")] = "orders"
    d = w.dialogue()
    for _ in range(2):
        frame = share_fetched(2, Random(1), ("orders", [100, 20]), ("users", [7]), endpoints=1)
        d.client(request(78, 2, 1)).broker(frame[:50], frame[50:])
    assert d.to_broker
    assert REAL_HOST.encode() not in d.to_client
    rows = {
        row.key.topic or row.key.topic_id: (row.requests, row.record_bytes, row.key.api_key)
        for row in w.rows()
        if row.key.topic is not None
    }
    assert rows == {"orders": (2, 240, 78), topic_id("users"): (2, 14, 78)}


@pytest.mark.parametrize("api", ["Produce", "Fetch"])
def test_a_topic_id_is_counted_by_its_name_as_soon_as_that_is_known(world, api):
    w = world()
    d = w.dialogue()

    def once() -> tuple[str | None, bytes | None]:
        if api == "Produce":
            d.client(produce(13, 1, batch())).broker(response(0, 13, 1))
        else:
            d.client(request(1, 13, 1)).broker(fetched(13, Random(1), ("orders", [100])))
        assert d.to_broker
        assert d.to_client
        (row,) = [row for row in w.rows() if row.key.topic is not None]
        return row.key.topic, row.key.topic_id

    assert once() == ("", TOPIC_ID)
    w.cluster.names[UUID(bytes=TOPIC_ID).bytes] = "orders"
    assert once() == ("orders", None)


def test_a_client_that_names_ever_more_topics_is_still_counted(world):
    w = world(max_in_flight=2000)
    d = w.dialogue()
    for i in range(1500):
        d.client(produce(9, 1, batch(size=100), topic=f"t{i % 1200}"))
    assert d.to_broker
    rows = [row for row in w.rows() if row.key.topic is not None]
    assert sum(row.requests for row in rows) == 1500
    assert sum(row.record_bytes for row in rows) == 150_000


def test_a_new_client_id_is_counted_apart(world):
    w = world()
    d = w.dialogue()
    for client_id in ("one", "two", "one"):
        d.client(request(12, 4, 1, client_id=client_id)).broker(response(12, 4, 1))
    assert d.to_broker
    assert d.to_client
    assert {row.key.client_id: row.requests for row in w.rows()} == {"one": 2, "two": 1}


def test_an_answer_that_comes_after_a_new_client_id_and_the_end_of_an_interval_is_counted(world):
    w = world()
    d = w.dialogue()
    d.client(request(12, 4, 1, client_id="one") + request(12, 4, 2, client_id="two"))
    w.rows()
    answers = response(12, 4, 1) + response(12, 4, 2)
    d.broker(answers)
    assert (d.to_broker != b"", d.to_client) == (True, answers)
    assert sum(row.response_bytes for row in w.rows()) == len(answers)
