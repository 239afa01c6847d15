"""`python -m benchmarks.rates`: is what gets through as much as the quotas say? Seeds s4 and KIP-13, issue "byte quotas".

In: options. Out: tables. Real librdkafka clients, each with connections of its own, want more than their quota allows; a real
broker is asked what arrived: the sizes of its partitions count for produced bytes. What was fetched is what came over the sockets.
All cases of a message size run at the same time, each in a process of its own, with a client id that has a quota.

By the arithmetic of the quotas, until t no more than quota x (10 s + t) is accepted, and the debt of those who spoke at once: one
request of each connection. Connections that wait for the same debt go on together, so what is accepted comes in rounds; the rate is
taken from the end of one silence to that of another, about `--seconds` later, and begins when the burst is spent."""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
import os
import socket
import struct
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from typing import Any, Final

import click
from aiokafka import AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kio.index import load_response_schema
from kio.serial import entity_reader
from rich.console import Console
from rich.table import Table

from benchmarks.mutations import proxy_before
from localkafka import LocalCluster

DESCRIBE_LOG_DIRS: Final = 35
KIB: Final = 1 << 10
MIB: Final = 1 << 20
BURST: Final = 10.0
"""Seconds of the quota that pass at once: all but one sample of 11."""
PATIENCE: Final = 180.0
"""Seconds in which clients have to spend their burst."""
SEARCH: Final = 10.0
"""Seconds in which the longest silence is looked for; a round is shorter."""
LOOK: Final = 0.1
"""Seconds between two looks."""
TICK: Final = 5.0
ALPHA: Final = 1 - math.exp(-TICK / 60)
"""The one-minute average of seed s4."""


@dataclass(frozen=True, slots=True)
class Case:
    """`connections` clients with messages of `size` bytes, and their quota in bytes or requests per second."""

    size: int
    connections: int
    quota: float

    @property
    def name(self) -> str:
        return f"size-{self.size}-conns-{self.connections}"


BYTES: Final = [
    [Case(100, n, 64 * KIB) for n in (1, 10, 100)],
    [Case(10 * KIB, n, KIB << 9) for n in (1, 10, 100)],
    [Case(MIB, n, quota * MIB) for n, quota in ((1, 1), (10, 2), (100, 12))],
]
REQUESTS: Final = [[Case(0, 1, 20), Case(0, 10, 50), Case(0, 100, 50)]]


class Series:
    """A sum that grows: (time, sum) in their order."""

    def __init__(self) -> None:
        self.points: list[tuple[float, float]] = []

    def add(self, now: float, total: float) -> None:
        if not self.points or total > self.points[-1][1]:
            self.points.append((now, total))

    def at(self, when: float) -> float:
        """The sum then."""
        i = bisect_right(self.points, when, key=lambda point: point[0])
        return self.points[i - 1][1] if i else 0.0

    def edge(self, since: float, until: float) -> tuple[float, float]:
        """The end of the longest silence there: when it was, and the sum before it."""
        inside = [i for i in range(1, len(self.points)) if since <= self.points[i][0] <= until]
        if not inside:
            raise click.ClickException(f"nothing was accepted from {since - self.points[0][0]:.1f} s on for {until - since:g} s")
        longest = max(inside, key=lambda i: self.points[i][0] - self.points[i - 1][0])
        return self.points[longest][0], self.points[longest - 1][1]


class Broker:
    """What a broker has on its disks."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._file = self._socket.makefile("rb")

    def sizes(self) -> dict[tuple[str, int], int]:
        """Bytes by topic and partition."""
        request = struct.pack(">hhihi", DESCRIBE_LOG_DIRS, 1, 1, -1, -1)  # all topics
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        answer = self._file.read(int.from_bytes(self._file.read(4), "big"))
        found: Any = entity_reader(load_response_schema(DESCRIBE_LOG_DIRS, 1))(answer, 4)[0]
        return {
            (t.name, int(p.partition_index)): int(p.partition_size) for d in found.results for t in d.topics for p in t.partitions
        }

    def topics(self) -> dict[str, int]:
        """The same by topic."""
        sums: dict[str, int] = {}
        for (topic, _), size in self.sizes().items():
            sums[topic] = sums.get(topic, 0) + size
        return sums


@contextmanager
def background(*works: Callable[[], None]) -> Iterator[None]:
    """Each is done again and again in a thread of its own."""
    over = threading.Event()

    def repeat(work: Callable[[], None]) -> None:
        while not over.is_set():
            work()

    threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(60)


Clients = Callable[[str, "Case", "Synchronized[float]"], AbstractContextManager[None]]
"""Clients of a proxy that do something until the context ends, and add to the number what they have done."""


@contextmanager
def apart(clients: Clients, bootstrap: str, cases: Sequence[Case]) -> Iterator[Callable[[], Mapping[str, float]]]:
    """Each case's clients in a process of their own, so that many do not starve few. What they have done so far, by case."""
    spawn = multiprocessing.get_context("spawn")
    over = spawn.Event()
    done = {case.name: spawn.Value("d", 0.0) for case in cases}
    processes = [spawn.Process(target=work, args=(clients, bootstrap, case, done[case.name], over), daemon=True) for case in cases]
    for process in processes:
        process.start()
    try:
        yield lambda: {name: number.value for name, number in done.items()}
        lost = [case.name for case, process in zip(cases, processes, strict=True) if not process.is_alive()]
        if lost:
            raise click.ClickException(f"clients ended too early: {', '.join(lost)}")
    finally:
        over.set()
        for process in processes:
            process.join(60)


