"""Connections of a user above its rate wait after their login; connections that are old end between two requests."""

from fractions import Fraction
from heapq import heappop, heappush

import pytest

from proxy.session.session import EXPIRING, State
from quota.decision import Action
from quota.entity import DEFAULT, Entity
from tests.apis.topic_frames import BEAT, HEARTBEAT
from tests.support import ALICE, Dialogue


def test_a_connection_above_the_rate_of_its_user_waits_after_its_login(world):
    w = world(rates={"connection_rate": {ALICE: 0.2}}, logins=True)
    for _ in range(2):
        d = w.dialogue().log_in("alice")
        d.client(HEARTBEAT)
        assert d.to_broker == HEARTBEAT
    late, later, other = (w.dialogue().log_in(user) for user in ("alice", "alice", "bob"))
    assert (late.session.state, late.port.wake) == (State.MUTED, 5)
    assert (later.session.state, later.port.wake) == (State.MUTED, 10)
    for d in (late, later, other):
        d.client(HEARTBEAT)
    assert other.to_broker == HEARTBEAT, "other users are not concerned"
    assert late.to_broker == b""
    late.wake()
    assert late.to_broker == HEARTBEAT
    assert later.to_broker == b""
    said = [(decision.quota, decision.action, decision.entity, by.api_key) for decision, by in w.watcher.decisions]
    assert said == [("connection_rate", Action.THROTTLE, ALICE, -1)] * 2


def test_without_logins_the_rate_is_that_of_everybody(world):
    w = world(rates={"connection_rate": {Entity(DEFAULT, None): 0.1}})
    first, second = w.dialogue(), w.dialogue()
    first.client(HEARTBEAT)
    second.client(HEARTBEAT)
    assert first.to_broker == HEARTBEAT
    assert (second.to_broker, second.session.state, second.port.wake) == (b"", State.MUTED, 10)
    second.wake()
    assert second.to_broker == HEARTBEAT


def test_an_observed_rate_of_connections_makes_nobody_wait(world):
    w = world(rates={"connection_rate": {ALICE: 0.1}}, logins=True, observed={"connection_rate": Action.THROTTLE})
    for _ in range(3):
        d = w.dialogue().log_in("alice")
        d.client(HEARTBEAT)
        assert d.to_broker == HEARTBEAT
    assert [decision.quota for decision, _ in w.watcher.would] == ["connection_rate"] * 2


@pytest.mark.parametrize("clients", [1, 30])
def test_a_user_gets_its_rate_over_a_minute(world, clients):
    """Clients that open another connection as soon as they are through, in simulated time and exact arithmetic."""
    rate = 20
    w = world(rates={"connection_rate": {ALICE: rate}}, logins=True)
    due: list[tuple[Fraction, int, Dialogue | None]] = [(Fraction(i, 1000), i, None) for i in range(clients)]
    got = Fraction(0)
    while (now := due[0][0]) < 100:
        _, i, d = heappop(due)
        if d is None:
            d = w.dialogue()
            d.now = float(now)
            d.log_in("alice")
            d.client(HEARTBEAT)
        else:
            d.now = float(now)
            d.wake()
        if d.session.state is State.MUTED:
            heappush(due, (Fraction(d.port.wake), i, d))
            continue
        assert d.to_broker == HEARTBEAT
        got += now >= 40
        d.session.client_lost()
        heappush(due, (now + Fraction(1, 1000), i, None))
    assert got / 60 == pytest.approx(rate, rel=0.02)


def test_a_connection_is_counted_once(world):
    w = world(rates={"connection_rate": {ALICE: 0.1}}, logins=True)
    d = w.dialogue().log_in("alice")
    for _ in range(3):
        d.client(HEARTBEAT)
        assert d.to_broker == HEARTBEAT
        d.broker(BEAT)
        assert d.to_client == BEAT
    assert not w.watcher.decisions


# ------------------------------------------------------------------ limits.max_connection_age


def aged(world, age=100.0):
    w = world()
    w.services.bounds.max_connection_age = age
    return w, w.dialogue()


def test_an_old_connection_ends_when_nothing_is_under_way(world):
    w, d = aged(world)
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT
    d.session.check(99.9)
    d.session.check(100.0)
    assert not d.port.closes, "an answer is missing"
    d.now = 101.0
    d.broker(BEAT)
    assert d.to_client == BEAT
    assert d.port.closes == 1
    assert ("max_connection_age", True) in w.watcher.limits
    assert not w.watcher.client_failures


def test_a_young_connection_stays_and_an_idle_old_one_ends(world):
    _, d = aged(world)
    d.client(HEARTBEAT)
    d.broker(BEAT)
    assert d.to_broker
    assert d.to_client
    d.session.check(99.0)
    assert not d.port.closes
    d.session.check(100.0)
    assert d.port.closes == 1


def test_an_old_connection_that_always_has_requests_under_way_ends_when_those_are_answered(world):
    _, d = aged(world)
    d.client(HEARTBEAT * 2)
    d.session.check(100.0)
    d.now = 101.0
    d.broker(BEAT)
    d.client(HEARTBEAT)
    assert not d.port.closes, "there is always a request under way"
    d.session.check(100.0 + EXPIRING)
    assert not d.port.reading, "what comes now is for another connection"
    assert d.to_broker == HEARTBEAT * 3
    d.broker(BEAT)
    assert not d.port.closes
    d.broker(BEAT)
    assert d.port.closes == 1
    assert d.to_client == BEAT * 3


def test_half_a_request_is_waited_for(world):
    _, d = aged(world)
    d.client(HEARTBEAT).broker(BEAT)
    assert (d.to_broker, d.to_client) == (HEARTBEAT, BEAT)
    d.now = 99.0
    d.client(HEARTBEAT[:10])
    d.session.check(100.0)
    assert not d.port.closes
    d.now = 101.0
    d.client(HEARTBEAT[10:])
    assert d.to_broker == HEARTBEAT
    d.broker(BEAT)
    assert d.to_client == BEAT
    assert d.port.closes == 1


@pytest.mark.parametrize("state", [State.MUTED, State.OPEN])
def test_a_mute_does_not_end_earlier(world, state):
    w = world(requests={ALICE: 0.1 if state is State.MUTED else 1e6})
    w.services.bounds.max_connection_age = 100.0
    d = w.dialogue("alice")
    for _ in range(2):
        d.client(HEARTBEAT).broker(BEAT)
    assert d.to_broker
    assert d.to_client
    assert d.session.state is state
    d.session.client_bytes(HEARTBEAT, 1.0)
    assert (b"".join(d.port.broker) == b"") == (state is State.MUTED)
    d.session.check(100.0 + EXPIRING)
    assert (b"".join(d.port.broker) == b"") == (state is State.MUTED)
    d.port.broker.clear()
