"""`python -m benchmarks.producer_ids`: a storm of new producers of one user beside ordinary ones, directly and behind the quota.

In: options. Out: a table. A real broker with logins, fresh for each row. The storm is one of three:

- `open`: so many new producers a second whatever happens to the earlier ones; each logs in, asks for an id, writes a record to
  every partition, and is gone once it has its answer, whichever that is;
- `loops`: as many restart loops, each of which makes its next producer when the last one has its answer;
- `librdkafka`: such loops with the real client, as fast as the machine makes them; one that cannot write gives up after 5 s.

Beside it write a librdkafka and a Java producer of another user at a steady pace. The broker is asked over JMX, before the storm
and at its end, how many producer ids it keeps state for, one for each partition, and what of its heap is used."""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import click
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks.bench.measure import cpu_seconds
from benchmarks.proxied import ProxyBefore, wait
from configfile.access import Access, Login
from loadtest.wire import Connection, LoginFailed
from localkafka import LocalCluster, run_java
from localkafka.ports import HeldPort

USERS: Final = {"storm": "st0rm-pw", "ordinary": "0rdinary-pw", "proxy": "pr0xy-pw"}
STORM: Final = Access(Login("PLAIN", "storm", USERS["storm"]))
JAVA: Final = Path(__file__).with_name("java")
REFUSED: Final = 19
CPU: Final = "cpu"
WAY_DIRECT: Final = "direct"
WAYS: Final[dict[str, dict[str, Any]]] = {
    "throttle": {"mode": "throttle"},
    "throttle, hold_new": {"mode": "throttle", "hold_new": True},
    "reject": {"mode": "reject"},
    "reject, hold_new": {"mode": "reject", "hold_new": True},
}
START_LIMIT: Final = 60.0


@dataclass(slots=True)
class Storm:
    """What became of new producers: `codes` counts the answers to their writes by error code."""

    address: str
    partitions: int
    begun: int = 0
    codes: Counter[int] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)

    async def one(self) -> None:
        """A producer from its birth to its end."""
        self.begun += 1
        client = None
        try:
            client = await Connection.open(self.address, "storm", STORM)
            code, _ = await client.write(await client.new_id(), "storm", range(self.partitions))
            self.codes[code] += 1
        except (OSError, asyncio.IncompleteReadError, LoginFailed) as error:
            self.failed[type(error).__name__] += 1
        finally:
            if client is not None:
                client.close()

    async def open(self, rate: float, seconds: float) -> None:
        """So many a second, whatever happens to the earlier ones."""
        began, tasks = time.monotonic(), list[asyncio.Task[None]]()
        for i in range(round(rate * seconds)):
            await asyncio.sleep(max(began + i / rate - time.monotonic(), 0))
            if time.monotonic() > began + seconds:
                break
            task = asyncio.create_task(self.one())
            tasks.append(task)
        await end(tasks)

    async def loops(self, rate: float, seconds: float) -> None:
        """Each of `rate` loops makes one a second at most, and the next when the last one is done."""

        async def loop() -> None:
            while True:
                began = time.monotonic()
                await self.one()
                await asyncio.sleep(max(began + 1 - time.monotonic(), 0))

        tasks = [asyncio.create_task(loop()) for _ in range(round(rate))]
        await asyncio.sleep(seconds)
        await end(tasks)

    def librdkafka(self, seconds: float, threads: int = 20) -> None:
        """Loops with the real client."""
        until = time.monotonic() + seconds

        def loop() -> None:
            while time.monotonic() < until:
                self.begun += 1
                producer = Producer({**login(self.address, "storm"), "message.timeout.ms": 5000, "linger.ms": 0})
                producer.produce("storm", b"storm", on_delivery=self._delivered)
                producer.flush(max(until - time.monotonic(), 0.1))

        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(loop) for _ in range(threads)]:
                future.result()

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.codes[0] += 1
        else:
            self.failed[error.name()] += 1


