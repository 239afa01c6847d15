"""`python -m benchmarks.console`: what people who look at the console cost the proxy and its clients.

In: how many viewers and clients. Out: for nobody, one viewer and all of them: the proxy's CPU beside a fixed load of small Produce
requests, and how long answers to these took. Every quota is on; each viewer asks `/live` every two seconds, as the page does."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import click
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.bench.__main__ import EVERY_QUOTA, PROXY, raise_file_limit
from benchmarks.bench.frames import CASES
from benchmarks.bench.measure import Parts, cpu_seconds, in_front, line, loading

CASE, CLIENTS_CASE = "paced-100", "produce-100"
PERIOD = 2.0
"""Seconds between two looks of a viewer: that of the page."""
SETTLE = 22.0
"""Seconds after which the clients stand in a complete interval."""
ROUNDS = 3


@click.command()
@click.option("--viewers", default=100, show_default=True, type=click.IntRange(1))
@click.option("--clients", default=1000, show_default=True, type=click.IntRange(1), help="Client ids that the console has to show.")
@click.option("--seconds", default=6.0, show_default=True, help="Length of each measurement.")
def main(viewers: int, clients: int, seconds: float) -> None:
    """What people who look at the console cost the proxy and its clients."""
    raise_file_limit()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config = Path(folder) / "settings.yaml"
        config.write_text(yaml.safe_dump(EVERY_QUOTA))
        command = [*PROXY, "--logs", folder, "--config", str(config)]
        parts = stack.enter_context(in_front(command, [CASE, CLIENTS_CASE]))
        stack.enter_context(known_clients(parts.listen, clients))
        time.sleep(SETTLE)
        table = Table(
            "viewers",
            "answers a viewer got",
            "CPU of the proxy",
            "p50",
            "p99",
            title=f"{clients:,} clients in the console, 2,000 requests/s",
        )
        found: dict[int, list[tuple[float, float, float, float]]] = {0: [], 1: [], viewers: []}
        for _ in range(ROUNDS):
            for count, rounds in found.items():
                rounds.append(measured(parts, count, seconds))
        for count, rounds in found.items():
            looks, cpu, p50, p99 = (statistics.median(values) for values in zip(*rounds, strict=True))
            table.add_row(str(count), f"{looks:.1f}", f"{cpu:.1%} of a core", f"{p50 * 1e6:.0f} µs", f"{p99 * 1e3:.2f} ms")
    Console(width=110).print(table)


def measured(parts: Parts, viewers: int, seconds: float) -> tuple[float, float, float, float]:
    """(answers that a viewer got, CPU of the proxy as a part of a core, p50 and p99 of a producer in seconds)."""
    with looking(parts.admin, viewers) as looks, loading(parts.listen, CASE, seconds) as load:
        before, seen, began = cpu_seconds(parts.proxy), looks.value, time.monotonic()
        said = line(load)
        took = time.monotonic() - began
        answered = (looks.value - seen) / viewers if viewers else 0.0
        return answered, (cpu_seconds(parts.proxy) - before) / took, said["p50"], said["p99"]


@contextmanager
def known_clients(listen: int, count: int) -> Iterator[None]:
    """So many connections, each with a client id of its own and one request."""
    request = CASES[CLIENTS_CASE].request()
    length = int.from_bytes(request[12:14], "big")
    with ExitStack() as stack:
        for i in range(count):
            name = f"client-{i}".encode()
            frame = request[4:12] + len(name).to_bytes(2, "big") + name + request[14 + length :]
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", listen), 30))
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            if not connection.recv(4):
                raise SystemExit("the proxy closed a connection")
        yield


@contextmanager
def looking(admin: int, viewers: int) -> Iterator[multiprocessing.sharedctypes.Synchronized[int]]:
    """Viewers in a process of their own, at the processor of the load, from when each has got an answer; how many answers came."""
    looks: multiprocessing.sharedctypes.Synchronized[int] = multiprocessing.Value("q", 0)
    process = multiprocessing.Process(target=_look, args=(admin, viewers, looks), daemon=True)
    process.start()
    try:
        while looks.value < viewers:
            if not process.is_alive():
                raise SystemExit("the viewers ended early")
            time.sleep(0.05)
        yield looks
    finally:
        process.kill()
        process.join()


def _look(admin: int, viewers: int, looks: multiprocessing.sharedctypes.Synchronized[int]) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

    async def viewer(session: aiohttp.ClientSession, wait: float) -> None:
        await asyncio.sleep(wait)
        while True:
            async with session.get(f"http://127.0.0.1:{admin}/live") as answer:
                answer.raise_for_status()
                await answer.read()
            looks.value += 1
            await asyncio.sleep(PERIOD)

    async def all_of_them() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, auto_decompress=False, headers={"Accept-Encoding": "gzip"}
        ) as session:
            await asyncio.gather(*(viewer(session, PERIOD * i / viewers) for i in range(viewers)))

    if viewers:
        asyncio.run(all_of_them())
    else:
        time.sleep(3600)


if __name__ == "__main__":
    main()
