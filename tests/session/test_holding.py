"""Reconnecting does not escape: the debt belongs to the entity, and its other connections are held for what is left of a mute."""

import pytest

from proxy.session.session import State
from quota.decision import Action
from quota.entity import Entity
from quota.limits import Exempt
from tests.apis.topic_frames import BEAT, FIVE, HEARTBEAT, create, created
from tests.messages import read_response
from tests.support import ANYBODY


def test_another_connection_of_the_same_entity_is_held_ten_seconds_at_most_then_goes_on(tired):
    first, second = tired.dialogue(), tired.dialogue()
    first.client(create(7, 1, ("x", 1)))
    assert first.to_client
    frame = create(7, 2, ("y", 1))
    second.client(HEARTBEAT + frame + HEARTBEAT)
    assert second.to_broker == HEARTBEAT
    assert second.to_client == b""
    assert not second.port.reading
    assert second.port.wake == 10.0
    second.broker(BEAT)
    assert second.to_client == BEAT, "answers to earlier requests are not held"
    second.wake()
    answer = read_response(19, 7, second.to_client)
    assert int(answer.topics[0].error_code) == 89, "it goes on, and is judged as any other"
    assert second.port.wake == pytest.approx(10.8), "5.04 is 0.8 s above 5"
    second.wake()
    assert second.to_broker == HEARTBEAT


def test_a_held_request_of_several_reads_goes_on_as_it_came(tired):
    first, second = tired.dialogue(), tired.dialogue()
    first.client(create(7, 1, ("x", 1)))
    assert first.to_client
    frame = create(7, 2, *((f"topic-with-a-long-name-{i}", 0) for i in range(60)))
    first.now = second.now = 11.0
    second.client(create(7, 3, ("y", 1), client_id="other")[:50], create(7, 3, ("y", 1), client_id="other")[50:])
    assert second.port.wake == pytest.approx(12)
    second.client(frame[:700], frame[700:])
    second.wake()
    assert second.to_broker == create(7, 3, ("y", 1), client_id="other") + frame


def test_who_was_held_once_is_held_again_for_the_next_mute(tired):
    first, second = tired.dialogue(), tired.dialogue()
    first.client(create(7, 1, ("x", 1)))
    assert first.to_client
    first.now = second.now = 5.0
    second.client(create(7, 2, ("y", 1)))
    second.wake()
    assert second.to_broker == create(7, 2, ("y", 1))
    third = tired.dialogue()
    third.now = second.now
    third.client(create(7, 3, ("big", 560), ("z", 1)))
    assert third.to_broker
    second.client(create(7, 4, ("y", 1)))
    assert second.session.state is State.HELD
    assert second.to_broker == b""


def test_a_hold_is_told_to_the_watcher(tired):
    first, second = tired.dialogue(), tired.dialogue()
    first.client(create(7, 1, ("x", 1)))
    assert first.to_client
    second.client(create(7, 2, ("y", 1)))
    assert second.session.state is State.HELD
    decision, by = tired.watcher.decisions[-1]
    assert decision.action is Action.HOLD
    assert decision.throttle == 10.0
    assert by.api_key == 19


def test_a_request_that_costs_nothing_is_not_held(world):
    w = world(limits={ANYBODY: FIVE}, knows_nothing=True, exempt=Exempt(topics=frozenset({"internal"})))
    first, second = w.dialogue(), w.dialogue()
    first.client(create(7, 1, ("t", 560), ("x", 1)))
    assert first.to_broker
    frame = create(7, 2, ("internal", 10))
    first.broker(created(7, 1, "t"))
    assert first.to_client
    second.client(frame)
    assert second.to_broker == frame


def test_others_are_not_held(world):
    w = world(limits={Entity("<default>", None): FIVE}, knows_nothing=True)
    alice, bob = w.dialogue("alice"), w.dialogue("bob")
    alice.client(create(7, 1, ("t", 560), ("x", 1)))
    assert alice.to_broker
    frame = create(7, 2, ("y", 1))
    bob.client(frame)
    assert bob.to_broker == frame


def test_many_connections_with_old_versions_get_one_request_for_each_mute(world):
    """Old versions are done in full: held once only, each of many connections would pass one every 10 s."""
    w = world(limits={ANYBODY: FIVE}, knows_nothing=True, max_throttle=30.0)
    first = w.dialogue()
    first.client(create(4, 1, ("t", 2000), ("x", 1))).broker(created(4, 1, "t", "x"))
    assert first.to_client
    assert first.to_broker
    others = [w.dialogue() for _ in range(5)]
    for i, d in enumerate(others):
        d.client(create(4, 2, (f"u{i}", 200)))
        assert d.session.state is State.HELD
    went: list[float] = []
    for _ in range(60):
        d = min((d for d in others if d.session.state is State.HELD), key=lambda d: d.port.wake)
        for each in others:
            each.now = d.port.wake
        d.wake()
        if b"".join(d.port.broker):
            assert d.to_broker
            went.append(d.now)
        if len(went) == 3:
            break
    assert went == [30.0, 60.0, 90.0]
