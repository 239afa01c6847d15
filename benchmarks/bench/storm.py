"""What a storm of connections costs others: `python -m benchmarks.bench.storm`.

In: options. Out: a table of a client's latency at 2,000 requests a second through a proxy: alone, while an address opens as
many connections a second to somebody else on this machine, and while it opens them to the proxy, where it may open 20. The
second row shows what the machine itself loses by such a storm. The proxy has one processor; the client, the broker and the
storm share another."""

from __future__ import annotations

import json
import os
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final, NamedTuple

import click
from rich.console import Console
from rich.table import Table

from benchmarks.bench.__main__ import EVERY_QUOTA, PROXY
from benchmarks.bench.measure import cpu_seconds, in_front, line, loading

CASE: Final = "paced-100"
STORMY: Final = "127.0.0.2"
RATE: Final = 20
CONNECTIONS: Final = {"per_address": RATE, "networks": {"127.0.0.1": 1e9}}
_RESET: Final = struct.pack("ii", 1, 0)
"""Of SO_LINGER: closed at once, so that no port waits."""


class Run(NamedTuple):
    """Seconds, and processors that the proxy used."""

    p50: float
    p99: float
    cpu: float


@click.command()
@click.option("--rounds", default=3, show_default=True, help="Measurements of each; medians are shown.")
@click.option("--seconds", default=4.0, show_default=True, help="Length of each.")
@click.option("--rate", default=2000, show_default=True, help="Connections a second.")
def main(rounds: int, seconds: float, rate: int) -> None:
    """What a storm of connections costs others."""
    ways = ("no storm", "to somebody else", "to the proxy")
    with tempfile.TemporaryDirectory() as folder, process("listen") as other:
        assert other.stdout is not None
        elsewhere = int(other.stdout.readline())
        settings = Path(folder, "settings.json")
        quotas = {**EVERY_QUOTA["quotas"], "connections": CONNECTIONS}
        settings.write_text(json.dumps({**EVERY_QUOTA, "quotas": quotas}))
        proxy = [*PROXY, "--logs", folder, "--config", str(settings)]
        runs = [{way: measure(proxy, way, elsewhere, seconds, rate) for way in ways} for _ in range(rounds)]
    table = Table(
        "connections", "p50 µs", "p99 µs", "CPU of the proxy", title=f"{rate:,} connections a second, {RATE} of them let in"
    )
    for way in ways:
        p50, p99, cpu = (statistics.median(column) for column in zip(*[run[way] for run in runs], strict=True))
        table.add_row(way, f"{p50 * 1e6:.0f}", f"{p99 * 1e6:.0f}", f"{cpu:.3f}")
    Console(width=120).print(table)


def measure(proxy: list[str], way: str, elsewhere: int, seconds: float, rate: int) -> Run:
    with in_front(proxy, [CASE]) as parts, loading(parts.listen, CASE, seconds) as load:
        port = parts.listen if way == "to the proxy" else elsewhere
        before = cpu_seconds(parts.proxy)
        with nullcontext() if way == "no storm" else process("storm", str(port), str(seconds), str(rate)):
            found = line(load)
        return Run(found["p50"], found["p99"], (cpu_seconds(parts.proxy) - before) / seconds)


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """One of this file's own, beside the load, that ends with the block."""
    command = [sys.executable, "-m", __spec__.name, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        os.sched_setaffinity(started.pid, {max(os.sched_getaffinity(0))})
        try:
            yield started
        finally:
            started.terminate()


def listen() -> None:
    """Close each connection that comes."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            server.accept()[0].close()


def storm(port: int, seconds: float, rate: int) -> None:
    """Open connections at even intervals, and close them."""
    began, number = time.perf_counter(), 0
    while time.perf_counter() < began + seconds:
        with socket.socket() as sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            sock.bind((STORMY, 0))
            sock.connect(("127.0.0.1", port))
        number += 1
        time.sleep(max(began + number / rate - time.perf_counter(), 0))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["listen"]:
            listen()
        case ["storm", port, seconds, rate]:
            storm(int(port), float(seconds), int(rate))
        case _:
            main()
