"""Starts sink, proxy and load, one proxy after the other. In: a case. Out: the proxy's CPU seconds, from /proc, and frames."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

START_LIMIT = 20.0
NANO = 1e-9


@dataclass(frozen=True, slots=True)
class Figure:
    """What one proxy did in one measurement: CPU in seconds, `frames` answered, `peak` memory in bytes."""

    cpu: float
    frames: int
    peak: int

    @property
    def cpu_per_100k(self) -> float:
        """CPU seconds per 100 000 frames."""
        return self.cpu / self.frames * 1e5


def measure(proxy: list[str], case: str, seconds: float) -> Figure:
    """Run `proxy` (arguments with {listen}, {upstream}, {admin}) between the load and the sink."""
    cpus = sorted(os.sched_getaffinity(0))
    listen, upstream, admin = free_ports(3)
    command = [part.format(listen=listen, upstream=upstream, admin=admin) for part in proxy]
    with (
        running([sys.executable, "-m", "loadtest.bench.sink", str(upstream)], cpus[-1], upstream),
        running(command, cpus[0], listen) as pid,
        subprocess.Popen(
            [sys.executable, "-m", "loadtest.bench.load", str(listen), case, str(seconds)], stdout=subprocess.PIPE, text=True
        ) as load,
    ):
        assert load.stdout is not None
        os.sched_setaffinity(load.pid, {cpus[-1]})
        if load.stdout.readline() != "start\n":
            raise SystemExit(f"the load failed on {command}")
        before = cpu_seconds(pid)
        frames = load.stdout.readline()
        after = cpu_seconds(pid)
        if not frames.strip().isdigit() or not int(frames):
            raise SystemExit(f"the load failed on {command}")
        return Figure(after - before, int(frames), peak_memory(pid))


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


def peak_memory(pid: int) -> int:
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) * 1024


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports
