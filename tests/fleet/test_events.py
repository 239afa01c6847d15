"""What proxies tell each other keeps its age: while it waits to be told, while nobody can read it, and whatever the clocks are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from proxy.fleet.events import FleetEventStream
from proxy.hashing import murmur3
from quota.engine import Engine
from quota.entity import Entity
from quota.fleet_events import FleetEvents
from tests.fleet.memory_store import Memory, MemoryStore
from tests.fleet.simulated import run_simulated
from tests.support import limits_of

ALICE = Entity("alice", None)
QUOTA = "producer_byte_rate"


class Node:
    """One proxy. `way`: how it reaches the store, which may be cut."""

    def __init__(self, name: str, memory: Memory) -> None:
        self.way = MemoryStore(memory, name)
        self.clock: Callable[[], float] = asyncio.get_running_loop().time
        self.engine = Engine(limits_of(), murmur3)
        self.events = FleetEvents(self.engine, self.clock)
        self.task = asyncio.create_task(FleetEventStream(self.events, self.way, self.way, name, self.clock).run())

    def left(self) -> float:
        return self.engine.mutes.left(QUOTA, ALICE, self.clock())


def test_a_mute_that_is_read_after_an_outage_is_as_old_as_it_is() -> None:
    async def work() -> None:
        memory = Memory()
        teller, hearer = Node("a", memory), Node("b", memory)
        await asyncio.sleep(1)
        hearer.way.away = True
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(15)
        hearer.way.away = False
        await asyncio.sleep(1)
        assert hearer.left() == pytest.approx(4, abs=0.1)
        assert teller.left() == pytest.approx(4, abs=0.1)

    run_simulated(work())


def test_a_mute_that_is_over_when_it_is_read_starts_none() -> None:
    async def work() -> None:
        memory = Memory()
        teller, hearer = Node("a", memory), Node("b", memory)
        await asyncio.sleep(1)
        hearer.way.away = True
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(25)
        hearer.way.away = False
        await asyncio.sleep(1)
        assert hearer.left() == 0
        assert hearer.events.heard == 1

    run_simulated(work())


def test_a_mute_that_waited_to_be_told_is_as_old_as_it_is() -> None:
    async def work() -> None:
        memory = Memory()
        teller, hearer = Node("a", memory), Node("b", memory)
        await asyncio.sleep(1)
        teller.way.away = True
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(12)
        teller.engine.mutes.start(QUOTA, Entity("bob", None), teller.clock() + 20)
        await asyncio.sleep(3)
        teller.way.away = False
        await asyncio.sleep(1)
        assert hearer.left() == pytest.approx(4, abs=0.1)
        assert hearer.engine.mutes.left(QUOTA, Entity("bob", None), hearer.clock()) == pytest.approx(16, abs=0.1)

    run_simulated(work())


def test_what_is_told_while_all_is_well_is_new_whatever_the_store_takes_the_time_to_be() -> None:
    """Its clock is another one, and is set meanwhile: what it gets wrong it gets wrong for a minute."""

    async def work() -> None:
        memory = Memory(ahead=-500.0 + 1e6)
        teller, hearer = Node("a", memory), Node("b", memory)
        await asyncio.sleep(1)
        for step in (0.0, -3600.0, 7200.0):
            memory.ahead += step
            await asyncio.sleep(70)
            user = Entity(f"user {step}", None)
            teller.engine.mutes.start(QUOTA, user, teller.clock() + 20)
            await asyncio.sleep(1)
            if step >= 0:  # a real store's ids never go back: those of such an hour are all alike
                assert hearer.engine.mutes.left(QUOTA, user, hearer.clock()) == pytest.approx(19, abs=0.1)

    run_simulated(work())


@pytest.mark.parametrize(
    "fields",
    [
        {"b": "x", "e": "[" * 100_000},
        {"b": "x", "e": "{"},
        {"b": "x", "e": "[[1]]", "w": "soon"},
        {"e": json.dumps([["mute", QUOTA, "\ud800", None, None, 5.0]]), "w": "-9"},
        {"b": "\ufffd"},
    ],
)
def test_what_cannot_be_read_stops_nothing(fields: dict[str, str]) -> None:
    async def work() -> None:
        memory = Memory()
        hearer, teller = Node("b", memory), Node("a", memory)
        await asyncio.sleep(1)
        memory.append(fields)
        await asyncio.sleep(1)
        teller.engine.mutes.start(QUOTA, ALICE, teller.clock() + 20)
        await asyncio.sleep(1)
        assert hearer.left() == pytest.approx(19, abs=0.1)
        assert not hearer.task.done()

    run_simulated(work())


def test_what_was_put_back_goes_first_and_keeps_its_time() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        events = FleetEvents(Engine(limits_of(), murmur3), loop.time)
        events.tell(["first"])
        await asyncio.sleep(5)
        events.tell(["second"])
        taken = events.take(200)
        assert [came for _, came in taken] == [(0.0, ["first"]), (5.0, ["second"])]
        events.put_back(taken)
        assert (len(events), events.told) == (2, 0)
        assert [[came for _, came in events.take(1)] for _ in range(3)] == [[(0.0, ["first"])], [(5.0, ["second"])], []]

    run_simulated(work())
