"""A store in memory, for simulations and as proof that another store is one file. Its wall clock is `ahead` of the event loop's.
In: what proxies send. Out: what a store answers; `StoreError` while it, or the way to it, is away."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from benchmarks.fleet_simulation.store import Store as Sums
from proxy.fleet.store import Entry, Reply, StoreError
from quota.ledger import Batch

LATENCY, POLL = 0.001, 0.01


class Memory:
    """What all clients share."""

    def __init__(self, ahead: float = 1_700_000_000.0) -> None:
        self.ahead, self.away = ahead, False
        self.entries: list[Entry] = []
        self.sums: defaultdict[int, Sums] = defaultdict(Sums)
        self.present: defaultdict[int, dict[str, float]] = defaultdict(dict)
        self._appended = 0

    @property
    def wall(self) -> float:
        return asyncio.get_running_loop().time() + self.ahead

    def append(self, fields: Mapping[str, str]) -> None:
        self._appended += 1
        self.entries.append(Entry(str(self._appended), self.wall, dict(fields)))


class MemoryStore:
    """The client of one proxy; while it is `away`, only this proxy is cut off."""

    def __init__(self, memory: Memory, boot: str = "") -> None:
        self._memory, self._boot = memory, boot
        self.away = False

    async def send(self, batch: Batch, count_for: float = 0.0) -> Reply:
        await self._reach()
        memory = self._memory
        answer = memory.sums[batch.shard].apply(self._boot, batch, memory.wall)
        present = memory.present[batch.shard]
        if not (answer.accepted and count_for):
            return Reply(answer, 0)
        present[self._boot] = memory.wall + count_for
        return Reply(answer, sum(until > memory.wall for until in present.values()))

    async def append_event(self, fields: Mapping[str, str]) -> None:
        await self._reach()
        self._memory.append(fields)

    async def read_events(self, after: str, limit: int, wait: float) -> list[Entry]:
        until = asyncio.get_running_loop().time() + wait
        while True:
            await self._reach()
            found = [entry for entry in self._memory.entries if int(entry.position) > int(after)][:limit]
            if found or asyncio.get_running_loop().time() >= until:
                return found
            await asyncio.sleep(POLL)

    def position_at(self, time: float) -> str:
        """Time does not go back in an order of appending, so it is the entry before the first that is young enough."""
        entries = self._memory.entries
        first = next((entry for entry in entries if entry.written_at >= time), None)
        if first is not None:
            return str(int(first.position) - 1)
        return entries[-1].position if entries else "0"

    async def forget_events(self, before: float, keep: float) -> None:  # noqa: ARG002
        await self._reach()
        self._memory.entries = [entry for entry in self._memory.entries if entry.written_at >= before]

    async def time(self) -> float:
        await self._reach()
        return self._memory.wall

    async def close(self) -> None: ...

    async def _reach(self) -> None:
        await asyncio.sleep(LATENCY)
        if self.away or self._memory.away:
            raise StoreError("away")
