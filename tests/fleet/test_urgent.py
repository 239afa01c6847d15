"""Owners near their limits are synchronised long before `sync_interval`, others are not; and no more often than the store wants."""

from __future__ import annotations

import asyncio

import structlog

from proxy.config.ledger import Ledger as Settings
from proxy.fleet.fleet import Fleet
from proxy.fleet.ledger import URGENT
from proxy.fleet.store import Reply
from proxy.hashing import murmur3
from quota.engine import Engine
from quota.entity import DEFAULT, Entity
from quota.kinds.rates import RateLimit
from quota.ledger import Update
from quota.limit_table import LimitTable
from tests.fleet.memory_store import Memory, MemoryStore
from tests.fleet.simulated import run_simulated
from tests.support import limits_of

RATE = 1000.0
SLOW = Settings.model_validate({"sync_interval": "5s", "stale_after": "20s"})
RATES = "producer_byte_rate"


class PausingStore(MemoryStore):
    """Wants a pause behind each batch."""

    def __init__(self, memory: Memory, boot: str, pause: float) -> None:
        super().__init__(memory, boot)
        self._pause = pause

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        return (await super().send(update, count_for))._replace(pause=self._pause)


class Proxy:
    def __init__(self, name: str, memory: Memory, pause: float = 0.0) -> None:
        self.clock = asyncio.get_running_loop().time
        self.engine = Engine(limits_of(producer_byte_rate=LimitTable({Entity(DEFAULT, None): RateLimit(RATE)})), murmur3)
        store = PausingStore(memory, name, pause)
        self.fleet = Fleet(SLOW, self.engine, name, self.clock, structlog.get_logger(), lambda _: store)
        self.task = asyncio.create_task(self.fleet.run())

    def charge(self, user: str, amount: float) -> None:
        rates = self.engine.rates[RATES]
        found = rates.find(user, "")
        assert found is not None
        rates.charge(found, (amount,), self.clock())

    def level(self, user: str) -> float:
        return self.engine.rates[RATES].level(Entity(user, None), self.clock())


def test_only_who_is_near_a_limit_is_synchronised_at_once() -> None:
    async def work() -> None:
        memory = Memory()
        here, there = Proxy("a", memory), Proxy("b", memory)
        for user in ("near", "far"):
            here.charge(user, 1)
            there.charge(user, 1)
        await asyncio.sleep(6)  # both have heard of both
        for proxy in (here, there):
            for user in ("near", "far"):
                assert proxy.level(user) < 10
        for user, amount in (("near", RATE * 6), ("far", RATE / 10)):
            here.charge(user, amount)
            there.charge(user, 1)
        there.charge("near", RATE * 6)
        await asyncio.sleep(5 * URGENT)
        assert there.level("near") > RATE * 9, "each of them has charged 6 at most"
        assert here.level("near") > RATE * 9
        assert there.level("far") < 10
        await asyncio.sleep(11)
        assert there.fleet.link.syncs < 120, "it is over, and nobody is synchronised any more"

    run_simulated(work())


def test_a_store_that_wants_a_pause_gets_it_and_is_not_away_meanwhile() -> None:
    async def work() -> None:
        memory, pause = Memory(), 25.0
        here = Proxy("a", memory, pause)
        for _ in range(1500):
            here.charge("near", RATE)
            await asyncio.sleep(0.1)
            assert here.fleet.link.up or here.clock() < 1
        assert 5 <= here.fleet.link.syncs <= 8

    assert SLOW.stale_after < 25
    run_simulated(work())
