"""`python -m benchmarks.soak`: whether the proxy's memory stays flat over an hour's worth of traffic.

In: how many requests. Out: a table of its memory on the way, and how fast it grew once it was warm. Small and large requests, large
answers, connections that come and go, hundreds of client ids and topics, before a sink, as fast as it goes; the usage log is on."""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from statistics import linear_regression

import click
from rich.console import Console
from rich.table import Table

from benchmarks.bench.__main__ import PROXY
from benchmarks.bench.measure import cpu_seconds, in_front, line, memory, started
from benchmarks.bench.mixed import KINDS

HOUR = 7_200_000
"""requests: an hour of 2000 in a second"""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Sample:
    """A point of the run: requests and connections until then, time and CPU in seconds since the start, memory in bytes."""

    requests: int
    connections: int
    passed: float
    cpu: float
    resident: int
    peak: int


@click.command()
@click.option("--requests", default=1_000_000, show_default=True, help="How many in all.")
@click.option("--hour", is_flag=True, help=f"As many as an hour of 2000 in a second has: {HOUR:,}.")
@click.option("--points", default=20, show_default=True, type=click.IntRange(8), help="How often memory is looked at.")
def main(requests: int, hour: bool, points: int) -> None:
    """Whether the proxy's memory stays flat over an hour's worth of mixed traffic."""
    samples = soak(HOUR if hour else requests, points)
    Console(width=100).print(table(samples))
    warm = samples[len(samples) // 4 :]
    first, last = warm[0], warm[-1]
    grown = (last.resident - first.resident) / 1024
    print(f"last three quarters: {growth(warm):+.0f} KiB per million requests, {grown:+.0f} KiB in all")


def soak(requests: int, points: int) -> list[Sample]:
    """Send this number of requests; what the proxy took after each part of them."""
    with tempfile.TemporaryDirectory() as logs, in_front([*PROXY, "--logs", logs], list(KINDS)) as parts:
        pid = parts.proxy
        began, used = time.monotonic(), cpu_seconds(pid)
        samples = []
        command = [sys.executable, "-m", "benchmarks.bench.mixed", str(parts.listen), str(requests), str(points)]
        with started(command) as load:
            for _ in range(points):
                said = line(load)
                passed, cpu = time.monotonic() - began, cpu_seconds(pid) - used
                samples.append(
                    Sample(said["requests"], said["connections"], passed, cpu, memory(pid, "VmRSS"), memory(pid, "VmHWM"))
                )
        return samples


def growth(samples: list[Sample]) -> float:
    """KiB per million requests: the slope of the straight line through all of them."""
    slope = linear_regression([each.requests for each in samples], [each.resident for each in samples]).slope
    return slope / 1024 * 1e6


def table(samples: list[Sample]) -> Table:
    """A row for each."""
    found = Table(
        "requests", "connections", "seconds", "CPU s", "RSS MiB", "peak MiB", title="The proxy's memory under mixed traffic"
    )
    for each in samples:
        sizes = (f"{each.resident / MIB:.1f}", f"{each.peak / MIB:.1f}")
        found.add_row(f"{each.requests:,}", f"{each.connections:,}", f"{each.passed:.0f}", f"{each.cpu:.1f}", *sizes)
    return found


if __name__ == "__main__":
    main()
