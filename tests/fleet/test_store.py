"""What every store promises: on a real Redis, on a topic of real brokers, and in memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import structlog

from localkafka import LocalCluster
from proxy.config.ledger import Ledger as Settings
from proxy.config.units import parse_host_port
from proxy.fleet.channel import Channel
from proxy.fleet.channel_store import ChannelStore, store_answers
from proxy.fleet.fleet import redis_store
from proxy.fleet.log_follower import LogFollower
from proxy.fleet.log_store import LogStore
from proxy.fleet.shared_log import EVENTS, LogSource
from proxy.fleet.store import Store
from proxy.hashing import murmur3
from proxy.upstream.connector import Upstream
from proxy.upstream.ledger_topic import LedgerTopic
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.rates import RateLimit
from quota.ledger import Batch, Ledger
from quota.limit_table import LimitTable
from tests.fleet.memory_log import MemoryLog
from tests.fleet.memory_store import Memory, MemoryStore
from tests.redis_server import RedisServer, needs_redis
from tests.support import limits_of

ALICE = Entity("alice", None)
Open = Callable[[str], Store]
NUMBERS = itertools.count()
TASKS: dict[Store, list[asyncio.Task[None]]] = {}


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(
    params=["memory", "channel", "log", pytest.param("redis", marks=needs_redis), pytest.param("kafka", marks=pytest.mark.kafka)]
)
def open_store(request: pytest.FixtureRequest) -> Open:
    """Opens a client, for the proxy of this name, of a store that is empty at first."""
    memory = Memory()
    if request.param == "memory":
        return lambda boot: MemoryStore(memory, boot)
    if request.param == "channel":
        return lambda boot: over_a_channel(memory, boot)
    if request.param == "log":
        log = MemoryLog()
        return lambda boot: followed(log, boot)
    if request.param == "kafka":
        cluster: LocalCluster = request.getfixturevalue("kafka3")
        topic = f"ledger-{next(NUMBERS)}"
        return lambda boot: followed(topic_of(cluster, topic), boot)
    server: RedisServer = request.getfixturevalue("redis")
    with server.client() as client:
        client.flushall()
    settings = Settings.model_validate({"kind": "redis", "servers": [server.address], "timeout": "10s"})
    return lambda boot: redis_store(settings, boot)(settings.timeout)


def followed(source: LogSource, boot: str) -> Store:
    """A client on this log, with a copy of its own; it ends with the event loop."""
    follower = LogFollower(source, structlog.get_logger(), fresh_for=0.2)
    task = asyncio.get_running_loop().create_task(follower.run())
    store = LogStore(follower, boot, 60.0)
    TASKS[store] = [task]
    return store


def topic_of(cluster: LocalCluster, name: str) -> LedgerTopic:
    servers = [parse_host_port(cluster.bootstrap_servers.split(",")[0])]
    return LedgerTopic(name, 60.0, lambda: servers, Upstream(20.0), structlog.get_logger())


def over_a_channel(memory: Memory, boot: str) -> Store:
    """A client of this store at the other end of a channel; both end with the event loop."""
    here, there = socket.socketpair()
    served, channel = Channel(there, store_answers(MemoryStore(memory, boot))), Channel(here, {})
    loop = asyncio.get_running_loop()
    store = ChannelStore(channel, 10.0)
    TASKS[store] = [loop.create_task(it.run()) for it in (served, channel)]
    return store


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


@contextlib.asynccontextmanager
async def opened(open_store: Open, *boots: str) -> AsyncIterator[list[Store]]:
    stores = [open_store(boot) for boot in boots]
    try:
        yield stores
    finally:
        for store in stores:
            await store.close()


class Proxy:
    """The ledger of one proxy, and what its engine charges."""

    def __init__(self) -> None:
        limits = limits_of(producer_byte_rate=LimitTable({ALICE: RateLimit(100.0)}))
        self.engine = Engine(limits, murmur3)
        self.ledger = Ledger(self.engine.publish(), 0.0)
        self._now = 0.0

    def batch(self, amount: float = 0.0) -> Batch:
        self._now += 0.01
        if amount:
            found = self.engine.rates["producer_byte_rate"].find("alice", "")
            assert found is not None
            self.engine.rates["producer_byte_rate"].charge(found, (amount,), self._now)
        self.ledger.collect(self._now)
        return self.ledger.batch(self.ledger.shards[0], self._now)

    async def sync(self, store: Store, amount: float = 0.0, *, sent: int = 1) -> list[int]:
        """Send the next batch this many times; the totals in the last answer."""
        batch = self.batch(amount)
        for _ in range(sent):
            reply = await store.send(batch.update())
        self.ledger.answered(batch, reply.answer, self._now)
        return list(reply.answer.totals)


def test_a_batch_that_is_sent_twice_counts_once_and_proxies_add_up(open_store: Open) -> None:
    async def work() -> None:
        async with opened(open_store, "a", "b") as (first, second):
            a, b = Proxy(), Proxy()
            for _ in range(2):  # the first answers tell the generation
                await a.sync(first)
                await b.sync(second)
            assert await a.sync(first, 70, sent=2) == [70]
            assert await b.sync(second, 5, sent=2) == [75]

    run(work)


def test_a_batch_for_another_generation_changes_nothing_and_learns_the_right_one(open_store: Open) -> None:
    async def work() -> None:
        async with opened(open_store, "a") as (store,):
            first = Proxy().batch(70)
            assert first.generation == ""
            answer = (await store.send(first.update())).answer
            assert (answer.accepted, answer.last, list(answer.totals)) == (False, 0, [])
            assert answer.generation != ""
            assert (await store.send(first.update())).answer.generation == answer.generation

    run(work)


def test_proxies_count_while_they_say_that_they_are_present(open_store: Open) -> None:
    async def work() -> None:
        async with opened(open_store, "a", "b") as stores:
            made = [Proxy(), Proxy()]
            for proxy, store in zip(made, stores, strict=True):
                await proxy.sync(store)
            counts = [(await store.send(proxy.batch().update(), 60.0)).proxies for proxy, store in zip(made, stores, strict=True)]
            assert counts == [1, 2]
            assert (await stores[0].send(made[0].batch().update())).proxies == 0, "it was not asked"

    run(work)


def test_entries_are_read_in_their_order_from_any_position(open_store: Open) -> None:
    async def work() -> None:
        async with opened(open_store, "a", "b") as (writer, reader):
            began = await writer.time()
            for number in range(5):
                await writer.append_event({"e": f"café {number}", "b": "a"})
            start = reader.position_at(began)
            found = await reader.read_events(start, 3, 0.0)
            assert [entry.fields for entry in found] == [{"e": f"café {number}", "b": "a"} for number in range(3)]
            assert all(began - 0.002 <= entry.written_at for entry in found)
            # The clock of a log is behind by what its last record took to be read: for long on a busy machine, and never for good.
            async with asyncio.timeout(60):
                while (ended := await writer.time()) + 0.002 < found[-1].written_at:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            rest = await reader.read_events(found[-1].position, 50, 0.0)
            assert [entry.fields["e"] for entry in rest] == ["café 3", "café 4"]
            assert await reader.read_events(rest[-1].position, 50, 0.0) == []
            assert await reader.read_events(reader.position_at(ended + 60), 50, 0.0) == []

    run(work)


def test_a_reader_waits_for_an_entry(open_store: Open) -> None:
    async def work() -> None:
        async with opened(open_store, "a", "b") as (writer, reader):
            start = reader.position_at(await reader.time() - 1)
            waiting = asyncio.create_task(reader.read_events(start, 50, 60.0))
            await writer.append_event({"e": "first"})
            assert [entry.fields for entry in await waiting] == [{"e": "first"}]

    run(work)


@pytest.mark.kafka
def test_an_entry_written_while_a_reader_looks_for_its_beginning_is_read(kafka3: LocalCluster) -> None:
    async def work() -> None:
        async with topic_of(kafka3, f"ledger-{next(NUMBERS)}").opened() as topic:
            consumer = topic._consumers[EVENTS]
            answer = consumer.offsets_for_times

            async def answer_before_the_entry(times: dict[Any, int]) -> Any:
                found = await answer(times)
                await topic.append(EVENTS, b"entry")
                return found

            consumer.offsets_for_times = answer_before_the_entry
            offset = await topic.offset_at(EVENTS, time.time() + 60)
            assert [record.value for record in (await topic.read(EVENTS, offset, 50, 60.0)).records] == [b"entry"]

    run(work)


def test_only_old_entries_may_go(open_store: Open) -> None:
    async def work() -> None:
        async with opened(open_store, "a") as (store,):
            began = await store.time()
            await store.append_event({"e": "young"})
            await store.forget_events(began - 1, 3600.0)
            start = store.position_at(began - 1)
            assert [entry.fields for entry in await store.read_events(start, 50, 0.0)] == [{"e": "young"}]

    run(work)


def test_a_client_that_was_closed_connects_again(open_store: Open) -> None:
    async def work() -> None:
        async with opened(open_store, "a") as (store,):
            before = await store.time()
            await store.close()
            assert await store.time() >= before

    run(work)
