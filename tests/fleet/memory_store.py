"""A store in memory that can be away, and whose wall clock is `ahead` of the event loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from proxy.fleet.memory_store import Memory as ProductMemory
from proxy.fleet.memory_store import MemoryStore as ProductStore
from proxy.fleet.store import Entry, Reply, StoreError
from quota.ledger import Update

LATENCY = 0.001


class Memory(ProductMemory):
    """While it is `away`, nobody reaches it."""

    def __init__(self, ahead: float = 1_700_000_000.0) -> None:
        super().__init__()
        self.ahead, self.away = ahead, False

    def now(self) -> float:
        return super().now() + self.ahead


class MemoryStore(ProductStore):
    """The client of one proxy; while it is `away`, only this proxy is cut off."""

    def __init__(self, memory: Memory, boot: str = "") -> None:
        super().__init__(memory, boot)
        self._way, self.away = memory, False

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        await self._reach()
        return await super().send(update, count_for)

    async def append_event(self, fields: Mapping[str, str]) -> None:
        await self._reach()
        await super().append_event(fields)

    async def read_events(self, after: str, limit: int, wait: float) -> list[Entry]:
        await self._reach()
        found = await super().read_events(after, limit, wait)
        await self._reach()
        return found

    async def forget_events(self, before: float, keep: float) -> None:
        await self._reach()
        await super().forget_events(before, keep)

    async def time(self) -> float:
        await self._reach()
        return await super().time()

    async def _reach(self) -> None:
        await asyncio.sleep(LATENCY)
        if self.away or self._way.away:
            raise StoreError("away")
