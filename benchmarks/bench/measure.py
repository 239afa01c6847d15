"""Starts sink, proxy and load, one proxy after the other. In: a case. Out: the proxy's CPU seconds and
memory, from /proc, and what the load saw."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from localkafka.ports import free_ports

START_LIMIT = 90.0
NANO = 1e-9


@dataclass(frozen=True, slots=True)
class Figure:
    """What one proxy did in one measurement: CPU in seconds, `frames` answered, `peak` memory in bytes; how long answers
    took, in seconds: half of them, and all but one in a hundred."""

    cpu: float
    frames: int
    peak: int
    p50: float
    p99: float

    @property
    def cpu_per_100k(self) -> float:
        """CPU seconds per 100 000 frames."""
        return self.cpu / self.frames * 1e5


def measure(proxy: list[str], case: str, seconds: float) -> Figure:
    """Run `proxy` (arguments with {listen}, {upstream}, {admin}) between the load and the sink."""
    with between(proxy, case, str(seconds)) as (pid, load):
        before = cpu_seconds(pid)
        said = line(load)
        after = cpu_seconds(pid)
        return Figure(after - before, said["frames"], memory(pid, "VmHWM"), said["p50"], said["p99"])


def memory_per_idle_connection(proxy: list[str], case: str, count: int) -> float:
    """Bytes that `proxy` takes for a connection that had one answer and is silent then."""
    with between(proxy, case, "idle", str(count)) as (pid, load):
        before = memory(pid, "VmRSS")
        line(load)
        return (memory(pid, "VmRSS") - before) / count


@contextmanager
def between(proxy: list[str], case: str, *load_arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A proxy between load and sink, from when the load starts: (pid of the proxy, the load)."""
    with in_front(proxy, case) as (pid, listen), loading("load", listen, case, *load_arguments) as load:
        yield pid, load


@contextmanager
def in_front(proxy: list[str], cases: str) -> Iterator[tuple[int, int]]:
    """A proxy before a sink that answers as these cases want it: (pid of the proxy, where it listens)."""
    cpus = sorted(os.sched_getaffinity(0))
    listen, upstream, admin = free_ports(3)
    command = [part.format(listen=listen, upstream=upstream, admin=admin) for part in proxy]
    with (
        running([sys.executable, "-m", "benchmarks.bench.sink", str(upstream), cases], cpus[-1], upstream),
        running(command, cpus[0], listen) as pid,
    ):
        yield pid, listen


@contextmanager
def loading(module: str, listen: int, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A load of `benchmarks.bench`, from when it starts. It ends with the block, if it is not over before."""
    command = [sys.executable, "-m", f"benchmarks.bench.{module}", str(listen), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        os.sched_setaffinity(load.pid, {max(os.sched_getaffinity(0))})
        try:
            if load.stdout.readline() != "start\n":
                raise SystemExit(f"the load failed: {' '.join(command)}")
            yield load
        finally:
            load.kill()


def line(load: subprocess.Popen[str]) -> dict[str, Any]:
    """What the load says at its end."""
    assert load.stdout is not None
    said = load.stdout.readline()
    if not said:
        raise SystemExit("the load failed")
    found: dict[str, Any] = json.loads(said)
    return found


@contextmanager
def running(command: list[str], cpu: int, port: int) -> Iterator[int]:
    """A process on one CPU, from when it listens at `port`."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(process.pid, {cpu})
        wait_for_port(port, process)
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            time.sleep(0.5)
            return
    raise SystemExit(f"{process.args!r} does not listen at {port}")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all its threads."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total * NANO


def memory(pid: int, field: str) -> int:
    """Of /proc/PID/status, in bytes: VmRSS is what it has now, VmHWM the most it ever had."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(row.split()[1]) for row in file if row.startswith(field)) * 1024
