"""The end of one reason to wait does not end another; and what waits is bounded, and is charged to its principal."""

from dataclasses import replace
from random import Random

from proxy.session.budget import STRANGERS
from proxy.session.session import State
from quota.catalogue import FETCH
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable
from tests.apis.produce_frames import records
from tests.apis.test_produce_storage import CLUSTER, limited, write
from tests.apis.test_rates import fetch
from tests.apis.topic_frames import BEAT, HEARTBEAT
from tests.messages import request, response
from tests.session.test_limits import ODD
from tests.support import ALICE, World, changed
from tests.wire.test_fetch import fetched

SMALL, BIG = fetched(11, Random(3), ("orders", [10])), fetched(11, Random(3), ("orders", [9000]))


def test_a_mute_lasts_whatever_other_answers_come(world):
    w = world(consume={ALICE: 100}, max_throttle=30.0)
    d = w.dialogue("alice")
    d.client(fetch(11)).broker(SMALL)
    hand, auth = request(17, 1, 2, mechanism="PLAIN"), request(36, 1, 3, auth_bytes=b"x")
    d.client(fetch(11, 1) + hand)
    assert d.to_broker.endswith(hand)
    d.broker(BIG)
    assert (d.session.state, d.port.wake) == (State.MUTED, 30.0)
    d.broker(response(17, 1, 2, error_code=34, mechanisms=()))
    d.client(auth + HEARTBEAT)
    assert (d.session.state, d.port.reading, d.to_broker) == (State.MUTED, False, b"")
    d.wake()
    d.broker(response(36, 1, 3, error_code=34, error_message="no", auth_bytes=b""))
    assert d.to_broker == auth + HEARTBEAT
    assert d.to_client


def test_a_login_is_still_awaited_when_a_mute_ends(world):
    w = world(consume={ALICE: 5000}, max_throttle=30.0)
    d = w.dialogue("alice")
    d.client(fetch(11)).broker(BIG)
    d.client(fetch(11, 1) + request(17, 0, 2, mechanism="PLAIN") + HEARTBEAT)
    for _ in range(9):
        d.session.client.rules(0.0).answers[FETCH].meter.record(9000, 0.0)
    d.broker(fetched(11, Random(3), ("orders", [9000])))
    assert d.session.state is State.MUTED
    assert HEARTBEAT not in d.to_broker
    d.wake()
    assert d.session.state is State.AWAITING
    assert d.to_broker == b""
    d.broker(response(17, 0, 2, error_code=34, mechanisms=()))
    assert d.to_broker == HEARTBEAT
    assert d.to_client


def test_a_fetch_that_was_throttled_goes_on_after_the_limit_is_gone(world):
    w = world()
    d = w.dialogue("alice")
    d.client(fetch(11)).broker(SMALL)
    d.client(fetch(11))
    w.engine.change(changed(w.engine.limits, consumer_byte_rate=LimitTable({ALICE: RateLimit(100)})))
    d.broker(BIG)
    assert d.session.state is State.MUTED
    d.wake()
    w.engine.change(changed(w.engine.limits, consumer_byte_rate=LimitTable({})))
    for _ in range(3):
        assert d.to_broker
        d.client(fetch(11)).broker(SMALL)
        assert (d.session.state, d.port.reading) == (State.OPEN, True)
        assert d.to_client
    assert d.to_broker


def test_a_client_that_does_not_read_gets_no_more_answers_of_the_proxy(world):
    d = world().dialogue()
    d.client(HEARTBEAT).broker(BEAT)
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)
    d.port.full_after = 3
    d.client(ODD * 1000)
    assert len(d.port.client) == 3
    d.session.client_drained(0.0)
    assert len(d.port.client) == 6
    d.port.full_after = None
    d.session.client_drained(0.0)
    assert len(d.port.client) == 1000
    assert d.to_client


def test_answers_of_the_proxy_behind_a_slow_broker_are_charged(world):
    w = world(max_in_flight=1000)
    d = w.dialogue()
    d.client(HEARTBEAT + ODD * 500)
    assert d.to_broker == HEARTBEAT
    held = w.services.budget.held
    assert held > 500 * 10
    d.broker(BEAT)
    assert w.services.budget.held == 0
    assert len(d.to_client) == len(BEAT) + held


def test_requests_that_are_held_are_charged_to_their_principal(world):
    """With `when_full: hold` they stand until the disk is well."""
    w = limited(world(max_frame=100 << 20, memory_total=64 << 20), replace(CLUSTER, hold=True), full=50)
    frame = write(9, {("orders", 0): records(4 << 20)})
    for _ in range(20):
        d = w.dialogue("mallory")
        for start in range(0, len(frame), 1 << 18):
            if d.port.reading:
                d.client(frame[start : start + (1 << 18)])
    budget = w.services.budget
    assert budget.held <= 64 << 20
    assert budget.waiting > 0
    d = w.dialogue("alice")
    for start in range(0, len(frame), 1 << 18):
        assert d.port.reading, "others have their share"
        d.client(frame[start : start + (1 << 18)])
    assert d.session.state is State.HELD


def test_memory_is_charged_to_who_the_connection_turns_out_to_be():
    w = World(logins=True)
    d = w.dialogue()
    hand, answer = request(17, 1, mechanism="PLAIN"), response(17, 1, error_code=0, mechanisms=("PLAIN",))
    auth = request(36, 2, auth_bytes=b"\0alice\0secret")
    accepted = response(36, 2, error_code=0, error_message=None, auth_bytes=b"")
    d.client(hand).broker(answer).client(auth + HEARTBEAT[:20])
    share = w.services.budget._share
    assert (share.held_by(STRANGERS), share.held_by("alice")) == (20, 0)
    d.broker(accepted)
    assert (share.held_by(STRANGERS), share.held_by("alice")) == (0, 20)
    d.client(HEARTBEAT[20:])
    assert (share.held, d.to_broker) == (0, hand + auth + HEARTBEAT)
