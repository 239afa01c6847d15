"""Carries the ledger of this proxy to the store and back. In: a `quota.ledger.Ledger`, a `Store`. Out: windows that are those of
the fleet; a line when the store goes away and when it is back. Nothing waits for it.

Every `sync_interval` what was charged is taken, whether the store answers or not; each shard has one batch under way, and what has
failed is sent again, at longer intervals as long as nothing answers. A store may ask for pauses. Owners near their limits are
synchronised every `URGENT` seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from proxy.backoff import Backoff, retry
from proxy.config.ledger import Ledger as Settings
from proxy.fleet.store import Store, StoreError
from proxy.observe.operations import Log
from quota.ledger import Away, Ledger, Shard, Sums

COUNT_EVERY: Final = 1.0
"""Seconds between two times that this proxy says it is there."""
COUNTED: Final = 5.0
"""Seconds for which it counts as there."""
SLOWEST_RETRY: Final = 0.5
URGENT: Final = 0.02
"""Seconds between two batches of owners that are near their limits, if `sync_interval` is not shorter."""
IDLE: Final = 0.05
"""Seconds between two looks for what was charged while there are no owners: nobody with a limit has sent anything lately."""
MISSED: Final = 3
"""Batches without an answer after which the store is away, where it wants longer pauses than `stale_after` allows for."""
MAX_BATCHES: Final = 20
"""Batches of a shard that follow each other at once where more has changed than one holds."""


class LedgerLink:
    """The ledger of one proxy with its store."""

    def __init__(self, settings: Settings, kinds: list[Sums], store: Store, clock: Callable[[], float], log: Log) -> None:
        self._settings, self._store, self._clock, self._log = settings, store, clock, log
        self.ledger = Ledger(
            kinds,
            clock(),
            shards=settings.shards,
            stale_after=settings.stale_after,
            grace=2 * settings.sync_interval,
            when_away=Away(settings.when_away),
            proxies=settings.replicas,
        )
        self._wake = [asyncio.Event() for _ in self.ledger.shards]
        self._due = [False for _ in self.ledger.shards]
        """by shard: the next batch is one of all owners, not of urgent ones only"""
        self._next_count = [0.0] * settings.shards
        self._pause_until = [0.0] * settings.shards
        """by shard: the store wants no batch before"""
        self._away: bool | None = None
        self.why_not = "it was not asked yet"
        """what went wrong last"""
        self.failures = 0
        self.syncs, self.seconds = 0, 0.0
        """answered batches, and how long they took together"""

    @property
    def up(self) -> bool:
        """True if all shards answer."""
        return self._away is False

    @property
    def joined(self) -> bool:
        """True once all shards have answered: from then on, windows are those of the fleet, or estimates of them."""
        return all(shard.generation for shard in self.ledger.shards)

    async def run(self) -> None:
        """Until cancelled."""
        interval = self._settings.sync_interval
        try:
            async with asyncio.TaskGroup() as group:
                for shard, wake in zip(self.ledger.shards, self._wake, strict=True):
                    group.create_task(self._follow(shard, wake))
                group.create_task(self._tick(interval))
        finally:
            await self._store.close()

    async def _tick(self, interval: float) -> None:
        step = min(interval, URGENT)
        due = all_due = self._clock()
        while True:
            now = self._clock()
            self.ledger.collect(now)
            if now >= all_due:
                all_due = max(all_due + interval, now)
                self._due = [True for _ in self._due]
            for shard, wake in zip(self.ledger.shards, self._wake, strict=True):
                if self._due[shard.number] or shard.urgent:
                    wake.set()
            self._tell(now)
            due = max(due + (step if len(self.ledger) else max(step, IDLE)), now)
            await asyncio.sleep(max(due - self._clock(), step / 4))

    async def _follow(self, shard: Shard, wake: asyncio.Event) -> None:
        """One shard: a batch at every tick, more of them where more has changed."""

        async def work() -> None:
            await wake.wait()
            wake.clear()
            urgent, self._due[shard.number] = not self._due[shard.number], False
            if self.ledger.quiet(shard, self._clock()):
                return
            for _ in range(MAX_BATCHES):
                await self._sync(shard, urgent=urgent)
                if shard.batch is None and (urgent or not shard.changed):
                    return

        await retry(work, Backoff(self._settings.sync_interval / 2, SLOWEST_RETRY), self._fails, StoreError)

    def _fails(self, error: Exception) -> None:
        self.failures += 1
        self.why_not = str(error)

    async def _sync(self, shard: Shard, *, urgent: bool) -> None:
        if (pause := self._pause_until[shard.number] - self._clock()) > 0:
            await asyncio.sleep(pause)
        began = self._clock()
        counts = began >= self._next_count[shard.number]
        batch = self.ledger.batch(shard, began, urgent=urgent)
        reply = await self._store.send(batch.update(), COUNTED if counts else 0.0)
        now = self._clock()
        self.ledger.answered(batch, reply.answer, now)
        self._pause_until[shard.number] = now + reply.pause
        self.ledger.stale_after = max(self._settings.stale_after, MISSED * reply.pause)
        self.syncs += 1
        self.seconds += now - began
        if reply.proxies:
            self._next_count[shard.number] = began + COUNT_EVERY
            self.ledger.proxies = reply.proxies

    def _tell(self, now: float) -> None:
        away = self.ledger.away(now) > 0
        if away == self._away or (self._away is None and not away and self.ledger.shards[0].generation == ""):
            return
        self._away = away
        if away:
            assumed = "others are taken to go on as they did" if self._settings.when_away == "share" else "each has an equal part"
            self._log.error("ledger is away", reason=self.why_not, proxies=self.ledger.proxies, detail=assumed)
        else:
            self._log.info("ledger is up", proxies=self.ledger.proxies)