async def end(tasks: list[asyncio.Task[None]]) -> None:
    """Whatever they wait for."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def login(address: str, user: str) -> dict[str, Any]:
    """Settings of librdkafka."""
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
        "enable.idempotence": True,
        "log_level": 0,
    }


class Figures(NamedTuple):
    """Of one ordinary producer: records a second, how many failed, and how long one took, in ms."""

    rate: float
    failed: int
    p50: float
    p99: float


class Ordinary:
    """A librdkafka producer that sends so many records of 1 KiB a second, in a thread of its own."""

    def __init__(self, address: str, rate: float) -> None:
        self._pause, self._took, self._failed = 1 / rate, list[float](), 0
        self._stop = threading.Event()
        self._producer = Producer(login(address, "ordinary"))
        self._producer.produce("ordinary", b"first")
        if self._producer.flush(START_LIMIT):
            raise click.ClickException("the ordinary producer cannot even write in peace")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._failed += self._producer.flush(30)
        self._seconds = time.monotonic() - self._began

    def figures(self) -> Figures:
        cuts = statistics.quantiles(self._took, n=100) if len(self._took) > 1 else [0.0] * 99
        return Figures(len(self._took) / self._seconds, self._failed, cuts[49] * 1000, cuts[98] * 1000)

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stop.is_set():
            self._producer.poll(max(due - time.monotonic(), 0))
            if time.monotonic() >= due:
                due += self._pause
                self._producer.produce("ordinary", bytes(1024), on_delivery=self._sent(time.monotonic()))

    def _sent(self, when: float) -> Any:
        def delivered(error: object, _: object) -> None:
            if error is None:
                self._took.append(time.monotonic() - when)
            else:
                self._failed += 1

        return delivered


class OrdinaryJava:
    """The same with Java's producer, in a process of its own."""

    def __init__(self, folder: Path, address: str, rate: float) -> None:
        jaas = (
            f'org.apache.kafka.common.security.plain.PlainLoginModule required username="ordinary" password="{USERS["ordinary"]}";'
        )
        settings = folder / "ordinary.properties"
        settings.write_text(
            f"bootstrap.servers={address}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={jaas}\n"
        )
        ready, self._stop = folder / "ready", folder / "stop"
        self._pool = ThreadPoolExecutor(1)
        arguments = [str(settings), "ordinary", str(round(rate)), str(ready), str(self._stop)]
        self._run = self._pool.submit(run_java, JAVA / "Ordinary.java", *arguments, timeout=600, check=True)
        wait(lambda: ready.exists() or self._run.done(), START_LIMIT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.touch()
        self._pool.shutdown()

    def figures(self) -> Figures:
        written, failed, seconds, p50, p99 = (float(part) for part in self._run.result().stdout.split())
        return Figures(written / seconds, round(failed), p50, p99)


class Broker(NamedTuple):
    """What it keeps: `ids` counts each producer id once for each partition; `heap` in bytes, after a collection."""

    ids: int
    heap: int

    @classmethod
    def ask(cls, port: int) -> Self:
        ids, heap = run_java(JAVA / "BrokerState.java", str(port), check=True).stdout.split()
        return cls(int(ids), int(heap))


@dataclass(frozen=True, slots=True)
class Plan:
    """A storm and what stands beside it. `limit`: producer ids of its user; `pace`: records a second of ordinary producers."""

    rate: float
    seconds: float
    partitions: int
    limit: int
    pace: float


class Seen(NamedTuple):
    storm: Storm
    librdkafka: Figures
    java: Figures
    before: Broker
    after: Broker
    proxied: dict[str, float]


def run(plan: Plan, kind: str, way: str) -> Seen:
    """One row."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        port = HeldPort()
        stack.callback(port.release)
        flags = [f"-Dcom.sun.management.jmxremote.{name}" for name in ("authenticate=false", "ssl=false", "host=127.0.0.1")]
        flags += [f"-Dcom.sun.management.jmxremote.{name}={port.number}" for name in ("port", "rmi.port")]
        kafka = stack.enter_context(LocalCluster(1, sasl=USERS, jvm_flags=[*flags, "-Djava.rmi.server.hostname=127.0.0.1"]))
        direct = kafka.brokers[0].address
        admin = AdminClient({name: value for name, value in login(direct, "ordinary").items() if name != "enable.idempotence"})
        for made in admin.create_topics([NewTopic("storm", plan.partitions, 1), NewTopic("ordinary", 1, 1)]).values():
            made.result(30)
        proxy = None
        if way != WAY_DIRECT:
            proxy = stack.enter_context(ProxyBefore(folder, direct, settings_of(folder, plan, way)))
        address = direct if proxy is None else proxy.bootstrap
        storm = Storm(address, plan.partitions)
        with OrdinaryJava(folder, address, plan.pace) as java, Ordinary(address, plan.pace) as librdkafka:
            before = Broker.ask(port.number)
            cpu = 0.0 if proxy is None else cpu_seconds(proxy.pid)
            if kind == "none":
                time.sleep(plan.seconds)
            elif kind == "librdkafka":
                storm.librdkafka(plan.seconds)
            else:
                asyncio.run(getattr(storm, kind)(plan.rate, plan.seconds))
            proxied = {} if proxy is None else {**proxy.figures(), CPU: cpu_seconds(proxy.pid) - cpu}
            after = Broker.ask(port.number)
        return Seen(storm, librdkafka.figures(), java.figures(), before, after, proxied)


def settings_of(folder: Path, plan: Plan, way: str) -> dict[str, Any]:
    (folder / "password").write_text(USERS["proxy"])
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password_file": str(folder / "password")}
    return {
        "upstream": {"sasl": sasl},
        "quotas": {"entities": [{"user": "storm", "producer_ids_rate": plan.limit}], "producer_ids": WAYS[way]},
    }


def row(kind: str, way: str, plan: Plan, seen: Seen) -> list[str]:
    storm, figures = seen.storm, seen.proxied
    new = (seen.after.ids - seen.before.ids) / (1 if kind == "librdkafka" else plan.partitions)
    cells = [kind, way, str(storm.begun), str(storm.codes[0]), str(storm.codes[REFUSED])]
    cells += [str(sum(storm.failed.values()) + sum(n for code, n in storm.codes.items() if code not in (0, REFUSED)))]
    cells += [f"{new:.0f}", f"{seen.after.heap / (1 << 20):.1f}"]
    for one in (seen.librdkafka, seen.java):
        cells += [f"{one.rate:.0f}", f"{one.p50:.1f} / {one.p99:.0f}", str(one.failed)]
    decided = (f'{what}_total{{quota="producer_ids"}}' for what in ("throttled_requests", "refused_items", "held_requests"))
    return [
        *cells,
        *((f"{figures[CPU]:.1f}", " / ".join(f"{figures.get(name, 0):.0f}" for name in decided)) if figures else ("", "")),
    ]


COLUMNS: Final = (
    "storm",
    "way",
    "new\nproducers",
    "written",
    "refused",
    "other\nerrors",
    "ids at\nthe broker",
    "its heap\nMiB",
    "librdkafka\nrecords/s",
    "ms p50/p99",
    "failed",
    "Java\nrecords/s",
    "ms p50/p99",
    "failed",
    "proxy\nCPU s",
    "throttled / refused / held",
)
STORMS: Final = ("none", "open", "loops", "librdkafka")
ROWS: Final = (
    ("none", WAY_DIRECT),
    ("none", "throttle"),
    *((kind, way) for kind in STORMS[1:] for way in (WAY_DIRECT, *WAYS)),
)


@click.command()
@click.option(
    "--storm",
    "storms",
    multiple=True,
    type=click.Choice(["none", "open", "loops", "librdkafka"]),
    help="May be given more than once.",
)
@click.option("--way", "ways", multiple=True, type=click.Choice([WAY_DIRECT, *WAYS]), help="May be given more than once.")
@click.option("--rate", default=100.0, show_default=True, help="New producers a second; of loops, how many there are.")
@click.option("--seconds", default=30.0, show_default=True, help="How long the storm lasts.")
@click.option("--partitions", default=20, show_default=True, help="Partitions that each new producer writes to.")
@click.option("--limit", default=100, show_default=True, help="producer_ids_rate of the storm's user.")
@click.option("--pace", default=200.0, show_default=True, help="Records a second of each ordinary producer.")
def main(
    storms: tuple[str, ...], ways: tuple[str, ...], rate: float, seconds: float, partitions: int, limit: int, pace: float
) -> None:
    """A storm of new producers beside ordinary ones, directly and behind the producer id quota."""
    plan = Plan(rate, seconds, partitions, limit, pace)
    title = (
        f"{rate:g} new producers/s for {seconds:g} s, {partitions} partitions each; limit {limit}; ordinary ones {pace:g} records/s"
    )
    table = Table(*COLUMNS, title=title)
    for kind, way in ROWS:
        if (not storms or kind in storms) and (not ways or way in ways):
            print(f"{kind}, {way} …", file=sys.stderr)
            table.add_row(*row(kind, way, plan, run(plan, kind, way)))
    Console(width=190).print(table)


if __name__ == "__main__":
    main()
