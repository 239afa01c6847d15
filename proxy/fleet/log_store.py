"""A store on a log that all proxies read (`store.Store`): each process follows the log and has a copy of the state that its
records make (`log_follower`).

In: what proxies of this process send. Out: records; answers from the copy; `StoreError` while the log cannot be followed.

An update that changes something is appended, and answered when it was read back: then it is known to count, and in which order. An
update that only asks is answered from the copy, if a record was read not long ago; else it is appended too, which shows whether the
log still takes and gives records. So proxies that are idle write little, however many they are. A batch that is sent again has the
same number, and counts once.

Each proxy has an equal part of what the log is to carry (`BYTES`, `RECORDS`): after a record it waits for as long as the others
need for theirs (`Reply.pause`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from proxy.fleet.log_follower import LogFollower, error_text
from proxy.fleet.log_records import TICK, BadRecord, LogUpdate, decode_event, encode_event, writes
from proxy.fleet.shared_log import EVENTS, UPDATES, SharedLog
from proxy.fleet.store import SINCE, Entry, Reply, StoreError, position_at
from quota.ledger import Answer, Update

BYTES: Final = 750_000
"""Bytes of updates in a second, of all proxies together. With snapshots it is less than 1 MB/s."""
RECORDS: Final = 1000
"""Updates in a second, of all proxies together: each of them is read by every proxy."""
REFRESH: Final = 0.5
"""The part of the time for which a proxy counts as present that may be left when it is told again."""
T = TypeVar("T")


@dataclass(slots=True)
class Numbers:
    """The updates of one proxy for one shard. `accepted`: number of the last one that was answered, as the proxy counts them;
    `written`: of the last one that is in the log, as the log counts them. `tried`: the one that may be in the log."""

    generation: str
    accepted: int = 0
    written: int = 0
    tried: int = 0


class LogStore:
    """The client of the proxy `boot`, whose name is unique for each of its starts. `patience`: seconds that a record may take to
    come back."""

    def __init__(self, follower: LogFollower, boot: str, patience: float) -> None:
        follower.serve(boot)
        self._follower, self._boot, self._patience = follower, boot, patience
        self._numbers: dict[int, Numbers] = {}
        self._next_write = 0.0
        self._turn = asyncio.Lock()

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        async with self._turn:  # who has given up an answer sends the same again
            return await self._send(update, count_for)

    async def _send(self, update: Update, count_for: float) -> Reply:
        follower = self._follower
        await follower.wait(self._patience)
        state = follower.state()
        numbers = self._numbers.get(update.shard)
        if numbers is None or numbers.generation != state.generation:
            numbers = self._numbers[update.shard] = Numbers(state.generation)
        if update.generation != state.generation or update.number > numbers.accepted + 1:
            return Reply(Answer(state.generation, False, numbers.accepted), 0)
        if update.number > numbers.accepted:
            if self._has_to_write(update, count_for, numbers):
                refused = await self._write(update, count_for, numbers)
                if refused is not None:
                    return Reply(refused, 0)
            numbers.accepted = update.number
        if (generation := follower.state().generation) != update.generation:
            return Reply(Answer(generation, False, 0), 0)
        return self._look(update, count_for)

    def _has_to_write(self, update: Update, count_for: float, numbers: Numbers) -> bool:
        follower = self._follower
        if numbers.tried == update.number or not follower.fresh() or any(map(writes, update.changes)):
            return True
        until = follower.state().present(update.shard, follower.now()).get(self._boot, 0.0)
        return count_for > 0 and until - follower.now() < count_for * REFRESH

    async def _write(self, update: Update, count_for: float, numbers: Numbers) -> Answer | None:
        """Append the update. None when it counts, else the refusal."""
        numbers.tried = update.number
        told = LogUpdate(self._boot, update._replace(number=numbers.written + 1), count_for)
        answer, size = await self._follower.write(told, self._patience)
        numbers.tried = 0
        self._hold_back(size)
        if answer.accepted:
            numbers.written += 1
            return None
        numbers.accepted, numbers.written = 0, answer.last  # the log does not know this proxy any more
        return Answer(answer.generation, False, 0)

    def _hold_back(self, size: int) -> None:
        """After a record of this size: leave the others their part."""
        proxies = len(self._follower.state().present(0, self._follower.now()))
        self._next_write = asyncio.get_running_loop().time() + pause_after(size, proxies)

    def _look(self, update: Update, count_for: float) -> Reply:
        state, now = self._follower.state(), self._follower.now()
        proxies = len(state.present(update.shard, now)) if count_for else 0
        return Reply(state.look(update, now), proxies, max(self._next_write - asyncio.get_running_loop().time(), 0.0))

    async def append_event(self, fields: Mapping[str, str]) -> None:
        await self._ask(lambda log: log.append(EVENTS, encode_event(fields)))

    async def read_events(self, after: str, limit: int, wait: float) -> list[Entry]:
        async def read(log: SharedLog) -> list[Entry]:
            since = after.startswith(SINCE)
            offset = await log.offset_at(EVENTS, float(after.removeprefix(SINCE))) if since else int(after) + 1
            page = await log.read(EVENTS, offset, limit, wait)
            return [Entry(str(record.offset), record.written_at, self._fields(record.value)) for record in page.records]

        return await self._ask(read, wait)

    def position_at(self, time: float) -> str:
        return position_at(time)

    async def forget_events(self, before: float, keep: float) -> None:
        """The brokers do it, when `retention.ms` of the topic says so."""

    async def time(self) -> float:
        if not self._follower.fresh():

            async def tick(log: SharedLog) -> None:
                await self._follower.reach(await log.append(UPDATES, TICK))

            await self._ask(tick)
        return self._follower.now()

    async def close(self) -> None:
        """The connections are those of the follower, and stay."""

    def _fields(self, value: bytes) -> dict[str, str]:
        """Of an event; nothing if it makes no sense."""
        try:
            return decode_event(value)
        except BadRecord:
            self._follower.skip()
            return {}

    async def _ask(self, what: Callable[[SharedLog], Awaitable[T]], wait: float = 0.0) -> T:
        try:
            await self._follower.wait(self._patience)
            async with asyncio.timeout(self._patience + wait):
                return await what(self._follower.connected())
        except StoreError:
            raise
        except TimeoutError:
            raise StoreError("the topic does not answer in time") from None
        except Exception as e:  # whatever a library makes of it
            raise StoreError(error_text(e)) from None


def pause_after(size: int, proxies: int) -> float:
    """Seconds for which a proxy that has written `size` bytes writes nothing more."""
    return proxies * max(size / BYTES, 1 / RECORDS)
