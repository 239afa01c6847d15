"""Follows a log that all proxies read (`shared_log.SharedLog`): one copy for each process of the state that its records make
(`replica`).

In: records of all proxies. Out: the copy; records that are appended and read back; `StoreError` while the log cannot be followed.
`log_store` is the store that uses it."""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from proxy.backoff import Backoff, retry
from proxy.fleet.log_records import BadRecord, Genesis, LogUpdate
from proxy.fleet.replica import Replica
from proxy.fleet.shared_log import UPDATES, LogSource, SharedLog
from proxy.fleet.shared_state import SharedState
from proxy.fleet.store import Reply, StoreError
from proxy.observe.operations import Log
from proxy.upstream.connector import TopicError
from quota.ledger import Answer

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
FIRST_RETRY, SLOWEST_RETRY = 0.1, 5.0
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

    def serve(self, boot: str) -> None:
        """A proxy of this process, by a name that is unique for each of its starts."""
        if boot not in self._boots:
            self._boots.append(boot)

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
                waiting.set_exception(StoreError(f"topic {self._source.name}: {error_text(e)}"))

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
        reason = error_text(error)
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


def error_text(error: Exception) -> str:
    return str(error) or type(error).__name__
