"""Producer ids in Produce requests (seed s2, KIP-936): what is counted, who is slowed down and how, who is not."""

import uuid
from datetime import timedelta

import pytest
from kio.index import load_request_schema

from proxy.session.session import State
from proxy.wire.primitives import INT32, encode_string
from quota.decision import Action
from quota.entity import DEFAULT, Entity
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIdOptions, user_limit_table
from quota.limits import Exempt
from quota.produce import charge_producer_ids
from tests.apis.topic_frames import BEAT, HEARTBEAT
from tests.messages import batch, part_of, produce, read_response, request, response
from tests.support import ALICE, byte_by_byte, changed

HOUR = 3600.0
ANYONE = Entity(DEFAULT, None)


def write(producer_id: int, correlation_id: int = 1, version: int = 9, acks: int = 1, topic: str = "orders") -> bytes:
    """A Produce request with one batch of this producer; before version 3 one of a message set, which has no producer."""
    if version > 2:
        return produce(version, correlation_id, batch(producer_id=producer_id, epoch=0, sequence=0), topic, acks)
    body = acks.to_bytes(2, "big", signed=True) + INT32.pack(1000) + INT32.pack(1) + encode_string(topic, False)
    body += INT32.pack(1) + INT32.pack(0) + INT32.pack(100) + bytes(100)
    head = b"\0\0" + version.to_bytes(2, "big") + INT32.pack(correlation_id) + encode_string("app", False)
    return INT32.pack(len(head + body)) + head + body


def written(correlation_id: int = 1, version: int = 9, throttle_ms: int = 0) -> bytes:
    """The broker's answer."""
    if version > 2:
        return response(0, version, correlation_id, throttle_time=timedelta(milliseconds=throttle_ms))
    body = INT32.pack(1) + encode_string("orders", False) + INT32.pack(1) + bytes(6 + 8 + 8 * (version > 1))
    body += INT32.pack(throttle_ms) if version else b""
    return INT32.pack(4 + len(body)) + INT32.pack(correlation_id) + body


def told(version: int, answer: bytes) -> float:
    """Seconds of throttle time."""
    if version > 2:
        seconds: float = read_response(0, version, answer).throttle_time.total_seconds()
        return seconds
    assert len(answer) == len(written(7, version))
    return int.from_bytes(answer[-4:], "big") / 1000


def counted(world, user: str = "alice") -> int:
    stands = world.engine.producer_ids.standing(user, 0.0)
    return 0 if stands is None else stands.counted


def goes_on(d, frame: bytes, correlation_id: int = 1, version: int = 9) -> None:
    """The request and its answer pass as they are, and nobody waits."""
    d.client(frame)
    assert d.to_broker == frame
    answer = written(correlation_id, version)
    d.broker(answer)
    if version < 10:
        assert d.to_client == answer
    else:
        assert read_response(0, version, d.to_client).throttle_time.total_seconds() == 0
    assert d.session.state is State.OPEN


@pytest.fixture
def over(world):
    """Alice has brought three ids where two are allowed: the throttle is half an hour, and 30 s are the most."""
    w = world(producer_ids={ALICE: 2})
    d = w.dialogue("alice")
    for id in (1, 2):
        goes_on(d, write(id))
    d.client(write(3))
    assert d.to_broker
    d.broker(written())
    assert read_response(0, 9, d.to_client).throttle_time.total_seconds() == 30
    d.wake()
    return w


@pytest.mark.parametrize("version", range(14))
def test_over_the_limit_the_request_goes_on_and_the_answer_tells_how_long_the_client_is_muted(world, version):
    """Before version 3 there are no producer ids: it is somebody else of this user who is over."""
    w = world(producer_ids={ALICE: 1}, max_throttle=12.5)
    charge_producer_ids(w.engine, "alice", [1, 2], -20.0)
    d = w.dialogue("alice")
    frame = write(2, 7, version)
    d.client(frame)
    assert d.to_broker == frame
    assert not d.port.reading
    d.client(HEARTBEAT)
    assert d.to_broker == b"", "nothing behind it is looked at"
    d.now = 2.5
    d.broker(written(7, version, throttle_ms=3))
    answer = d.to_client
    if version:
        assert told(version, answer) == 10, "what is left of it"
    else:
        assert answer == written(7, 0)
    assert d.port.wake == 12.5
    assert d.to_broker == b""
    d.wake()
    assert d.to_broker == HEARTBEAT
    assert d.port.reading


