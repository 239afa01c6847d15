"""Starts sink, proxy and load, one proxy after the other. In: a case. Out: the proxy's CPU seconds and memory, from /proc, what
the load saw, and how much of the machine others had."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.bench.frames import CASES, write_responses
from benchmarks.bench.native import program
from localkafka.ports import free_ports

START_LIMIT = 90.0
SCHEDULED = 2
"""Of a process id, makes the clock of its CPU time that Linux counts in ns (CPUCLOCK_SCHED)."""


TRIES: Final = 9
"""Measurements until one has to say something."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What one proxy did in one measurement: CPU in seconds, `frames` answered, `peak` memory in bytes; how long answers
    took, in seconds: half of them, and all but one in a hundred. `others` is the share of all processors that other programs,
    and the host of a virtual machine, had meanwhile."""

    cpu: float
    frames: int
    peak: int
    p50: float
    p99: float
    others: float

    @property
    def cpu_per_100k(self) -> float:
        """CPU seconds per 100 000 frames."""
        return self.cpu / self.frames * 1e5


@dataclass(frozen=True, slots=True)
class Parts:
    """Process ids of the proxy and of the sink, and the ports of the proxy."""

    proxy: int
    sink: int
    listen: int
    admin: int


def measure(proxy: list[str], case: str, seconds: float) -> Figure:
    """Run `proxy` (arguments with {listen}, {upstream}, {admin}) between the load and the sink; anew where this process, on a busy
    machine, came to look at the clocks only when the load was over."""
    for _ in range(TRIES):
        found = _measured(proxy, case, seconds)
        if found.cpu > 0:
            return found
    raise SystemExit("this machine is too busy to measure anything")


def _measured(proxy: list[str], case: str, seconds: float) -> Figure:
    with in_front(proxy, [case]) as parts, loading(parts.listen, case, seconds) as load:
        pids = parts.proxy, parts.sink, load.pid
        before, machine, began = [cpu_seconds(pid) for pid in pids], machine_seconds(), time.monotonic()
        said = line(load)
        own = [cpu_seconds(pid) - was for pid, was in zip(pids, before, strict=True)]
        passed = (time.monotonic() - began) * (os.cpu_count() or 1)
        others = min(max(machine_seconds() - machine - sum(own), 0.0) / passed, 1.0)
        return Figure(own[0], said["frames"], memory(parts.proxy, "VmHWM"), said["p50"], said["p99"], round(others, 3))


def memory_per_idle_connection(proxy: list[str], case: str, count: int) -> float:
    """Bytes that `proxy` takes for a connection that had one answer and is silent then."""
    with in_front(proxy, [case]) as parts:
        before = memory(parts.proxy, "VmRSS")
        with silent(parts.listen, case, count):
            return (memory(parts.proxy, "VmRSS") - before) / count


@contextmanager
def in_front(proxy: list[str], cases: list[str]) -> Iterator[Parts]:
    """A proxy before a sink that answers as these cases want it."""
    cpus = sorted(os.sched_getaffinity(0))
    listen, upstream, admin = free_ports(3)
    command = [part.format(listen=listen, upstream=upstream, admin=admin) for part in proxy]
    with sink_at(upstream, cases, cpus[-1:]) as sink, running(command, cpus[:1], listen) as pid:
        yield Parts(pid, sink, listen, admin)


@contextmanager
def sink_at(port: int, cases: list[str], cpus: Sequence[int]) -> Iterator[int]:
    """A sink for these cases on some processors: its pid."""
    with tempfile.TemporaryDirectory() as folder:
        write_responses(Path(folder), cases, port)
        with running([program("sink"), str(port), folder], cpus, port) as pid:
            yield pid


@contextmanager
def loading(listen: int, case: str, seconds: float, connections: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """The load of a case, from when it starts. `line` has its figures."""
    chosen = CASES[case]
    with tempfile.NamedTemporaryFile() as request:
        request.write(chosen.request())
        request.flush()
        numbers = len(chosen.answer()), connections or chosen.connections, chosen.depth if seconds else 1, chosen.rate or 0, seconds
        command = [program("load"), str(listen), request.name, *map(str, numbers), *map(str, chosen.producer_offsets())]
        with started(command) as load:
            yield load


@contextmanager
def silent(listen: int, case: str, connections: int) -> Iterator[None]:
    """Connections that are silent after one answer each, from when all are."""
    with loading(listen, case, 0, connections) as load:
        line(load)
        yield


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A load, from when it says "start". It ends with the block, if it is not over before."""
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
def running(command: list[str], cpus: Sequence[int], port: int) -> Iterator[int]:
    """A process on these processors, from when it listens at `port`."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(process.pid, cpus)
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
    """CPU time of a process: of all its threads, those that have ended too."""
    return time.clock_gettime((~pid << 3) | SCHEDULED)


def machine_seconds() -> float:
    """CPU time of all programs, with what the host of a virtual machine gave to others. Without the kernel's work for network
    packets that is in no program's time: the bench causes most of it."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _iowait, _irq, _softirq, stolen = map(int, file.readline().split()[1:9])
    return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")


def hop_ns() -> int:
    """Nanoseconds in which a cache line goes from the proxy's processor to the other and back; 0 if there is only one."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        return 0
    found = subprocess.run([program("hop"), str(cpus[0]), str(cpus[-1])], capture_output=True, text=True, check=True)
    return int(found.stdout)


def memory(pid: int, field: str) -> int:
    """Of /proc/PID/status, in bytes: VmRSS is what it has now, VmHWM the most it ever had."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(row.split()[1]) for row in file if row.startswith(field)) * 1024
