"""A store in the memory of one process (`store.Store`): the supervisor keeps one for its workers, tests and simulations use it too.

In: what proxies send. Out: what a store answers. It forgets all when its process ends, as a Redis that restarts empty does."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final

from proxy.fleet.shared_state import SharedState
from proxy.fleet.store import SINCE, Entry, Reply, position_at
from quota.ledger import Update

MAX_EVENTS: Final = 100_000
"""Entries of the stream that are kept at most."""


class Memory:
    """What all clients share. Its clock is the event loop's."""

    def __init__(self) -> None:
        self._state = SharedState(secrets.token_hex(8))
        self._entries: deque[Entry] = deque(maxlen=MAX_EVENTS)
        self._appended = 0
        self._more = asyncio.Event()
        """set when an entry is appended"""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def apply(self, boot: str, update: Update, count_for: float) -> Reply:
        return self._state.apply(boot, update, count_for, self.now())

    def append(self, fields: Mapping[str, str]) -> None:
        self._appended += 1
        self._entries.append(Entry(str(self._appended), self.now(), dict(fields)))
        self._more.set()
        self._more = asyncio.Event()

    async def read(self, after: str, limit: int, wait: float) -> list[Entry]:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while not (found := self._found(after, limit)):
                    await self._more.wait()
                return found
        return []

    def _found(self, after: str, limit: int) -> list[Entry]:
        """Positions are numbers in a row, and times do not go back."""
        entries = self._entries
        if after.startswith(SINCE):
            time = float(after.removeprefix(SINCE))
            first = next((i for i, entry in enumerate(entries) if entry.written_at >= time), len(entries))
        else:
            first = max(int(after) + 1 - int(entries[0].position), 0) if entries else 0
        return list(islice(entries, first, first + limit))

    def forget(self, before: float) -> None:
        while self._entries and self._entries[0].written_at < before:
            self._entries.popleft()


class MemoryStore:
    """The client of one proxy."""

    def __init__(self, memory: Memory, boot: str) -> None:
        self._memory, self._boot = memory, boot

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        return self._memory.apply(self._boot, update, count_for)

    async def append_event(self, fields: Mapping[str, str]) -> None:
        self._memory.append(fields)

    async def read_events(self, after: str, limit: int, wait: float) -> list[Entry]:
        return await self._memory.read(after, limit, wait)

    def position_at(self, time: float) -> str:
        return position_at(time)

    async def forget_events(self, before: float, keep: float) -> None:  # noqa: ARG002  (it ends with its process)
        self._memory.forget(before)

    async def time(self) -> float:
        return self._memory.now()

    async def close(self) -> None: ...