@pytest.mark.parametrize("version", range(1, 14))
def test_a_longer_throttle_of_the_broker_is_what_the_client_is_told(world, version):
    w = world(producer_ids={ALICE: 1}, max_throttle=5)
    charge_producer_ids(w.engine, "alice", [1, 2], -20.0)
    d = w.dialogue("alice")
    d.client(write(2, 7, version))
    assert d.to_broker
    d.broker(written(7, version, throttle_ms=20_000))
    assert told(version, d.to_client) == 20
    assert d.port.wake == 5, "the broker mutes for its own"


@pytest.mark.parametrize("version", [10, 13])
def test_addresses_in_a_throttled_answer_are_replaced_all_the_same(world, version):
    w = world(producer_ids={ALICE: 1}, max_throttle=5)
    charge_producer_ids(w.engine, "alice", [1, 2], -20.0)
    d = w.dialogue("alice")
    d.client(write(2, 7, version))
    assert d.to_broker
    answer = next(
        a for a in (response(0, version, 7, chance=__import__("random").Random(seed)) for seed in range(50)) if b"real-host" in a
    )
    d.broker(*byte_by_byte(answer))
    got = d.to_client
    assert b"real-host" not in got
    endpoints = read_response(0, version, got).node_endpoints
    assert endpoints
    assert {e.host for e in endpoints} == {"proxy.example"}


def test_a_known_id_and_a_request_without_one_of_a_user_who_is_over_are_throttled_too(over):
    for id in (1, -1, -7):
        d = over.dialogue("alice")
        for _ in range(2):
            frame = write(id, 5)
            d.client(frame)
            assert d.to_broker == frame, "at once"
            d.broker(written(5))
            assert read_response(0, 9, d.to_client).throttle_time.total_seconds() == 30
            d.wake()
    assert counted(over) == 3


def test_the_throttle_ends_when_enough_is_past(over):
    d = over.dialogue("alice")
    d.now = HOUR + 1
    goes_on(d, write(1))
    goes_on(d, write(1))


def test_other_users_and_other_requests_are_not_slowed_down(over):
    goes_on(over.dialogue("bob"), write(9))
    goes_on(over.dialogue("bob"), write(-1))
    d = over.dialogue("alice")
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_client == BEAT


def test_a_new_id_on_another_connection_is_held_ten_seconds_at_most_then_counted(over):
    first, second = over.dialogue("alice"), over.dialogue("alice")
    first.now = second.now = 40.0
    first.client(write(1))
    assert first.to_broker
    frame = write(4, 8)
    second.client(HEARTBEAT + frame + HEARTBEAT)
    assert second.to_broker == HEARTBEAT
    assert second.session.state is State.HELD
    assert second.port.wake == 50.0
    assert counted(over) == 3, "it did not go on yet"
    held, by = over.watcher.decisions[-1]
    assert (held.quota, held.action, held.entity, held.items) == ("producer_ids", Action.HOLD, ALICE, (0,))
    assert (held.usage, held.limit, held.left) == (3, 2, 0)
    assert by.topics == ("orders",)
    assert "producer id quota for 10.0 s more" in held.message
    second.wake()
    assert second.to_broker == frame
    assert counted(over) == 4
    second.broker(BEAT + written(8))
    got = second.to_client
    assert read_response(0, 9, got[len(BEAT) :]).throttle_time.total_seconds() == 30
    second.wake()
    assert second.to_broker == HEARTBEAT


def test_a_held_request_that_changes_nothing_any_more_does_not_spare_the_next_one(over):
    """Meanwhile its id came on another connection, and the limit was raised: it is recognized, and is held no more."""
    first, second = over.dialogue("alice"), over.dialogue("alice")
    first.now = second.now = HOUR - 10
    limits = over.engine.limits
    over.engine.change(changed(limits, producer_ids=user_limit_table({ALICE: ProducerIdLimit(9)})))
    goes_on(second, write(1))
    over.engine.change(limits)
    over.engine.mutes.start("producer_ids", ALICE, second.now + 5)
    second.client(write(5))
    assert second.session.state is State.HELD
    over.engine.change(changed(limits, producer_ids=user_limit_table({ALICE: ProducerIdLimit(9)})))
    goes_on(first, write(5))
    second.wake()
    assert second.to_broker == write(5)
    second.broker(written())
    assert second.to_client
    over.engine.change(limits)
    over.engine.mutes.start("producer_ids", ALICE, second.now + 5)
    second.client(write(6))
    assert second.session.state is State.HELD


