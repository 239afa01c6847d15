"""A slow broker through a session: its answers are seen, and who floods it is told to wait, on connections to that broker alone."""

from proxy.session.latencies import Part, Place
from quota.kinds.overload import OverloadOptions
from quota.overload import Goal
from tests.apis.produce_frames import written
from tests.messages import batch, produce
from tests.support import World, limits_of

SIZE = 100_000


def overloaded(seconds: int, took: float) -> World:
    """A proxy after so many seconds in which user flood wrote to broker 1, which took so long for each of its answers."""
    world = World()
    world.engine.change(limits_of(OverloadOptions(Goal(0.1, 1024.0))))
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


def throttled_at(world: World, broker: int) -> bool:
    """Is a new connection of the user to this broker slowed down, when it writes a lot at once?"""
    d = world.dialogue("flood", broker=broker)
    d.session.client.let_in = True
    d.now = 10.0
    for number in range(1, 10):
        d.client(produce(9, number, batch(size=SIZE)))
        if d.session.state.name != "OPEN":
            return True
        d.broker(written([("orders", 0)], number))
    return False


def test_who_floods_a_slow_broker_is_slowed_down_there():
    world = overloaded(5, 0.3)
    assert throttled_at(world, 1)
    assert not throttled_at(world, 2)


def test_a_broker_that_keeps_up_slows_nobody_down():
    assert not throttled_at(overloaded(5, 0.05), 1)


def test_the_answers_of_users_are_in_the_figures_of_the_broker_too():
    world = overloaded(2, 0.3)
    times = dict(world.services.latencies)[Place(Part.BROKER, 1, 0)]
    assert sum(times.counts) == 6
    assert 1.5 < times.seconds < 2.0