def work(clients: Clients, bootstrap: str, case: Case, done: Synchronized[float], over: Event) -> None:
    """What such a process does. Many threads of clients come after the proxy and the broker, which have few."""
    if case.connections > 1:
        os.nice(19)
    with clients(bootstrap, case, done):
        over.wait()


def create(bootstrap: str, topics: dict[str, int]) -> None:
    """These topics, with so many partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {"max.message.bytes": str(2 * MIB)}
    for future in admin.create_topics([NewTopic(name, n, 1, config=config) for name, n in topics.items()]).values():
        future.result(60)


def producer(bootstrap: str, client_id: str, size: int, **more: Any) -> Producer:
    """Batches of 16 KiB, as Java's are; 2 KiB of small messages, so that many connections owe little; one of large ones."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": client_id,
            "enable.idempotence": True,
            "message.max.bytes": 2 * MIB,
            "batch.size": batch_of(size),
            "linger.ms": 100,
            "message.timeout.ms": 600_000,
            "log_level": 2,
            "queue.buffering.max.messages": depth(size),
            **more,
        }
    )


def batch_of(size: int) -> int:
    """Bytes of a batch at most; one larger message makes one."""
    return 2 * KIB if size < KIB else max(16 * KIB, size + KIB if size >= MIB else 0)


def depth(size: int) -> int:
    """Messages that a producer has waiting."""
    return 500 if size < 10 * KIB else 10 if size < MIB else 2


def fill(producers: Sequence[tuple[Producer, str, int]], size: int) -> None:
    """See that each has something to send, always."""
    for one, topic, partition in producers:
        one.poll(0)
        try:
            for _ in range(depth(size) - len(one)):
                one.produce(topic, b"x" * size, partition=partition)
        except BufferError:
            continue
    time.sleep(0.05)


def watched(
    seen: dict[str, Series], totals: Callable[[], Mapping[str, float]], seconds: float, bursts: Mapping[str, float] | None = None
) -> float:
    """Look for so long, counted from when each has spent its burst; when it began."""
    began = time.monotonic()
    waiting = dict(bursts or {})
    end = began + seconds
    while (now := time.monotonic()) < end or waiting:
        for name, total in totals().items():
            if name in seen:
                seen[name].add(now, total)
            if total >= waiting.get(name, math.inf):
                del waiting[name]
                end = now + seconds
        if waiting and now > began + PATIENCE:
            raise click.ClickException(f"the burst was not spent in {PATIENCE:g} s: {', '.join(waiting)}")
        time.sleep(LOOK)
    return began


def bursts(cases: Sequence[Case]) -> dict[str, float]:
    return {case.name: case.quota * BURST for case in cases}


def limits(cases: Sequence[Case], quota: str) -> dict[str, Any]:
    return {"entities": [{"client_id": case.name, quota: case.quota} for case in cases]}


MANY: Final = 50
"""From so many clients in a process on they are aiokafka's: one thread instead of three each, which wake up all the time."""


@contextmanager
def producing(bootstrap: str, case: Case, done: Synchronized[float]) -> Iterator[None]:  # noqa: ARG001  the broker counts
    if case.connections >= MANY:
        over = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(produce_many(bootstrap, case, over)), daemon=True)
        thread.start()
        yield
        over.set()
        thread.join(60)
        return
    clients = [(producer(bootstrap, case.name, case.size), case.name, 0) for _ in range(case.connections)]
    with background(partial(fill, clients, case.size)):
        yield
    for one, *_ in clients:
        one.purge()