def test_nobody_is_held_once_the_rate_is_back(over):
    d = over.dialogue("alice")
    d.now = HOUR + 1
    over.engine.mutes.start("producer_ids", ALICE, d.now + 5)
    goes_on(d, write(4))


@pytest.mark.parametrize("version", [2, 3, 9, 13])
def test_without_an_answer_the_client_is_muted_at_once(world, version):
    w = world(producer_ids={ALICE: 1}, max_throttle=12.5)
    charge_producer_ids(w.engine, "alice", [1, 2], -20.0)
    d = w.dialogue("alice")
    frame = write(2, 7, version, acks=0)
    d.client(HEARTBEAT + frame + HEARTBEAT + frame)
    assert d.to_broker == HEARTBEAT + frame
    assert d.session.state is State.MUTED
    assert d.port.wake == 12.5
    d.broker(BEAT)
    assert d.to_client == BEAT, "what was asked before is answered"
    assert not d.port.reading
    d.wake()
    assert d.to_broker == HEARTBEAT + frame
    assert d.port.wake == 25.0


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_recognized_request_with_a_new_id_is_counted(world, after):
    """A connection sends alike requests; the id changes, as it does where an epoch is used up."""
    w = world(producer_ids={ALICE: 100})
    d = w.dialogue("alice")
    for id in [1] * (after + 1) + [2, 3, 3, 2]:
        goes_on(d, write(id))
    assert counted(w) == 3
    (row,) = [row for row in w.rows() if row.key.topic == "orders"]
    assert row.requests == after + 5, "each request is counted once"


def test_all_batches_of_a_request_are_looked_at(world):
    w = world(producer_ids={ALICE: 100})
    d = w.dialogue("alice")
    goes_on(d, many(1, 2, -1, 2, 3))
    assert counted(w) == 3


def many(*ids: int, size: int = 100) -> bytes:
    """A request with a partition for each producer id."""
    data = part_of(load_request_schema(0, 9), "topic_data")
    part = part_of(data, "partition_data")
    parts = tuple(part(index=i, records=batch(producer_id=id, size=size)) for i, id in enumerate(ids))
    return request(0, 9, 1, acks=1, transactional_id=None, topic_data=(data(name="orders", partition_data=parts),))


def test_more_ids_than_a_producer_can_have_close_the_connection_of_a_user_with_a_limit(world):
    w = world(producer_ids={ALICE: 100})
    d = w.dialogue("alice")
    d.client(HEARTBEAT + many(*range(11)))
    assert d.to_broker == HEARTBEAT
    assert d.port.closes == 1
    assert "10 producer ids" in d.failures[0]
    free = w.dialogue("bob")
    goes_on(free, many(*range(11)))
    goes_on(free, many(*range(10)))
    assert counted(w, "bob") == 10


def test_a_request_in_pieces_is_charged_the_same(world):
    w = world(producer_ids={ALICE: 1}, max_throttle=5)
    d = w.dialogue("alice")
    first, second = many(1, size=3000), many(2, 1, size=3000)
    d.client(first[:100], first[100:2000], first[2000:])
    d.client(*[second[i : i + 700] for i in range(0, len(second), 700)])
    assert d.to_broker == first + second
    assert counted(w) == 2
    assert d.session.state is State.AWAITING
    d.broker(*byte_by_byte(written(1) + written(1)))
    assert read_response(0, 9, d.to_client[len(written(1)) :]).throttle_time.total_seconds() == 5


# ---------------------------------------------------------------------- who is not limited


@pytest.mark.parametrize(
    "exempt",
    [Exempt(users=frozenset({"alice"})), Exempt(clients=frozenset({("alice", "app")})), Exempt(topics=frozenset({"orders"}))],
    ids=["user", "client id", "topic"],
)
def test_exempt_is_counted_and_never_limited(world, exempt):
    w = world(producer_ids={ALICE: 2}, exempt=exempt)
    d = w.dialogue("alice")
    for id in range(6):
        goes_on(d, write(id))
    assert counted(w) == 6
    assert w.watcher.decisions == []


