"""The quotas topic of several workers: what its supervisor reads reaches each of them once and in order, those too that come later,
are slow, or are started again. Over real channels; `tests/real/test_workers.py` has the topic."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog

from proxy.cluster.quota_records import Record, encode
from proxy.fleet.channel import Channel
from proxy.upstream import quota_relay
from proxy.upstream.connector import TopicError
from proxy.upstream.quota_relay import Kept, QuotaRelay, RelayedQuotas
from proxy.upstream.quota_store import Reader, Written
from quota.entity import Entity
from quota.overrides import Change

KEY = "cluster_request_rate"


def limit(user: str, value: float | None, by: str = "root") -> Record:
    return encode(Change(Entity(user, None), KEY, value), {"principal": by})


class TopicInMemory:
    """A `QuotaStore` that reads what is written to it."""

    def __init__(self, relay: QuotaRelay, records: Sequence[Record] = ()) -> None:
        self.name = "quotas"
        self.records = [*records]
        self.reader: Reader = relay
        self.why_not: str | None = "it was not read yet"
        self.settled = asyncio.Event()
        relay.topic = self

    async def run(self) -> None: ...

    def read(self, *, nothing_ever: bool = False) -> Sequence[Record]:
        """From the beginning."""
        self.reader.begin()
        self.reader.take([Kept(number, *record) for number, record in enumerate(self.records)])
        self.why_not = None
        self.settled.set()
        return self.reader.complete(nothing_ever=nothing_ever)

    async def write(self, records: Sequence[Record]) -> None:
        if self.why_not is not None:
            raise TopicError(self.why_not)
        self.records += records
        self.reader.take([Kept(0, *record) for record in records])


@dataclass
class Table:
    """A `Reader` that keeps the last value of each key."""

    values: dict[bytes, bytes | None] = field(default_factory=dict)
    taken: int = 0
    begun: int = 0
    complete_at: list[int] = field(default_factory=list)
    last: Written | None = None

    def begin(self) -> None:
        self.begun += 1
        self.values = {}

    def take(self, records: Sequence[Written]) -> None:
        self.taken += len(records)
        for record in records:
            assert record.key is not None
            self.values[record.key] = record.value
            self.last = record

    def complete(self, *, nothing_ever: bool) -> Sequence[Record]:
        assert not nothing_ever
        self.complete_at.append(self.taken)
        return ()

    @property
    def limits(self) -> dict[bytes, bytes]:
        return {key: value for key, value in self.values.items() if value is not None}


def table_of(*records: Record) -> dict[bytes, bytes]:
    return {record.key: record.value for record in records if record.value is not None}


class Worker:
    def __init__(self, relay: QuotaRelay) -> None:
        here, there = socket.socketpair()
        self.quotas = RelayedQuotas("quotas", Channel(here, {}))
        self._channels = [Channel(there, relay.answers()), self.quotas._channel]
        self.quotas.reader = self.table = Table()
        self.tasks = [asyncio.create_task(it) for it in (*(channel.run() for channel in self._channels), self.quotas.run())]

    async def has(self, *records: Record) -> None:
        await until(lambda: self.table.limits == table_of(*records))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(90):
        while not condition():  # noqa: ASYNC110  (there is nothing to wait for but turns of the loop)
            await asyncio.sleep(0)


def run(work: Callable[[QuotaRelay], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await work(QuotaRelay(structlog.get_logger()))
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    asyncio.run(main())


def test_workers_get_all_there_is_and_what_comes_later() -> None:
    async def work(relay: QuotaRelay) -> None:
        topic = TopicInMemory(relay, [limit("alice", 1), limit("bob", 1), limit("bob", 2)])
        early = Worker(relay)
        await until(lambda: early.quotas.why_not is not None and not early.quotas.settled.is_set())
        topic.read()
        late = Worker(relay)
        for worker in (early, late):
            await worker.has(limit("alice", 1), limit("bob", 2))
            await until(worker.quotas.settled.is_set)
            assert worker.quotas.why_not is None
            assert worker.table.complete_at == [2], "what was overwritten need not be told"
        await topic.write([limit("alice", None), limit("carol", 3)])
        for worker in (early, late):
            await worker.has(limit("bob", 2), limit("carol", 3))
            assert worker.table.begun == 1

    run(work)


def test_a_worker_has_read_what_it_wrote() -> None:
    async def work(relay: QuotaRelay) -> None:
        topic = TopicInMemory(relay)
        one, two = Worker(relay), Worker(relay)
        with pytest.raises(TopicError, match="cannot be written: it was not read yet"):
            await one.quotas.write([limit("alice", 1)])
        topic.read(nothing_ever=True)
        await until(lambda: one.quotas.why_not is None)
        await one.quotas.write([limit("alice", 1), limit("bob", 1, by="bob's boss")])
        assert one.table.limits == table_of(limit("alice", 1), limit("bob", 1))
        assert one.table.last is not None
        assert [*one.table.last.headers] == limit("bob", 1, by="bob's boss").headers, "who did it is told too"
        await two.has(limit("alice", 1), limit("bob", 1))

    run(work)


def test_a_supervisor_that_does_not_answer_keeps_nobody_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_relay, "WRITTEN_WITHIN", 0.01)

    class Silent(TopicInMemory):
        async def write(self, records: Sequence[Record]) -> None:  # noqa: ARG002
            await asyncio.Event().wait()

    async def work(relay: QuotaRelay) -> None:
        Silent(relay).read()
        worker = Worker(relay)
        await until(lambda: worker.quotas.why_not is None)
        with pytest.raises(TopicError, match="may still take effect"):
            await worker.quotas.write([limit("alice", 1)])

    run(work)


def test_a_topic_that_is_away_is_told_and_what_holds_stays() -> None:
    async def work(relay: QuotaRelay) -> None:
        topic = TopicInMemory(relay, [limit("alice", 1)])
        topic.read()
        worker = Worker(relay)
        await worker.has(limit("alice", 1))
        topic.why_not = "no broker is known"
        relay.look()
        await until(lambda: worker.quotas.why_not == "no broker is known")
        with pytest.raises(TopicError, match="no broker is known"):
            await worker.quotas.write([limit("bob", 1)])
        topic.records = [limit("bob", 2)]  # what happened while nobody looked
        topic.read()
        await worker.has(limit("bob", 2))
        assert worker.quotas.why_not is None
        assert worker.table.begun == 1, "only what is another is told"
        assert topic.read() == ()
        await asyncio.sleep(0)
        assert worker.table.taken == 3

    run(work)


def test_a_topic_that_cannot_be_read_keeps_no_worker_from_serving() -> None:
    async def work(relay: QuotaRelay) -> None:
        topic = TopicInMemory(relay)
        worker = Worker(relay)
        topic.why_not = "it has 3 partitions"
        topic.settled.set()
        relay.look()
        await until(worker.quotas.settled.is_set)
        assert worker.quotas.why_not == "it has 3 partitions"

    run(work)


def test_a_topic_that_was_made_anew_gets_back_what_was_in_it() -> None:
    async def work(relay: QuotaRelay) -> None:
        topic = TopicInMemory(relay, [limit("alice", 1), limit("bob", 1)])
        topic.read()
        worker = Worker(relay)
        await topic.write([limit("bob", None)])
        await worker.has(limit("alice", 1))
        topic.records = []
        assert topic.read(nothing_ever=True) == [limit("alice", 1)]
        await topic.write([limit("alice", 1)])
        await worker.has(limit("alice", 1))

    run(work)


def test_limits_that_come_and_go_take_no_memory_and_nobody_keeps_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_relay, "MAX_KEYS", 10)

    async def work(relay: QuotaRelay) -> None:
        topic = TopicInMemory(relay)
        topic.read(nothing_ever=True)
        slow = Worker(relay)
        await topic.write([limit("alice", 1), limit("bob", 1)])
        await slow.has(limit("alice", 1), limit("bob", 1))
        relay.take([Kept(0, *limit("bob", None))])
        for number in range(50):  # before the worker has its turn
            relay.take([Kept(0, *limit(f"user-{number}", 1)), Kept(0, *limit(f"user-{number}", None))])
        assert len(relay._kept) <= 10
        await slow.has(limit("alice", 1))
        assert slow.table.begun == 2
        relay.take([Kept(0, *limit(f"user-{number}", 1)) for number in range(50)])
        assert len(relay._kept) == 10

    run(work)


def test_many_are_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_relay, "AT_ONCE", 7)

    async def work(relay: QuotaRelay) -> None:
        all_of_them = [limit(f"user-{number}", number + 1) for number in range(50)]
        topic = TopicInMemory(relay, all_of_them)
        topic.read()
        worker = Worker(relay)
        await worker.has(*all_of_them)
        await until(worker.quotas.settled.is_set)
        assert worker.table.complete_at == [50], "limits hold once all are known"

    run(work)