async def produce_many(bootstrap: str, case: Case, over: threading.Event) -> None:
    """Each has something to send, always."""
    producers = [
        AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            client_id=case.name,
            enable_idempotence=True,
            linger_ms=20,
            max_batch_size=batch_of(case.size),
            max_request_size=2 * MIB,
            request_timeout_ms=300_000,
        )
        for _ in range(case.connections)
    ]
    for one in producers:
        await one.start()

    async def feed(one: AIOKafkaProducer) -> None:
        while True:
            await one.send(case.name, b"x" * case.size, partition=0)

    feeding = [asyncio.create_task(feed(one)) for one in producers]
    while not over.is_set() and not any(task.done() for task in feeding):  # noqa: ASYNC110  another thread sets it
        await asyncio.sleep(0.2)
    for task in feeding:
        if task.done():
            task.result()
    os._exit(0)  # what is waiting is not to be sent


def produced(kafka: LocalCluster, cases: Sequence[Case], seconds: float) -> tuple[float, dict[str, Series]]:
    """When it began, and what was accepted of each case."""
    create(kafka.bootstrap_servers, {case.name: 1 for case in cases})
    seen = {case.name: Series() for case in cases}
    broker = Broker(kafka.brokers[0].address)
    with (
        proxy_before(kafka.bootstrap_servers, limits(cases, "producer_byte_rate")) as bootstrap,
        apart(producing, bootstrap, cases),
    ):
        return watched(seen, broker.topics, seconds, bursts(cases)), seen


