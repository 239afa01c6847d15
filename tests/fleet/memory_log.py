"""A log in memory (`proxy.fleet.shared_log`) that can be away, lose answers, be emptied and lose its beginning. Its clock is the
event loop's, `ahead` by some seconds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from proxy.fleet.shared_log import PARTITIONS, LogRecord, Page
from proxy.upstream.connector import TopicError

LATENCY = 0.001


class MemoryLog:
    """The log itself, and the way to it."""

    name = "the-ledger"

    def __init__(self) -> None:
        self.records: list[list[LogRecord]] = [[] for _ in range(PARTITIONS)]
        self.begins = [0] * PARTITIONS
        self.ahead = 1_700_000_000.0
        self.away: TopicError | None = None
        self.loses_answers = 0
        """appends to come whose answer is lost"""
        self.slow = 0.0
        """seconds that an append takes"""
        self.number = 1
        """another one whenever it was made anew"""
        self.appends = 0
        self._moved = asyncio.Event()

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenLog]:
        await self.reach()
        yield OpenLog(self)

    async def reach(self) -> None:
        await asyncio.sleep(LATENCY)
        if self.away is not None:
            raise self.away

    def add(self, value: bytes, partition: int = 0) -> int:
        records = self.records[partition]
        offset = self.end(partition)
        records.append(LogRecord(offset, asyncio.get_running_loop().time() + self.ahead, value))
        self._moved.set()
        self._moved = asyncio.Event()
        return offset

    def end(self, partition: int) -> int:
        return self.begins[partition] + len(self.records[partition])

    def cut(self, partition: int, offset: int) -> None:
        """Records before this offset are deleted."""
        del self.records[partition][: offset - self.begins[partition]]
        self.begins[partition] = offset

    def make_anew(self) -> None:
        self.records = [[] for _ in range(PARTITIONS)]
        self.begins = [0] * PARTITIONS
        self.number += 1

    async def moved(self) -> None:
        await self._moved.wait()


class OpenLog:
    """A client of it."""

    def __init__(self, log: MemoryLog) -> None:
        self._log, self._number = log, log.number

    async def ends(self, partition: int) -> tuple[int, int]:
        await self._log.reach()
        return self._log.begins[partition], self._log.end(partition)

    async def offset_at(self, partition: int, time: float) -> int:
        await self._log.reach()
        found = (record.offset for record in self._log.records[partition] if record.written_at >= time)
        return next(found, self._log.end(partition))

    async def read(self, partition: int, offset: int, limit: int, wait: float) -> Page:
        await self._log.reach()
        log = self._log
        if offset < log.begins[partition]:
            raise TopicError("records were deleted before they were read")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait):
                while log.end(partition) <= offset:
                    await log.moved()
        await log.reach()
        first = max(offset - log.begins[partition], 0)
        found = log.records[partition][first : first + limit]
        return Page(found, found[-1].offset + 1 if found else offset)

    async def append(self, partition: int, value: bytes) -> int:
        await self._log.reach()
        log = self._log
        log.appends += 1
        await asyncio.sleep(log.slow)
        offset = log.add(value, partition)
        if log.loses_answers:
            log.loses_answers -= 1
            raise TopicError("the answer is lost")
        return offset

    async def verify(self) -> None:
        await self._log.reach()
        if self._number != self._log.number:
            raise TopicError("it was made anew")
