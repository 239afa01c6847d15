"""A slow broker through a session: its answers are seen; who floods it waits in the proxy, on connections to that broker alone."""

import pytest

from proxy.session.latencies import Part, Place
from proxy.session.session import State
from quota.decision import Action
from quota.in_flight import Window
from quota.kinds.overload import OverloadOptions
from quota.overload import Goal
from tests.apis.produce_frames import throttle, written
from tests.messages import batch, produce
from tests.support import Dialogue, World, limits_of

SIZE = 100_000
WRITTEN = len(batch(size=SIZE))


def overloaded(seconds: int, took: float, **limits: object) -> World:
    """A proxy after so many seconds in which user flood wrote to broker 1, which took so long for each of its answers."""
    world = World()
    world.engine.change(limits_of(OverloadOptions(Goal(0.1, 1024.0)), **limits))
    world.engine.overload.step(0.0)
    d, number = world.dialogue("flood", broker=1), 0
    d.session.client.let_in = True
    for second in range(seconds):
        while d.now + took < second + 1:
            number += 1
            d.client(produce(9, number, batch(size=SIZE)))
            d.now += took
            d.broker(written([("orders", 0)], number))
        d.now = second + 1.0
        world.engine.overload.step(d.now)
    return world


def connected(world: World, user: str = "flood", broker: int = 1) -> Dialogue:
    d = world.dialogue(user, broker=broker)
    d.session.client.let_in = True
    d.now = 10.0
    return d


def window_of(d: Dialogue, requests: float) -> Window:
    """So much may be under way from now on, of a user who asked for much."""
    window = d.session.client.rules(d.now).window
    assert window is not None
    window.resize(requests * WRITTEN, 0.3, d.now)
    window.allowance = 0.0
    return window


def sends(d: Dialogue, number: int, acks: int = -1) -> bool:
    """The client writes something; does it go on to the broker at once?"""
    d.client(produce(9, number, batch(size=SIZE), acks=acks))
    return bool(d.to_broker)


def test_who_floods_a_slow_broker_waits_there():
    world = overloaded(5, 0.3)
    d = connected(world)
    _kept = window_of(d, 1)
    assert sends(d, 1)
    assert not sends(d, 2)
    assert world.watcher.decisions[-1][0].quota == "overload"
    assert world.watcher.decisions[-1][0].action is Action.THROTTLE
    elsewhere = connected(world, broker=2)
    assert all(sends(elsewhere, number) for number in range(5))


def test_a_broker_that_keeps_up_has_nobody_wait():
    d = connected(overloaded(5, 0.05))
    assert all(sends(d, number) for number in range(5))


def test_requests_wait_for_answers_to_others_of_their_user_in_the_order_in_which_they_came():
    world = overloaded(5, 0.3)
    connections = [connected(world) for _ in range(4)]
    _kept = window_of(connections[0], 2)
    assert [sends(d, 1) for d in connections] == [True, True, False, False]
    connections[1].broker(written([("orders", 0)], 1))
    assert not connections[3].port.wants_turn
    connections[2].turn()
    assert connections[2].to_broker
    connections[0].broker(written([("orders", 0)], 1))
    connections[3].turn()
    assert connections[3].to_broker


def test_who_has_little_under_way_does_not_wait_behind_a_flood():
    world = overloaded(5, 0.3)
    flood = [connected(world) for _ in range(3)]
    small = connected(world, "small")
    _kept = window_of(flood[0], 2), window_of(small, 2)
    assert [sends(d, 1) for d in flood].count(True) <= 2
    assert sends(small, 1)


def test_who_waited_is_told_a_throttle_time_and_muted():
    world = overloaded(5, 0.3)
    one, other = connected(world), connected(world)
    _kept = window_of(one, 1)
    assert sends(one, 1)
    assert not sends(other, 1)
    one.now = other.now = 11.0
    one.broker(written([("orders", 0)], 1))
    other.turn()
    assert other.to_broker
    other.now = 11.25
    other.broker(written([("orders", 0)], 1))
    assert throttle(other.to_client) == 0.75
    assert other.session.state is State.MUTED


