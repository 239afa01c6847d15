"""What sharing quotas by a topic costs: `python -m tests.fleet.cost_ledger_topic [PROXIES ...]`. No test: figures are for people.

In: how many proxies; a real Kafka of three brokers. Out: records and bytes in a second, the time from the append of a record until
another proxy has read it, how long a batch takes, and CPU of a proxy and of the brokers.

Of the proxies three are whole, in this process; the others are in a second process, and write what they would write, but read
nothing. Each charges 20 users all the time, of whom one is near its limit and is synchronised every 20 ms."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from contextlib import AsyncExitStack
from typing import Any, Final

import psutil
import structlog

from localkafka import LocalCluster
from proxy.config.ledger import Ledger as Settings
from proxy.config.units import parse_host_port
from proxy.fleet.ledger import URGENT, LedgerLink
from proxy.fleet.log_follower import OVERHEAD, LogFollower
from proxy.fleet.log_records import LogUpdate
from proxy.fleet.log_store import LogStore, pause_after
from proxy.fleet.replica import Replica
from proxy.fleet.shared_log import UPDATES, LogRecord
from proxy.upstream.connector import Upstream
from proxy.upstream.ledger_topic import LedgerTopic
from quota.entity import DEFAULT, Entity
from quota.kinds.rates import RateLimit, Rates
from quota.ledger import Change, Update, key_of
from quota.limit_table import LimitTable

WHOLE: Final = 3
USERS: Final = 20
SECONDS: Final = 20.0
WARM: Final = 5.0
RATE: Final = 1e6
NEAR: Final = Entity("tenant-0", None)
SETTINGS: Final = Settings.model_validate({"timeout": "2s", "stale_after": "3s"})


def topic_of(bootstrap: str, name: str) -> LedgerTopic:
    servers = [parse_host_port(it) for it in bootstrap.split(",")]
    return LedgerTopic(name, 60.0, lambda: servers, Upstream(10.0), structlog.get_logger())


class Timed(Replica):
    """Notes how old each record of another proxy is that it reads, and how much it reads."""

    delays: list[float]
    size: int
    boot: str

    def take(self, record: LogRecord) -> Any:
        self.size += len(record.value) + OVERHEAD
        found = super().take(record)
        if found is not None and not found[0].boot.startswith(self.boot):
            self.delays.append(time.time() - record.written_at)
        return found


class Proxy:
    """The ledger of one proxy, and what it charges."""

    def __init__(self, bootstrap: str, topic: str, number: int) -> None:
        self.boot = f"whole-{number}"
        self.clock = asyncio.get_running_loop().time
        self.follower = LogFollower(topic_of(bootstrap, topic), structlog.get_logger(), 1.0)
        self.rates = Rates("producer_byte_rate", "", "", LimitTable({Entity(DEFAULT, None): RateLimit(RATE)}))
        self.rates.publish()
        self.link = LedgerLink(SETTINGS, [self.rates], LogStore(self.follower, self.boot, 2.0), self.clock, structlog.get_logger())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.follower.run())
            group.create_task(self.link.run())
            group.create_task(self._charge())

    async def _charge(self) -> None:
        while True:
            for user in range(USERS):
                owner = Entity(f"tenant-{user}", None)
                self.rates.meter(owner, self.clock()).take(RATE * 0.3 / WHOLE * 0.01 if user else RATE / WHOLE * 0.01, self.clock())
            await asyncio.sleep(0.01)

    def time_records(self) -> list[float]:
        replica: Any = self.follower._replica
        replica.__class__, replica.delays, replica.size, replica.boot = Timed, [], 0, self.boot
        return replica.delays  # type: ignore[no-any-return]


async def writers(bootstrap: str, topic: str, generation: str, count: int, proxies: int) -> None:
    """What `count` of the proxies write: 10 times in a second all users, else the one that is near its limit."""
    keys = [key_of("producer_byte_rate", Entity(f"tenant-{user}", None)) for user in range(USERS)]
    async with AsyncExitStack() as stack:
        logs = [await stack.enter_async_context(topic_of(bootstrap, topic).opened()) for _ in range(min(count, 10))]

        async def write(number: int) -> None:
            sent, next_all = 0, 0.0
            while True:
                sent += 1
                now = time.monotonic()
                users = USERS if now >= next_all else 1
                next_all = now + SETTINGS.sync_interval if users > 1 else next_all
                changes = [Change(key, 100, None, False, 80.0) for key in keys[:users]]
                value = LogUpdate(f"writer-{number:016}", Update(0, sent, generation, changes), 5.0).encoded()
                await logs[number % len(logs)].append(UPDATES, value)
                pause = max(pause_after(len(value) + OVERHEAD, proxies), URGENT)
                await asyncio.sleep(max(now + pause - time.monotonic(), 0))

        async with asyncio.TaskGroup() as group:
            for number in range(count):
                await asyncio.sleep(1 / count)
                group.create_task(write(number))


async def measure(kafka: LocalCluster, proxies: int) -> str:
    bootstrap, topic = kafka.bootstrap_servers, f"ledger-{proxies}"
    made = [Proxy(bootstrap, topic, number) for number in range(WHOLE)]
    tasks = [asyncio.create_task(proxy.run()) for proxy in made]
    for proxy in made:
        await proxy.follower.wait(60)
    others = None
    if proxies > WHOLE:
        command = [
            sys.executable,
            "-m",
            "tests.fleet.cost_ledger_topic",
            "writers",
            bootstrap,
            topic,
            made[0].follower.state().generation,
        ]
        others = await asyncio.create_subprocess_exec(*command, str(proxies - WHOLE), str(proxies))
    try:
        await asyncio.sleep(WARM)
        delays = [proxy.time_records() for proxy in made]
        brokers = [psutil.Process(node.pid) for node in kafka.brokers if node.pid is not None]
        before = figures(made, brokers)
        await asyncio.sleep(SECONDS)
        after = figures(made, brokers)
    finally:
        if others is not None:
            others.kill()
            await others.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    records, size, own, broker, syncs, waited = [(b - a) for a, b in zip(before, after, strict=True)]
    found = sorted(delay for each in delays for delay in each)
    return (
        f"{proxies:4} proxies: {records / SECONDS:6.0f} records/s, {size / SECONDS / 1000:5.0f} KB/s; read by others after"
        f" {statistics.median(found) * 1000:.0f} ms (p50), {found[int(len(found) * 0.99)] * 1000:.0f} ms (p99); a batch takes"
        f" {waited / max(syncs, 1) * 1000:.0f} ms, {syncs / SECONDS / WHOLE:.0f}/s by each; CPU: {own / SECONDS / WHOLE:.1%} of a"
        f" core by each proxy, {broker / SECONDS:.1%} by all brokers"
    )


def figures(made: list[Proxy], brokers: list[psutil.Process]) -> list[float]:
    """Records and bytes of the log, CPU seconds of this process and of brokers, batches and how long they took."""
    first: Any = made[0].follower._replica
    cpu = sum(sum(it.cpu_times()[:2]) for it in brokers)
    syncs, waited = sum(it.link.syncs for it in made), sum(it.link.seconds for it in made)
    return [first.next_offset, first.size, time.process_time(), cpu, syncs, waited]


async def main(counts: list[int]) -> None:
    with LocalCluster(3) as kafka:
        for proxies in counts:
            print(await measure(kafka, proxies), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["writers"]:
        asyncio.run(writers(*sys.argv[2:5], int(sys.argv[5]), int(sys.argv[6])))
    else:
        asyncio.run(main([int(it) for it in sys.argv[1:]] or [3, 20, 100]))
