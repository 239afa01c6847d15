"""Proxies that share quotas by a log: what they write, what counts, and what becomes of it when the log or a proxy fails."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from proxy.fleet import log_follower
from proxy.fleet.log_follower import LogFollower
from proxy.fleet.log_records import TICK, SnapshotPart, decode
from proxy.fleet.log_store import BYTES, RECORDS, LogStore, pause_after
from proxy.fleet.shared_log import EVENTS, UPDATES
from proxy.fleet.store import Reply, StoreError
from proxy.upstream.connector import TopicError
from quota.ledger import Change, Update
from tests.fleet.memory_log import MemoryLog
from tests.fleet.simulated import run_simulated

KEY = "producer_byte_rate/alice/-/-"
PATIENCE = 0.25
FRESH = 0.2


class Proxy:
    """One proxy with a copy of its own."""

    def __init__(self, log: MemoryLog, boot: str) -> None:
        self.follower = LogFollower(log, structlog.get_logger(), FRESH)
        self.task = asyncio.create_task(self.follower.run())
        self.store: LogStore = LogStore(self.follower, boot, PATIENCE)
        self.number, self.generation = 0, ""

    async def start(self) -> Proxy:
        await self.follower.wait(30)
        self.generation = (await self.store.send(Update(0, 1, "", []))).answer.generation
        return self

    async def send(self, delta: int = 0, *, again: bool = False, key: str = KEY, count_for: float = 0.0) -> Reply:
        self.number += not again
        return await self.store.send(Update(0, self.number, self.generation, [Change(key, delta, None, False, 60.0)]), count_for)

    async def total(self) -> int:
        return (await self.send()).answer.totals[0]

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@contextlib.contextmanager
def snapshots_after(size: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_follower, "SNAPSHOT_AFTER", size)
        yield


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_a_batch_whose_answer_is_lost_counts_once() -> None:
    async def work() -> None:
        log = MemoryLog()
        a, b = await Proxy(log, "a").start(), await Proxy(log, "b").start()
        log.loses_answers = 1
        for again in (False, True, True):
            with contextlib.suppress(StoreError):
                await a.send(70, again=again)
        assert await b.total() == 70
        assert await a.total() == 70

    run_simulated(work())


def test_a_proxy_that_gave_up_an_answer_is_told_that_the_batch_counts() -> None:
    async def work() -> None:
        log = MemoryLog()
        a = await Proxy(log, "a").start()
        giving_up = asyncio.create_task(a.send(70))
        await asyncio.sleep(0)
        giving_up.cancel()
        await asyncio.sleep(1)
        answer = (await a.send(70, again=True)).answer
        assert (answer.accepted, list(answer.totals)) == (True, [70])
        assert list((await a.send(1)).answer.totals) == [71]

    run_simulated(work())


def test_who_only_asks_writes_nothing_as_long_as_somebody_writes() -> None:
    async def work() -> None:
        log = MemoryLog()
        busy, asking = await Proxy(log, "busy").start(), await Proxy(log, "asking").start()
        for _ in range(10):
            await busy.send(1)
            await asyncio.sleep(FRESH / 2)
        before = log.appends
        for _ in range(10):
            await busy.send(1)
            assert await asking.total() > 10
            await asyncio.sleep(FRESH / 2)
        assert log.appends == before + 10
        await asyncio.sleep(FRESH * 2)
        assert await asking.total() == 20
        assert log.appends == before + 11, "it has to know that the log is still there"

    run_simulated(work())


def test_who_asks_while_the_log_gives_nothing_is_told_so_and_counts_go_on_afterwards() -> None:
    async def work() -> None:
        log = MemoryLog()
        a, b = await Proxy(log, "a").start(), await Proxy(log, "b").start()
        await a.send(70)
        log.away = TopicError("away")
        await asyncio.sleep(FRESH * 2)
        with pytest.raises(StoreError):
            await b.send(5)
        with pytest.raises(StoreError):
            await a.send(0)
        await asyncio.sleep(20)
        log.away = None
        await until(lambda: a.follower.following and b.follower.following)
        assert list((await b.send(5, again=True)).answer.totals) == [75]
        assert list((await a.send(0, again=True)).answer.totals) == [75]
        assert a.generation == (await a.send()).answer.generation

    run_simulated(work())


def test_a_proxy_that_restarts_finds_all_that_was_charged_though_the_beginning_is_gone() -> None:
    async def work() -> None:
        log = MemoryLog()
        a, b = await Proxy(log, "a").start(), await Proxy(log, "b").start()
        for _ in range(100):
            await a.send(1, count_for=5.0)
            await b.send(2, count_for=5.0)
        records = log.records[UPDATES]
        parts = [it for it in (decode(record.value) for record in records) if isinstance(it, SnapshotPart)]
        assert 2 <= len(parts) <= len(records) / 5
        assert len({part.name for part in parts}) == len(parts), "each is whole"
        await b.end()
        log.cut(UPDATES, parts[-1].base + 1)
        again = await Proxy(log, "b again").start()
        assert again.generation == a.generation
        assert await again.total() == 300
        await a.send(1)
        assert await again.total() == 301

    with snapshots_after(3000):
        run_simulated(work())


def test_what_was_written_while_somebody_wrote_a_snapshot_counts_for_who_begins_at_it() -> None:
    async def work() -> None:
        log = MemoryLog()
        a = await Proxy(log, "a").start()
        await a.send(70)
        parts = [part.encoded() for part in a.follower._replica.snapshot("s")]
        base = log.end(UPDATES) - 1
        await a.send(5)
        for part in parts:
            log.add(part, UPDATES)
        await a.send(1)
        log.cut(UPDATES, base + 1)
        late = await Proxy(log, "late").start()
        assert late.generation == a.generation
        assert await late.total() == 76

    run_simulated(work())


def test_a_batch_that_is_on_its_way_is_not_written_once_more() -> None:
    async def work() -> None:
        log = MemoryLog()
        a = await Proxy(log, "a").start()
        log.slow = 2.0
        before = log.appends
        for again in (False, True, True, True):
            with pytest.raises(StoreError, match="in time"):
                await a.send(70, again=again)
        await asyncio.sleep(5)
        log.slow = 0.0
        assert list((await a.send(70, again=True)).answer.totals) == [70]
        assert log.appends - before <= 2

    run_simulated(work())


def test_a_log_that_was_made_anew_and_is_as_long_is_found_out() -> None:
    async def work() -> None:
        log = MemoryLog()
        a = await Proxy(log, "a").start()
        await a.send(70)
        log.make_anew()
        for _ in range(50):
            log.add(TICK, UPDATES)
        await asyncio.sleep(30)
        await until(lambda: a.follower.following)
        assert (await a.send(1)).answer.generation != a.generation

    run_simulated(work())


def test_one_proxy_writes_snapshots_and_another_one_when_it_is_gone() -> None:
    async def work() -> None:
        log = MemoryLog()
        made = [await Proxy(log, boot).start() for boot in ("a", "b", "c")]

        async def snapshots() -> int:
            before = len(log.records[UPDATES])
            for _ in range(100):
                for proxy in made:
                    if not proxy.task.done():
                        await proxy.send(1, count_for=5.0)
            return sum(isinstance(decode(it.value), SnapshotPart) for it in log.records[UPDATES][before:])

        assert 5 <= await snapshots() <= 12
        await made[0].end()
        await asyncio.sleep(6)
        assert 3 <= await snapshots() <= 9

    with snapshots_after(3000):
        run_simulated(work())


def test_a_log_that_was_made_anew_is_one_that_has_lost_all() -> None:
    async def work() -> None:
        log = MemoryLog()
        a, b = await Proxy(log, "a").start(), await Proxy(log, "b").start()
        await a.send(70)
        log.make_anew()
        await asyncio.sleep(30)
        await until(lambda: a.follower.following and b.follower.following)
        answers = [(await proxy.send(1)).answer for proxy in (a, b)]
        assert [answer.accepted for answer in answers] == [False, False]
        assert answers[0].generation == answers[1].generation != a.generation

    run_simulated(work())


def test_records_of_somebody_else_are_skipped_and_counted_and_said_once() -> None:
    async def work() -> None:
        log = MemoryLog()
        a, b = await Proxy(log, "a").start(), await Proxy(log, "b").start()
        await a.send(70)
        with capture_logs() as lines:
            for value in (b"", b"hello", b'{"a": 1}'):
                log.add(value, UPDATES)
            log.add(b"hello", EVENTS)
            await b.store.append_event({"e": "[]"})
            found = await a.store.read_events(a.store.position_at(0), 50, 1.0)
            assert [entry.fields for entry in found] == [{}, {"e": "[]"}]
            await asyncio.sleep(1)
        assert [a.follower.skipped, b.follower.skipped] == [4, 3]
        assert [line["event"] for line in lines] == ["ledger record skipped"] * 2, "once by each proxy"
        assert await b.total() == 70

    run_simulated(work())


def test_who_lacks_rights_says_so_once() -> None:
    async def work() -> None:
        log = MemoryLog()
        log.away = TopicError("Authorization failed.", denied=True)
        with capture_logs() as lines:
            proxy = Proxy(log, "a")
            await asyncio.sleep(60)
            assert "allow `upstream.sasl`" in str(proxy.follower.denied)
            with pytest.raises(StoreError, match="Authorization failed"):
                await proxy.store.send(Update(0, 1, "", []))
        assert [line["event"] for line in lines] == ["quotas are not shared"]
        log.away = None
        await until(lambda: proxy.follower.following)
        assert proxy.follower.denied is None

    run_simulated(work())


def test_a_silent_proxy_counts_as_present_for_its_time_and_tells_it_seldom() -> None:
    async def work() -> None:
        log = MemoryLog()
        a, b = await Proxy(log, "a").start(), await Proxy(log, "b").start()
        counts = []
        for _ in range(50):
            await b.send(1, count_for=5.0)
            counts.append((await a.send(count_for=5.0)).proxies)
            await asyncio.sleep(FRESH / 2)
        assert counts[1:] == [2] * 49
        assert log.appends < 50 + 10
        await a.end()
        await asyncio.sleep(6)
        assert (await b.send(1, count_for=5.0)).proxies == 1

    run_simulated(work())


def test_proxies_leave_each_other_their_parts() -> None:
    assert pause_after(100, 3) == pytest.approx(3 / RECORDS)
    assert pause_after(15_000, 20) == pytest.approx(20 * 15_000 / BYTES)

    async def work() -> None:
        log = MemoryLog()
        made = [await Proxy(log, f"{number}").start() for number in range(20)]
        for proxy in made:
            await proxy.send(1, count_for=60.0)
        reply = await made[0].send(1, count_for=60.0)
        assert reply.pause == pytest.approx(20 / RECORDS, rel=0.3)
        assert (await made[0].send(0)).pause <= reply.pause, "who only asks has written nothing"

    run_simulated(work())
