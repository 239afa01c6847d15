"""Each rate that throttles, with 1, 10 and 100 connections that ask again as soon as they may: over a minute they get it within
2 %, counted in exact arithmetic by what the broker saw. The time is simulated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from random import Random

import pytest

from proxy.session.session import State
from quota.kinds.cold_reads import ColdReads
from quota.kinds.rates import RateLimit
from quota.kinds.topic_rates import TOPIC_IN, TOPIC_OUT, TopicTable
from tests.apis.produce_frames import records, write, written
from tests.apis.test_cold_reads import fetched as cold_fetched
from tests.apis.topic_frames import BEAT, HEARTBEAT
from tests.messages import request
from tests.support import ALICE, World, changed
from tests.wire.test_fetch import fetched

WARM_UP, MEASURED = 40, 60
"""Seconds. Ten seconds of a rate pass at once, and what a hundred clients owe then is paid within half a minute."""


@dataclass(frozen=True)
class Case:
    """What is asked, how it is answered, how much that is, and the rate in the same unit."""

    world: Callable[[], World]
    ask: bytes
    answer: bytes
    amount: int
    rate: int


def requests() -> World:
    return World(rates={"group_request_rate": {ALICE: 20}}, max_throttle=600.0)


def topic() -> World:
    world = World(max_throttle=600.0)
    world.engine.change(changed(world.engine.limits, **{TOPIC_OUT: TopicTable({"orders": RateLimit(20_000)})}))
    return world


def written_topic() -> World:
    """With the longest throttle that proxies have by default: a hundred producers owe more than it can pay."""
    world = World()
    world.engine.change(changed(world.engine.limits, **{TOPIC_IN: TopicTable({"orders": RateLimit(2_000_000)})}))
    return world


def cold() -> World:
    world = World(rates={"cold_read_rate": {ALICE: 20_000}}, max_throttle=600.0)
    world.engine.change(changed(world.engine.limits, ColdReads(100)))
    return world


FETCH = request(1, 12, 1, chance=Random(1))
CASES = {
    "requests of a kind": Case(requests, HEARTBEAT, BEAT, 1, 20),
    "bytes out of a topic": Case(topic, FETCH, fetched(12, Random(1), ("orders", [700, 300]), ("bills", [9000])), 1000, 20_000),
    "bytes into a topic, by large batches": Case(
        written_topic,
        write({("orders", 0): records(1_000_000)}),
        written([("orders", 0)]),
        1_000_000,
        2_000_000,
    ),
    "cold reads": Case(cold, FETCH, cold_fetched(12, (10_000, 0, 1000), (10_000, 9950, 9000)), 1000, 20_000),
}


@pytest.mark.parametrize("connections", [1, 10, 100])
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_rate(name: str, connections: int) -> None:
    case = CASES[name]
    world = case.world()
    dialogues = [world.dialogue("alice") for _ in range(connections)]
    due = [(Fraction(i, 1000), i) for i in range(connections)]
    heapify(due)
    got, now = Fraction(0), Fraction(0)
    while now < WARM_UP + MEASURED:
        now, i = heappop(due)
        d = dialogues[i]
        d.now = float(now)
        if d.session.state in (State.HELD, State.MUTED):
            d.session.wake(d.now)
        if d.session.state in (State.NEW, State.OPEN):
            d.client(case.ask)
        if d.to_broker:
            got += case.amount if WARM_UP <= now < WARM_UP + MEASURED else 0
            d.broker(case.answer)
        assert d.to_client is not None
        waits = d.session.state in (State.HELD, State.MUTED)
        heappush(due, (Fraction(d.port.wake or 0) if waits else now + Fraction(1, 1000), i))
    assert got / MEASURED == pytest.approx(case.rate, rel=0.02)