def consumed(kafka: LocalCluster, cases: Sequence[Case], seconds: float) -> tuple[float, dict[str, Series]]:
    """The same for consumers, who read the same again and again. What came over their sockets is counted."""
    seen = {case.name: Series() for case in cases}
    for size in {case.size for case in cases}:
        create(kafka.bootstrap_servers, {f"read-{size}": 1})
        one = producer(kafka.bootstrap_servers, "filler", size, **{"queue.buffering.max.messages": 100_000})
        for _ in range(max(32, 16 * MIB // size)):
            while True:
                try:
                    one.produce(f"read-{size}", b"x" * size, partition=0)
                    break
                except BufferError:
                    one.poll(0.1)
        one.flush(60)
    with (
        proxy_before(kafka.bootstrap_servers, limits(cases, "consumer_byte_rate")) as bootstrap,
        apart(consuming, bootstrap, cases) as totals,
    ):
        return watched(seen, totals, seconds, bursts(cases)), seen


@contextmanager
def consuming(bootstrap: str, case: Case, done: Synchronized[float]) -> Iterator[None]:
    received: dict[int, float] = {}

    def told(client: int) -> Callable[[str], None]:
        def keep(text: str) -> None:
            received[client] = sum(broker["rxbytes"] for broker in json.loads(text)["brokers"].values())
            done.value = sum(list(received.values()))

        return keep

    with ExitStack() as stack:
        clients = []
        for i in range(case.connections):
            client = Consumer(
                {
                    "bootstrap.servers": bootstrap,
                    "client.id": case.name,
                    "group.id": case.name,
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "fetch.message.max.bytes": max(4 * KIB, case.size),
                    "queued.max.messages.kbytes": 2 * KIB,
                    "statistics.interval.ms": 250,
                    "stats_cb": told(i),
                    "log_level": 2,
                }
            )
            client.assign([TopicPartition(f"read-{case.size}", 0, OFFSET_BEGINNING)])
            clients.append(client)
            stack.callback(client.close)
        with background(partial(read, clients)):
            yield


def read(clients: Sequence[Consumer]) -> None:
    for client in clients:
        for message in client.consume(10_000, 0):
            if message.error():  # the end
                client.seek(TopicPartition(message.topic() or "", 0, OFFSET_BEGINNING))
    time.sleep(0.05)


def requested(kafka: LocalCluster, cases: Sequence[Case], seconds: float) -> tuple[float, dict[str, Series]]:
    """The same for requests: each client asks for metadata as soon as it has its answer."""
    seen = {case.name: Series() for case in cases}
    with (
        proxy_before(kafka.bootstrap_servers, limits(cases, "request_rate")) as bootstrap,
        apart(asking, bootstrap, cases) as totals,
    ):
        return watched(seen, totals, seconds, bursts(cases)), seen


@contextmanager
def asking(bootstrap: str, case: Case, done: Synchronized[float]) -> Iterator[None]:
    def asks(client: AdminClient) -> Callable[[], None]:
        def ask() -> None:
            client.list_topics(timeout=60)
            with done.get_lock():
                done.value += 1

        return ask

    configuration: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "client.id": case.name, "log_level": 2}
    with background(*(asks(AdminClient(configuration)) for _ in range(case.connections))):
        yield


def rows(cases: Sequence[Case], began: float, seen: dict[str, Series], seconds: float, unit: float) -> Iterator[list[str]]:
    """What a table shows of each case; figures divided by `unit`."""
    for case in cases:
        series = seen[case.name]
        start = next((max(now - LOOK, began) for now, total in series.points if total > 0), began)
        spent = next((now for now, total in series.points if total >= case.quota * BURST), None)
        if spent is None:
            raise click.ClickException(f"{case.name}: the burst was not spent")
        since, before = series.edge(spent, spent + SEARCH)
        until, after = series.edge(since + seconds - SEARCH / 2, since + seconds + SEARCH / 2)
        rate = (after - before) / (until - since)
        yield [
            f"{case.size}" if case.size else "-",
            str(case.connections),
            f"{case.quota / unit:g}",
            f"{rate / unit:.4g}",
            f"{(rate / case.quota - 1) * 100:+.2f}",
            f"{until - since:.1f}",
            f"{series.at(start + 1) / case.quota:.1f}",
            f"{series.at(start + 11) / case.quota:.1f}",
            f"{max(total / case.quota - BURST - (now - start) for now, total in series.points):+.1f}",
        ]


def table(title: str, cases: Sequence[Case], began: float, seen: dict[str, Series], seconds: float, unit: float = KIB) -> Table:
    found = Table(
        "message B", "connections", "quota", "rate", "off %", "over s", "first 1 s", "first 11 s", "above burst", title=title
    )
    for row in rows(cases, began, seen, seconds, unit):
        found.add_row(*row)
    return found


def thresholds(kafka: LocalCluster, seconds: float) -> Table:
    """Bytes in: the total is wanted 5/4 times; one topic is above its threshold, four others are below their shares."""
    total, own = MIB, MIB // 4
    names = ["hot", *(f"cool-{i}" for i in range(4))]
    create(kafka.bootstrap_servers, dict.fromkeys(names, 1))
    wanted = {name: 3 * MIB // 2 if name == "hot" else MIB // 8 for name in names}
    seen = {name: Series() for name in names}
    broker = Broker(kafka.brokers[0].address)
    topics = {"total_bytes_in_per_sec": total, "bytes_in_per_sec": {"hot": own}}
    with proxy_before(kafka.bootstrap_servers, {"topics": topics}) as bootstrap:
        size = 10 * KIB
        clients = {name: producer(bootstrap, name, size, **{"queue.buffering.max.messages": 100}) for name in names}
        begins = time.monotonic()
        sent = dict.fromkeys(names, 0)

        def pace() -> None:
            """Each at its rate; who is refused loses what its queue has no room for."""
            for name, client in clients.items():
                client.poll(0)
                while sent[name] < wanted[name] * (time.monotonic() - begins):
                    sent[name] += size
                    try:
                        client.produce(name, b"x" * size, partition=0)
                    except BufferError:
                        continue
            time.sleep(0.01)

        with background(pace):
            began = watched(seen, broker.topics, 2 * seconds)
        for client in clients.values():
            client.purge()
    return ticks(seen, began, total, own, 2 * seconds)


def ticks(seen: dict[str, Series], began: float, total: float, own: float, seconds: float) -> Table:
    """What the averages were by what arrived, tick by tick, and whether what was refused agrees: `settings` are its thresholds."""
    found = Table("", "total MiB/s", "hot MiB/s", "cool MiB/s", title=f"thresholds: total {total / MIB:g}, hot {own / MIB:g} MiB/s")
    first = math.floor(began / TICK)
    rates = dict.fromkeys(seen, 0.0)
    wrong, refused, taken = 0, 0, []
    for k in range(int(seconds / TICK)):
        since = (first + k) * TICK
        arrived = {name: (series.at(since + TICK) - series.at(since)) for name, series in seen.items()}
        over = sum(rates.values()) > total and rates["hot"] > own
        refused += over
        # what was admitted before the tick may be on its way
        wrong += over and seen["hot"].at(since + TICK) - seen["hot"].at(since + 4 * LOOK) > 0
        wrong += not over and k > 1 and not arrived["hot"]
        for name, amount in arrived.items():
            rates[name] = amount / TICK if k == 0 else rates[name] + ALPHA * (amount / TICK - rates[name])
        taken.append((sum(arrived.values()), arrived["hot"], sum(rates.values())))
    half = taken[len(taken) // 2 :]
    span = len(half) * TICK
    hot = sum(h for _, h, _ in half)
    amounts = (sum(t for t, *_ in half), hot, sum(t for t, *_ in half) - hot)
    found.add_row(f"accepted, last {span:g} s", *(f"{amount / MIB / span:.3f}" for amount in amounts))
    found.add_row("one-minute average, least", f"{min(r for *_, r in half) / MIB:.3f}", "", "")
    found.add_row("one-minute average, most", f"{max(r for *_, r in half) / MIB:.3f}", "", "")
    found.add_row("first 5 s", f"{taken[0][0] / TICK / MIB:.3f}", "", "")
    found.add_row(f"intervals refused, of {len(taken)}", str(refused), "", "")
    found.add_row("not as the averages say", str(wrong), "", "")
    return found


def fairness(kafka: LocalCluster, seconds: float) -> Table:
    """Ten clients share a quota; first all alike, then one that has large requests and many of them."""
    found = Table("", "first client KiB/s", "each other KiB/s", "in all", "Jain", title="shares of 1 MiB/s, ten connections")
    for name, size, more in (
        ("all alike", 10 * KIB, {}),
        ("the first: 4 connections' worth of small requests", 10 * KIB, {"queue.buffering.max.messages": 1000}),
        ("the first: requests of 1 MB", 10 * KIB, {"queue.buffering.max.messages": 1000, "batch.size": 1_000_000}),
    ):
        topic = f"shares-{len(found.rows)}"
        create(kafka.bootstrap_servers, {topic: 10})
        entity = {"client_id": "sharing", "producer_byte_rate": MIB}
        broker = Broker(kafka.brokers[0].address)
        with proxy_before(kafka.bootstrap_servers, {"entities": [entity]}) as bootstrap:
            greedy = (producer(bootstrap, "sharing", size, **more), topic, 0)
            others = [(producer(bootstrap, "sharing", size), topic, i) for i in range(1, 10)]
            with background(lambda: fill(others, size), lambda: flood(greedy, size)):  # noqa: B023
                watched({}, dict, 20)
                before = broker.sizes()
                watched({}, dict, seconds)
                after = broker.sizes()
        shares = [(after[topic, i] - before[topic, i]) / seconds / KIB for i in range(10)]
        jain = sum(shares) ** 2 / (10 * sum(share**2 for share in shares))
        found.add_row(name, f"{shares[0]:.0f}", f"{sum(shares[1:]) / 9:.0f}", f"{sum(shares):.0f}", f"{jain:.3f}")
    return found


def flood(greedy: tuple[Producer, str, int], size: int) -> None:
    """Its queue is full, always."""
    one, topic, partition = greedy
    one.poll(0)
    try:
        while True:
            one.produce(topic, b"x" * size, partition=partition)
    except BufferError:
        time.sleep(0.02)


RUNS: Final = {"produce": produced, "consume": consumed, "requests": requested}


@click.command()
@click.option("--kind", "kinds", multiple=True, type=click.Choice([*RUNS, "thresholds", "fairness"]), help="All by default.")
@click.option("--size", "sizes", multiple=True, type=int, help="Of messages, in bytes; all by default.")
@click.option("--seconds", default=60.0, show_default=True, help="How long is measured.")
def main(kinds: tuple[str, ...], sizes: tuple[int, ...], seconds: float) -> None:
    """Quotas beside what real clients get through."""
    console = Console(width=140)
    for kind in kinds or (*RUNS, "thresholds", "fairness"):
        with LocalCluster(1) as kafka:
            if kind in RUNS:
                unit = 1 if kind == "requests" else KIB
                title = f"{kind}: {'requests/s' if unit == 1 else 'KiB/s'}; the last three in seconds of the quota"
                for cases in REQUESTS if kind == "requests" else BYTES:
                    if sizes and cases[0].size not in sizes:
                        continue
                    began, seen = RUNS[kind](kafka, cases, seconds + 2 * SEARCH)
                    console.print(table(title, cases, began, seen, seconds, unit))
            else:
                console.print(thresholds(kafka, seconds) if kind == "thresholds" else fairness(kafka, seconds))


if __name__ == "__main__":
    main()