@pytest.mark.parametrize("hold_new_ids", [False, True])
def test_who_claims_an_exempt_client_id_has_the_limit_of_its_user(world, hold_new_ids):
    w = world(producer_ids={ALICE: 2}, exempt=Exempt(client_ids=frozenset({"app"})), hold_new_ids=hold_new_ids)
    d = w.dialogue("alice")
    for id in range(3):
        d.client(write(id))
        assert d.to_broker
    assert w.watcher.decisions
    assert w.engine.producer_ids.hold_new is hold_new_ids


def test_a_topic_that_is_named_by_id_is_exempt_once_its_name_is_known(world):
    w = world(producer_ids={ALICE: 1}, exempt=Exempt(topics=frozenset({"orders"})))
    w.cluster.names[b"orders----------"] = "orders"
    d = w.dialogue("alice")
    for id in range(4):
        goes_on(d, write(id, version=13), version=13)
    d.client(write(9, version=13, topic="unknown"))
    assert d.to_broker
    assert d.session.state is State.AWAITING
    assert w.watcher.decisions[-1][1].topics == (str(uuid.UUID(bytes=b"unknown---------")),)


def test_users_without_a_limit_are_counted_for_metrics_unless_that_is_off(world):
    w = world()
    goes_on(w.dialogue("bob"), write(1))
    assert counted(w, "bob") == 1
    w = world(count_unlimited=False)
    goes_on(w.dialogue("bob"), write(1))
    assert counted(w, "bob") == 0
    w = world(producer_ids={ALICE: 5}, count_unlimited=False)
    for user in ("bob", "alice"):
        d = w.dialogue(user)
        for _ in range(3):
            goes_on(d, write(1))
    assert (counted(w, "bob"), counted(w)) == (0, 1)


def test_who_has_no_id_is_not_known(world):
    w = world(producer_ids={ANYONE: 5})
    d = w.dialogue("alice")
    for _ in range(3):
        goes_on(d, write(-1))
    assert len(w.engine.producer_ids) == 0


def test_every_user_has_the_default_limit_for_itself(world):
    w = world(producer_ids={ANYONE: 1})
    for user in ("alice", "bob"):
        d = w.dialogue(user)
        goes_on(d, write(1))
        d.client(write(2))
        assert d.to_broker
        assert d.session.state is State.AWAITING


def test_a_limit_that_is_changed_holds_for_the_next_request(over):
    limits = over.engine.limits
    d = over.dialogue("alice")
    over.engine.change(changed(limits, producer_ids=user_limit_table({ALICE: ProducerIdLimit(3)})))
    goes_on(d, write(1))
    goes_on(d, write(1))
    over.engine.change(limits)
    d.client(write(1))
    assert d.to_broker
    assert d.session.state is State.AWAITING
    d.broker(written())
    assert d.to_client
    d.wake()
    over.engine.change(changed(limits, ProducerIdOptions(count_unlimited=False), producer_ids=user_limit_table({})))
    goes_on(d, write(1))
    assert len(over.engine.producer_ids) == 0


def test_decisions_are_told_with_who_what_and_why(over):
    ((decision, by),) = over.watcher.decisions
    assert (decision.quota, decision.action, decision.entity) == ("producer_ids", Action.THROTTLE, ALICE)
    assert (decision.usage, decision.limit, decision.left, decision.throttle, decision.items) == (3, 2, 0, 30, (0,))
    assert (by.principal, by.client_id, by.api_key, by.api_version, by.topics) == ("User:alice", "app", 0, 9, ("orders",))
    (row,) = [row for row in over.rows() if row.key.topic is None]
    assert row.throttle_ms == 30_000
    assert over.engine.producer_ids.standing("alice", 0.0).throttle == 30


def test_what_a_decision_names_is_bounded(world):
    w = world(producer_ids={ALICE: 1})
    charge_producer_ids(w.engine, "alice", [1, 2], -20.0)
    d = w.dialogue("alice")
    d.client(write(2, topic="x" * 3000))
    assert d.to_broker
    assert [len(name) for name in w.watcher.decisions[0][1].topics] == [250]
