"""What workers gain and cost: `python -m benchmarks.bench.workers` (`make bench-workers`).

In: options. Out: two tables. One for 1, 2 and 4 workers, each held to a part of a processor by a control group, so that the machine
is no limit: frames per second, CPU of the workers for each frame, CPU of the supervisor, memory. One of a proxy with many workers:
how long a scrape of all their metrics takes, and memory. The control groups need root and a writable cgroup tree (v1 or v2)."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import click
import psutil
import yaml
from rich.console import Console
from rich.table import Table

from benchmarks.bench.frames import CASES
from benchmarks.bench.measure import cpu_seconds, line, loading, memory, sink_at
from benchmarks.local_proxy import metrics_of, serve_command
from localkafka.ports import free_ports

CGROUPS: Final = Path("/sys/fs/cgroup")
PART: Final = 0.2
"""of a processor, for each worker"""
PERIOD: Final = 100_000
"""Microseconds in which a worker may use its part: what the kernel takes by default. It gives time in slices of 5 ms."""
COUNTS: Final = (1, 2, 4)
CONNECTIONS: Final = 8
"""For each worker, so that each has the same load: with fewer connections, fewer requests wait for its next part of a processor."""
SCRAPES: Final = 5
MIB: Final = 1 << 20


class Run(NamedTuple):
    """One measurement: frames per second; CPU seconds of the workers, and processors that the supervisor used."""

    rate: float
    cpu_per_100k: float
    supervisor: float


class Running(NamedTuple):
    """A proxy of several workers."""

    listen: int
    admin: str
    supervisor: int
    workers: list[int]


@click.command()
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), default=("produce-10x10",), show_default=True)
@click.option("--rounds", default=3, show_default=True, help="Measurements of each; medians are shown.")
@click.option("--seconds", default=8.0, show_default=True, help="Length of each.")
@click.option("--scrape", default=16, show_default=True, help="Workers whose metrics are scraped; 0 for none.")
def main(cases: tuple[str, ...], rounds: int, seconds: float, scrape: int) -> None:
    """What workers gain and cost."""
    console = Console(width=140)
    columns = ("case", "workers", "frames/s", "of linear", "CPU s/100k", "of one worker's", "CPU supervisor")
    table = Table(*columns, title=f"{PART:g} of a processor for each worker")
    for case in cases:
        runs = [{count: measure(count, case, seconds) for count in COUNTS} for _ in range(rounds)]  # in turn: the machine drifts
        for count in COUNTS:
            mine = [run[count] for run in runs]
            rate, cost, supervisor = (statistics.median(column) for column in zip(*mine, strict=True))
            linear = statistics.median(run[count].rate / count / run[1].rate for run in runs)
            dearer = statistics.median(run[count].cpu_per_100k / run[1].cpu_per_100k for run in runs)
            cells = f"{rate:,.0f}", f"{linear:.3f}", f"{cost:.2f}", f"{dearer:.3f}", f"{supervisor:.3f}"
            table.add_row(case, str(count), *cells)
    console.print(table)
    if scrape:
        console.print(scrapes(scrape))


def measure(count: int, case: str, seconds: float) -> Run:
    """Workers between load and sink."""
    with proxy(count, case) as it, limited(it.workers), loading(it.listen, case, seconds, CONNECTIONS * count) as load:
        os.sched_setaffinity(load.pid, os.sched_getaffinity(0))
        pids = [*it.workers, it.supervisor]
        before = [cpu_seconds(pid) for pid in pids]
        frames = line(load)["frames"]
        *took, supervisor = (cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True))
        alone = it.supervisor in it.workers
        return Run(frames / seconds, sum(took) / frames * 1e5, 0.0 if alone else supervisor / seconds)


def scrapes(count: int) -> Table:
    """What a scrape of `count` workers takes, and their memory."""
    with proxy(count, "produce-100") as it:
        took = []
        for _ in range(SCRAPES):
            began = time.perf_counter()
            found = metrics_of(it.admin)
            took.append(time.perf_counter() - began)
            if found["workers_up"] != count:
                raise SystemExit(f"{found['workers_up']:g} of {count} workers answered")
        table = Table("", "value", title=f"{count} workers without load")
        for name, value in (
            ("a scrape", f"{statistics.median(took):.2f} s, at most {max(took):.2f} s"),
            ("series", f"{len(found)}"),
            ("memory of a worker, resident", f"{statistics.median(memory(pid, 'VmRSS') for pid in it.workers) / MIB:.0f} MiB"),
            ("of that its own", f"{statistics.median(private(pid) for pid in it.workers) / MIB:.0f} MiB"),
            ("memory of the supervisor", f"{memory(it.supervisor, 'VmRSS') / MIB:.0f} MiB"),
        ):
            table.add_row(name, value)
        return table


@contextmanager
def proxy(count: int, case: str) -> Iterator[Running]:
    """A proxy before a sink, once all workers serve. All processes may use all processors."""
    listen, upstream, admin = free_ports(3)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(sink_at(upstream, [case], sorted(os.sched_getaffinity(0))))
        config = Path(folder, "settings.yaml")
        config.write_text(yaml.safe_dump({"workers": count, "limits": {"memory_total": f"{count * 128}MiB"}}))
        at = ["--upstream", f"127.0.0.1:{upstream}", "--listen", f"127.0.0.1:{listen}", "--admin", f"127.0.0.1:{admin}"]
        command = serve_command("--config", str(config), "--logs", folder, *at)
        pid = stack.enter_context(process(command))
        while not ready(f"127.0.0.1:{admin}"):
            time.sleep(0.2)
        workers = [child.pid for child in psutil.Process(pid).children()] or [pid]
        yield Running(listen, f"127.0.0.1:{admin}", pid, workers)


@contextmanager
def process(command: list[str]) -> Iterator[int]:
    """One that ends with the block."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as started:
        try:
            yield started.pid
        finally:
            started.terminate()


def ready(admin: str) -> bool:
    """True once all workers serve."""
    try:
        with urllib.request.urlopen(f"http://{admin}/readyz", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def private(pid: int) -> int:
    """Memory that no other process has part in, in bytes."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Private_")) * 1024


@contextmanager
def limited(pids: list[int]) -> Iterator[None]:
    """Hold each of these processes to its part of a processor."""
    version_2 = (CGROUPS / "cgroup.controllers").exists()
    top = CGROUPS if version_2 else CGROUPS / "cpu"
    groups = [top / f"kafka-quota-proxy-bench-{pid}" for pid in pids]
    try:
        for pid, group in zip(pids, groups, strict=True):
            group.mkdir()
            quota = round(PART * PERIOD)
            if version_2:
                (group / "cpu.max").write_text(f"{quota} {PERIOD}")
            else:
                (group / "cpu.cfs_period_us").write_text(str(PERIOD))
                (group / "cpu.cfs_quota_us").write_text(str(quota))
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for pid, group in zip(pids, groups, strict=True):
            if group.exists():
                with suppress(OSError):  # it has ended
                    (top / "cgroup.procs").write_text(str(pid))
                group.rmdir()


if __name__ == "__main__":
    main()
