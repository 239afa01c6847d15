"""`python -m benchmarks.shield`: what announced sizes and half requests cost a broker, with the proxy before it and without.

In: options. Out: a table. A real broker with a small heap, fresh for each row; connections that say "100 MiB" and send a little
of it, or as much as is taken; and an ordinary client that wants to write and read a record meanwhile and afterwards."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import click
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.bench.measure import memory
from benchmarks.local_proxy import LocalProxy, proxy_with, wait
from localkafka import LocalCluster, Node

MIB: Final = 1 << 20
PIECE: Final = bytes(64 << 10)
OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"
LIMITS: Final = {"memory_total": "256MiB", "first_request_timeout": "15s"}
SETTLED: Final = 1.0
"""Seconds without a byte after which senders are stuck."""
ATTACKS: Final = {"announced": 1 << 10, "half sent": 50 * MIB}
"""How much of what it announces each connection sends, in bytes, if it is let."""


class Attack:
    """Connections to host:port that announce `size` bytes each and send at most `limit` of them, as fast as the other end takes
    them, each in a thread. Nothing is read except the end. `taken`: bytes that the other end took; `closed`: connections that it
    ended."""

    def __init__(self, address: str, connections: int, size: int, limit: int) -> None:
        self._sent: list[int] = []
        self._ended: list[socket.socket] = []
        self._limit = limit
        self._head = size.to_bytes(4, "big") + b"\0\x12\0\0\0\0\0\1\0\6shield"
        host, _, port = address.rpartition(":")
        self._sockets = [socket.create_connection((host, int(port)), 20) for _ in range(connections)]
        self._stop = threading.Event()
        self._moved = time.monotonic()
        self._threads = ThreadPoolExecutor(connections)

    def __enter__(self) -> Self:
        for sock in self._sockets:
            sock.sendall(self._head)
            sock.settimeout(0.1)
            self._threads.submit(self._run, sock)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._threads.shutdown()
        for sock in self._sockets:
            sock.close()

    @property
    def taken(self) -> int:
        return sum(self._sent)

    @property
    def closed(self) -> int:
        return len(self._ended)

    @property
    def settled(self) -> bool:
        """Whether the other end has stopped taking bytes."""
        return time.monotonic() - self._moved > SETTLED

    def _run(self, sock: socket.socket) -> None:
        left = self._limit
        while not self._stop.is_set():
            try:
                if left:
                    sent = sock.send(PIECE[:left])
                    self._sent.append(sent)
                    left, self._moved = left - sent, time.monotonic()
                elif not sock.recv(4096):
                    return self._ended.append(sock)
            except TimeoutError:
                pass
            except OSError:
                return self._ended.append(sock)
        return None


def serves(bootstrap: str, patience: float) -> bool:
    """Whether a new client writes a record and reads it again, within `patience` seconds for each."""
    topic, value = f"shield-{uuid.uuid4().hex[:8]}", b"still there"
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda _: None}
    errors: list[bool] = []
    producer = Producer({**quiet, "message.timeout.ms": round(patience * 1000), "acks": "all"})
    producer.produce(topic, value, partition=0, on_delivery=lambda error, _: errors.append(error is not None))
    producer.flush(patience + 5)
    if errors != [False]:
        return False
    consumer = Consumer({**quiet, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(patience)
        return message is not None and message.value() == value
    except KafkaException:
        return False
    finally:
        consumer.close()


def out_of_memory(node: Node) -> int:
    """How often the broker ran out of memory since it started."""
    return node.printed_since_start().count(OUT_OF_MEMORY)


@dataclass(slots=True)
class AttackOutcome:
    """What one attack did. `before`, `peak`: resident bytes of the broker; `held`: the most that the proxy said it held."""

    during: bool = False
    after: bool = False
    errors: int = 0
    before: int = 0
    peak: int = 0
    taken: int = 0
    closed: int = 0
    held: int = 0
    proxy_peak: int = 0
    limits: dict[str, int] = field(default_factory=dict)


@contextmanager
def way(node: Node, through_proxy: bool) -> Iterator[tuple[str, LocalProxy | None]]:
    """(where clients connect, the proxy if there is one)."""
    with contextlib.ExitStack() as stack:
        if not through_proxy:
            yield node.address, None
        else:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            proxy = stack.enter_context(proxy_with({"limits": LIMITS}, node.address, folder))
            yield proxy.bootstrap, proxy


@dataclass(frozen=True, slots=True)
class Plan:
    """`connections` that announce `size` bytes each and send at most `sent` of them. `heap` of the broker in MiB. `patience` of
    clients in seconds."""

    connections: int
    size: int
    sent: int
    heap: int
    patience: float


def run(plan: Plan, through_proxy: bool) -> AttackOutcome:
    """One attack on a fresh broker."""
    with LocalCluster(1, jvm_flags=[f"-Xmx{plan.heap}m"]) as kafka, way(kafka.brokers[0], through_proxy) as (address, proxy):
        node = kafka.brokers[0]
        if not serves(address, 20):
            raise SystemExit("the cluster does not serve a client even without an attack")
        outcome = AttackOutcome(before=node.resident_bytes())
        with Attack(address, plan.connections, plan.size, plan.sent) as attack:
            wait(lambda: watch(outcome, proxy, attack.settled), 30)
            outcome.during = serves(address, plan.patience)
            watch(outcome, proxy)
            if proxy is not None:  # until the limits end it
                wait(lambda: watch(outcome, proxy, attack.closed == plan.connections), 30)
        outcome.taken, outcome.closed = attack.taken, attack.closed
        outcome.after = serves(address, plan.patience)
        outcome.errors = out_of_memory(node)
        if node.pid is not None:
            outcome.peak = memory(node.pid, "VmHWM")
        if proxy is not None:
            outcome.limits, outcome.proxy_peak = proxy.limits(), memory(proxy.pid, "VmHWM")
    return outcome


def watch(outcome: AttackOutcome, proxy: LocalProxy | None, until: bool = False) -> bool:
    """Note what the proxy holds at the moment, and say `until`."""
    if proxy is not None:
        outcome.held = max(outcome.held, round(proxy.metrics()["memory_held_bytes"]))
    return until


def row(attack: str, through_proxy: bool, outcome: AttackOutcome) -> list[str]:
    """The cells of one attack."""
    broker = f"{outcome.before >> 20} → {outcome.peak >> 20}" if outcome.peak else "ended"
    cells = [attack, "proxy" if through_proxy else "direct", *(("no", "yes")[answer] for answer in (outcome.during, outcome.after))]
    cells += [str(outcome.errors), broker, f"{outcome.taken / MIB:.1f}", str(outcome.closed)]
    if not through_proxy:
        return [*cells, "", "", ""]
    bit = ", ".join(f"{name} {count}" for name, count in outcome.limits.items())
    return [*cells, f"{outcome.held / MIB:.1f}", str(outcome.proxy_peak >> 20), bit]


COLUMNS: Final = (
    "attack",
    "way",
    "serves\nduring",
    "serves\nafter",
    "OutOfMemory\nErrors",
    "broker's RSS\nbefore → peak",
    "bytes\ntaken",
    "closed",
    "proxy\nheld",
    "proxy's\nRSS peak",
    "limits hit",
)


@click.command()
@click.option("--attack", "attacks", multiple=True, type=click.Choice(list(ATTACKS)), help="May be given twice; both by default.")
@click.option("--connections", default=48, show_default=True, help="Connections that announce a large request.")
@click.option("--size", default=100, show_default=True, help="What each announces, in MiB; brokers take 100 at most.")
@click.option("--heap", default=512, show_default=True, help="The broker's heap in MiB.")
@click.option("--patience", default=10.0, show_default=True, help="Seconds after which an ordinary client gives up.")
def main(attacks: tuple[str, ...], connections: int, size: int, heap: int, patience: float) -> None:
    """Announced sizes and half requests against a real broker, directly and through the proxy."""
    said = ", ".join(f"{name} {value}" for name, value in LIMITS.items())
    title = f"{connections} connections announce {size} MiB each; broker with -Xmx{heap}m; all in MiB; the proxy's limits: {said}"
    table = Table(*COLUMNS, title=title)
    for attack in attacks or ATTACKS:
        plan = Plan(connections, size * MIB, min(ATTACKS[attack], size * MIB // 2), heap, patience)
        for through_proxy in (False, True):
            table.add_row(*row(attack, through_proxy, run(plan, through_proxy)))
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
