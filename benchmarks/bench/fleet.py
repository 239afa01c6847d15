"""One proxy process beside two that share a port: `python -m benchmarks.bench.fleet` (`make bench-fleet`).

In: options. Out: a table: frames per second, CPU of the proxies, of load and sink, and time to the answer, for one process and for
two (`--reuse-port`), in turn in one run. Load and sink need processors too, and with two proxies they have none left to
themselves: on a machine with two processors the gain is at most (proxy + load + sink) / (proxy) less what is in the table for
them, not 2. With more processors than parts, it is what the kernel's spread of connections leaves of 2."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from benchmarks.bench.frames import CASES
from benchmarks.bench.measure import cpu_seconds, line, loading, running, sink_at
from benchmarks.local_proxy import metrics_of, serve_command
from localkafka.ports import free_ports

CASES_SHOWN: Final = ("produce-100", "produce-16k", "produce-10x10")
CONNECTIONS: Final = 32
"""as the kernel spreads them by chance: with 8 it is easily 7 to 1"""


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement: frames in `seconds`; CPU seconds of the proxies, of load and sink; clients at each proxy; half of the
    answers took `p50` seconds at most, all but one in a hundred `p99`."""

    seconds: float
    frames: int
    proxies: float
    others: float
    clients: list[int]
    p50: float
    p99: float


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), default=CASES_SHOWN, show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Measurements of each; medians are shown.")
@click.option("--seconds", default=4.0, show_default=True, help="Length of each.")
@click.option("--pure", is_flag=True, help="The proxies as pure Python, so that they cost more beside load and sink.")
def main(cases: tuple[str, ...], rounds: int, seconds: float, pure: bool) -> None:
    """What a second process gains at the same port."""
    columns = ("case", "processes", "frames/s", "gain", "CPU proxies", "CPU load, sink", "s/100k", "p50 µs", "p99 µs", "clients")
    table = Table(*columns, title=f"{len(os.sched_getaffinity(0))} processors for all parts, CPU in processors")
    if pure:
        os.environ["KAFKA_QUOTA_PROXY_PURE"] = "1"
    for case in cases:
        runs = [(measure(1, case, seconds), measure(2, case, seconds)) for _ in range(rounds)]
        gain = statistics.median(two.frames / one.frames for one, two in runs)
        for count in (1, 2):
            table.add_row(*row(case, [pair[count - 1] for pair in runs], f"{gain:.2f}x" if count == 2 else ""))
    Console(width=140).print(table)


def row(case: str, runs: list[Run], gain: str) -> list[str]:
    """The cells of a case with several proxy processes."""

    def middle(figures: Iterator[float]) -> float:
        return statistics.median(figures)

    return [
        case,
        str(len(runs[0].clients)),
        f"{middle(run.frames / run.seconds for run in runs):,.0f}",
        gain,
        f"{middle(run.proxies / run.seconds for run in runs):.2f}",
        f"{middle(run.others / run.seconds for run in runs):.2f}",
        f"{middle(run.proxies / run.frames * 1e5 for run in runs):.2f}",
        f"{middle(run.p50 * 1e6 for run in runs):.0f}",
        f"{middle(run.p99 * 1e6 for run in runs):.0f}",
        ", ".join("+".join(map(str, run.clients)) for run in runs),
    ]


def measure(count: int, case: str, seconds: float) -> Run:
    """Several proxies at one port between load and sink."""
    with proxies(count, case) as (listen, pids, sink, admins):
        with loading(listen, case, seconds, CONNECTIONS) as load:
            if count > 1:
                os.sched_setaffinity(load.pid, os.sched_getaffinity(0))
            clients = [round(metrics_of(f"127.0.0.1:{admin}")["client_connections"]) for admin in admins]
            before = [cpu_seconds(pid) for pid in (*pids, sink, load.pid)]
            said = line(load)
            took = [cpu_seconds(pid) - was for pid, was in zip((*pids, sink, load.pid), before, strict=True)]
        return Run(seconds, said["frames"], sum(took[:count]), sum(took[count:]), clients, said["p50"], said["p99"])


@contextmanager
def proxies(count: int, case: str) -> Iterator[tuple[int, list[int], int, list[int]]]:
    """(port, pids, the sink's pid, admin ports). One proxy has a processor to itself, as that is its best; of several each has one,
    and load and sink may use all."""
    cpus = sorted(os.sched_getaffinity(0))
    listen, upstream, *admins = free_ports(2 + count)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sink = stack.enter_context(sink_at(upstream, [case], cpus if count > 1 else cpus[-1:]))
        pids = []
        for number, admin in enumerate(admins):
            own = ["--admin", f"127.0.0.1:{admin}", "--proxy-id", f"p{number}", "--logs", folder]
            at = ["--upstream", f"127.0.0.1:{upstream}", "--listen", f"127.0.0.1:{listen}", "--reuse-port"]
            command = serve_command(*at, *own)
            pids.append(stack.enter_context(running(command, [cpus[number % len(cpus)]], admin)))
        yield listen, pids, sink, admins


if __name__ == "__main__":
    main()
