"""A store on a log that all proxies read (`store.Store`, `shared_log.SharedLog`): each process follows the log and has a copy of
the state that its records make (`replica`).

In: what proxies of this process send. Out: records; answers from the copy; `StoreError` while the log cannot be followed.

An update that changes something is appended, and answered when it was read back: then it is known to count, and in which order. An
update that only asks is answered from the copy, if a record was read not long ago; else it is appended too, which shows whether the
log still takes and gives records. So proxies that are idle write little, however many they are. A batch that is sent again has the
same number, and counts once.

Each proxy has an equal part of what the log is to carry (`BYTES`, `RECORDS`): after a record it waits for as long as the others
need for theirs (`Reply.pause`)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from proxy.backoff import Backoff, retry
from proxy.fleet.log_records import TICK, BadRecord, Genesis, LogUpdate, decode_event, encode_event, writes
from proxy.fleet.replica import Replica
from proxy.fleet.shared_log import EVENTS, UPDATES, LogSource, SharedLog
from proxy.fleet.shared_state import SharedState
from proxy.fleet.store import SINCE, Entry, Reply, StoreError, position_at
from proxy.observe.operations import Log
from proxy.upstream.connector import TopicError
from quota.ledger import Answer, Update

BYTES: Final = 750_000
"""Bytes of updates in a second, of all proxies together. With snapshots it is less than 1 MB/s."""
RECORDS: Final = 1000
"""Updates in a second, of all proxies together: each of them is read by every proxy."""
OVERHEAD: Final = 80
"""Bytes that a record has in the log beside its value."""
SNAPSHOT_AFTER: Final = 2_000_000
"""Bytes of records after which a snapshot is written, and 4 times the size of the last one at least: so snapshots are a fifth of
what is written."""
LOOK_BACK: Final = (3_000, 30_000)
"""Records before the end in which a snapshot is looked for, before all are read."""
AT_ONCE: Final = 500
"""Records that are looked at before others have their turn."""
SILENCE: Final = 2.0
"""Seconds without a record after which the log is asked where it ends."""
VERIFY_EVERY: Final = 10.0
"""Seconds between two looks whether it is still the same log."""
GATHER: Final = 0.003
"""Seconds between two reads: records that come meanwhile are read at once, which costs less."""
REFRESH: Final = 0.5
"""The part of the time for which a proxy counts as present that may be left when it is told again."""
FIRST_RETRY, SLOWEST_RETRY = 0.1, 5.0
T = TypeVar("T")
Key = tuple[str, int, int]
"""A proxy, a shard, and the number of an update."""


class LogFollower:
    """Keeps the copy of this process. `fresh_for`: seconds after the last record for which the copy is taken for current."""

    def __init__(self, source: LogSource, log: Log, fresh_for: float) -> None:
        self._source, self._log, self._fresh_for = source, log, fresh_for
        self.why_not = "it was not read yet"
        """Why the log cannot be used."""
        self.denied: str | None = None
        """why this proxy may not use the log; None where it may, or that is not known"""
        self._shared_log: SharedLog | None = None
        self._following = asyncio.Event()
        """set while the copy is there, and can be used"""
        self._replica = Replica(0)
        self._read_at = 0.0
        self._waiting: dict[Key, asyncio.Future[Answer]] = {}
        self._appends: dict[Key, asyncio.Task[None]] = {}
        self._moved = asyncio.Condition()
        self._snapshots: asyncio.Task[None] | None = None
        self._boots: list[str] = []
        self.skipped = 0
        """records that made no sense"""
        self._skipped_to = -1
        """offset of the last one of them that is counted"""

    @property
    def following(self) -> bool:
        """True while the log can be used."""
        return self._following.is_set()

    def store(self, boot: str, patience: float) -> LogStore:
        """A client for the proxy `boot`, whose name is unique for each of its starts."""
        if boot not in self._boots:
            self._boots.append(boot)
        return LogStore(self, boot, patience)

    async def run(self) -> None:
        """Follow the log until cancelled."""
        backoff = Backoff(FIRST_RETRY, SLOWEST_RETRY)

        def failed(error: Exception) -> None:
            if self._shared_log is not None:
                backoff.reset()
            self._fails(error)

        await retry(self._follow, backoff, failed)  # after any error of a library: clients are still served

    # ------------------------------------------------------------------ for stores

    async def wait(self, patience: float) -> None:
        """Until the log can be used; `StoreError` if that takes too long."""
        try:
            async with asyncio.timeout(patience):
                await self._following.wait()
        except TimeoutError:
            raise StoreError(f"topic {self._source.name}: {self.why_not}") from None

    def connected(self) -> SharedLog:
        """The log; `StoreError` while it cannot be used."""
        if self._shared_log is None:
            raise StoreError(f"topic {self._source.name}: {self.why_not}")
        return self._shared_log

    def state(self) -> SharedState:
        """The copy; `StoreError` while there is none."""
        self.connected()
        assert self._replica.state is not None
        return self._replica.state

    def fresh(self) -> bool:
        """True if the log was read not long ago."""
        return self._shared_log is not None and asyncio.get_running_loop().time() - self._read_at < self._fresh_for

    def now(self) -> float:
        """The clock of the log."""
        return self._replica.clock + max(asyncio.get_running_loop().time() - self._read_at, 0.0)

    async def write(self, told: LogUpdate, patience: float) -> tuple[Answer, int]:
        """Append an update, and wait until it is read back. Its answer without totals, and its size in the log. An update that is
        still on its way to the log is not written once more."""
        log = self.connected()
        key = (told.boot, told.update.shard, told.update.number)
        value = told.encoded()
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        if key not in self._appends:
            task = self._appends[key] = asyncio.create_task(self._append(log, key, value))
            task.add_done_callback(lambda _: self._appends.pop(key, None))
        try:
            async with asyncio.timeout(patience):
                return await answer, len(value) + OVERHEAD
        except TimeoutError:
            raise StoreError(f"topic {self._source.name} does not take and give records in time") from None
        finally:
            if self._waiting.get(key) is answer:
                del self._waiting[key]

    async def _append(self, log: SharedLog, key: Key, value: bytes) -> None:
        try:
            await log.append(UPDATES, value)
        except Exception as e:
            self._note_denial(e)
            waiting = self._waiting.get(key)
            if waiting is not None and not waiting.done():
                waiting.set_exception(StoreError(f"topic {self._source.name}: {_why(e)}"))

    async def reach(self, offset: int) -> None:
        """Wait until this record was read."""
        async with self._moved:
            await self._moved.wait_for(lambda: self._replica.next_offset > offset)

    # ------------------------------------------------------------------ following

    async def _follow(self) -> None:
        async with self._source.opened() as log:
            self._replica = await self._rebuild(log)
            self._shared_log, self.denied, self.why_not = log, None, ""
            self._following.set()
            try:
                await self._read_on(log)
            finally:
                self._following.clear()
                self._end_snapshots()

    async def _read_on(self, log: SharedLog) -> None:
        clock = asyncio.get_running_loop().time
        next_look = clock() + VERIFY_EVERY
        while True:
            if not await self._take_some(log, self._replica, SILENCE):
                _, end = await log.ends(UPDATES)
                if end < self._replica.next_offset:
                    raise TopicError("it was made anew, and is read from its beginning")
            if clock() >= next_look:
                next_look = clock() + VERIFY_EVERY
                await log.verify()
            await asyncio.sleep(GATHER)

    async def _rebuild(self, log: SharedLog) -> Replica:
        """The state as it is now: from the last snapshot, else from the beginning, else a new one."""
        begin, end = await log.ends(UPDATES)
        for back in (*LOOK_BACK, end):
            start = max(begin, end - back)
            replica = Replica(start)
            await self._read_to(end, log, replica)
            if replica.state is not None or start == begin:
                break
        while replica.state is None:
            await log.append(UPDATES, Genesis(replica.next_offset - 1, secrets.token_hex(8)).encoded())
            await self._read_to((await log.ends(UPDATES))[1], log, replica)
        return replica

    async def _read_to(self, end: int, log: SharedLog, replica: Replica) -> None:
        while replica.next_offset < end:
            await self._take_some(log, replica, SILENCE)

    async def _take_some(self, log: SharedLog, replica: Replica, wait: float) -> bool:
        """Read on. False if there was nothing."""
        page = await log.read(UPDATES, replica.next_offset, AT_ONCE, wait)
        for record in page.records:
            try:
                found = replica.take(record)
            except BadRecord:
                if record.offset > self._skipped_to:
                    self._skipped_to = record.offset
                    self.skip()
                continue
            if found is not None:
                self._answer(*found)
            if replica.next_offset != record.offset + 1:
                return True  # it goes back to the base of a snapshot
        replica.next_offset = max(replica.next_offset, page.next_offset)
        if not page.records:
            return False
        self._read_at = asyncio.get_running_loop().time()
        async with self._moved:
            self._moved.notify_all()
        self._write_snapshot(log, replica)
        return True

    def _answer(self, told: LogUpdate, reply: Reply) -> None:
        waiting = self._waiting.get((told.boot, told.update.shard, told.update.number))
        if waiting is not None and not waiting.done():
            waiting.set_result(reply.answer)

    def skip(self) -> None:
        """A record makes no sense."""
        if not self.skipped:
            self._log.error(
                "ledger record skipped",
                topic=self._source.name,
                detail="a record makes no sense: somebody else writes to the topic; later ones are counted only",
            )
        self.skipped += 1

    # ------------------------------------------------------------------ snapshots

    def _write_snapshot(self, log: SharedLog, replica: Replica) -> None:
        """When enough was written since the last one. The first of the proxies that are present does it; the others write more
        before they do, so one of them takes its place if it does not."""
        if self._snapshots is not None or self._shared_log is None or replica.state is None:
            return
        present = sorted(replica.state.present(0, replica.clock))
        rank = min((present.index(boot) for boot in self._boots if boot in present), default=len(present))
        enough = max(SNAPSHOT_AFTER, 4 * replica.snapshot_size) * (1 + min(rank, 8) / 4)
        if replica.since_snapshot < enough:
            return
        self._snapshots = asyncio.create_task(self._append_snapshot(log, replica))

    async def _append_snapshot(self, log: SharedLog, replica: Replica) -> None:
        try:
            for part in replica.snapshot(secrets.token_hex(8)):
                await log.append(UPDATES, part.encoded())
        except Exception as e:
            self._note_denial(e)
            await asyncio.sleep(1)  # then the next records begin another one
        finally:
            self._snapshots = None

    def _end_snapshots(self) -> None:
        if self._snapshots is not None:
            self._snapshots.cancel()
            self._snapshots = None

    def _fails(self, error: Exception) -> None:
        self._shared_log = None
        reason = _why(error)
        self._note_denial(error)
        if reason != self.why_not and self.denied is None:
            detail = "quotas are enforced by what is known of the other proxies; the proxy tries again"
            self._log.error("ledger topic is away", topic=self._source.name, reason=reason, detail=detail)
        self.why_not = reason

    def _note_denial(self, error: Exception) -> None:
        if not (isinstance(error, TopicError) and error.denied) or self.denied is not None:
            return
        right = "allow `upstream.sasl` to create, describe, read and write it"
        self.denied = f"the proxy may not use the topic {self._source.name}: {error}; {right}"
        self._log.error("quotas are not shared", reason=self.denied)


@dataclass(slots=True)
class Numbers:
    """The updates of one proxy for one shard. `accepted`: number of the last one that was answered, as the proxy counts them;
    `written`: of the last one that is in the log, as the log counts them. `tried`: the one that may be in the log."""

    generation: str
    accepted: int = 0
    written: int = 0
    tried: int = 0


class LogStore:
    """The client of one proxy. `patience`: seconds that a record may take to come back."""

    def __init__(self, follower: LogFollower, boot: str, patience: float) -> None:
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
            raise StoreError(_why(e)) from None


def pause_after(size: int, proxies: int) -> float:
    """Seconds for which a proxy that has written `size` bytes writes nothing more."""
    return proxies * max(size / BYTES, 1 / RECORDS)


def _why(error: Exception) -> str:
    return str(error) or type(error).__name__