def test_a_connection_that_ends_leaves_its_place_to_others():
    world = overloaded(5, 0.3)
    going, waiting, left, last = (connected(world) for _ in range(4))
    window = window_of(going, 1)
    assert sends(going, 1)
    assert not any([sends(waiting, 1), sends(left, 1), sends(last, 1)])
    waiting.session.end()
    going.session.broker_lost(None)
    left.turn()
    assert left.to_broker
    left.broker(written([("orders", 0)], 1))
    last.turn()
    last.broker(written([("orders", 0)], 1))
    assert (window.under_way, window.waiting) == (0, 0)


def test_after_a_request_larger_than_the_window_there_is_a_pause_before_the_next():
    d = connected(overloaded(5, 0.3))
    _kept = window_of(d, 0.25)
    assert sends(d, 1)
    d.now = 10.3
    d.broker(written([("orders", 0)], 1))
    assert not sends(d, 2)
    assert d.port.wake == pytest.approx(10.0 + 0.3 * 4)
    d.now = 11.21
    d.session.wake(d.now)
    assert d.to_broker


def test_a_pause_gets_shorter_when_the_broker_gets_quicker():
    d = connected(overloaded(5, 0.3))
    window = window_of(d, 0.25)
    window.resize(0.05 * WRITTEN, 0.5, d.now)
    assert sends(d, 1)
    d.broker(written([("orders", 0)], 1))
    assert not sends(d, 2)
    window.resize(0.05 * WRITTEN, 0.01, 10.5)
    d.now = 11.0
    d.session.wake(d.now)
    assert d.to_broker, "after 10 s at the latency of before"


def test_a_large_request_of_who_asks_for_little_goes_on_at_once():
    world = overloaded(5, 0.3)
    small = connected(world, "small")
    _kept = window_of(small, 0.25)
    told = len(world.watcher.decisions)
    assert sends(small, 1)
    assert len(world.watcher.decisions) == told


def test_who_asks_for_little_may_ask_for_it_late_and_at_once():
    """Requests that are larger than the window, one after the other, and without answers: nothing waits, and it is told nothing."""
    small = connected(overloaded(5, 0.3), "small")
    window = window_of(small, 0.25)
    window.allowance = 5.5 * WRITTEN
    assert all(sends(small, number, acks=acks) for number, acks in enumerate((-1, -1, 0, 0, 1)))
    small.broker(written([("orders", 0)], 0))
    assert throttle(small.to_client) == 0.0
    assert not sends(small, 5)


def test_requests_without_an_answer_wait_as_long_as_they_would_be_under_way():
    d = connected(overloaded(5, 0.3))
    _kept = window_of(d, 1)
    assert sends(d, 1, acks=0)
    assert not sends(d, 2, acks=0)
    assert d.port.wake == pytest.approx(10.3)


def test_all_go_on_when_the_broker_is_well_again():
    world = overloaded(5, 0.3)
    connections = [connected(world) for _ in range(5)]
    _kept = window_of(connections[0], 1)
    waiting = [d for d in connections if not sends(d, 1)]
    assert len(waiting) == 4
    world.engine.overload.brokers[1].free(20.0)
    for d in waiting:
        d.turn()
        assert d.to_broker


def test_observed_nobody_waits_and_it_is_told_who_would():
    world = overloaded(5, 0.3, observed={"overload": Action.THROTTLE})
    d = connected(world)
    assert all(sends(d, number) for number in range(5))
    assert {decision.quota for decision, _ in world.watcher.would} == {"overload"}
    assert not world.watcher.decisions


def test_the_answers_of_users_are_in_the_figures_of_the_broker_too():
    world = overloaded(2, 0.3)
    times = dict(world.services.latencies)[Place(Part.BROKER, 1, 0)]
    assert sum(times.counts) == 6
    assert 1.5 < times.seconds < 2.0
