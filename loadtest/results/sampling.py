"""Sampling CPU and memory of processes beside the load, once a second. In: pids and cgroups. Out: `Watched`, `DriverProcess`.

A pid stands for its process tree, children that come and go included. Memory is resident memory, summed, so memory that processes
share counts once for each. A cgroup (version 2) is read from the kernel's own sums. Sampling runs in a thread of the process that
starts the drivers, never in one that makes load, and gives way to all else: it looks at every process of the machine, for tens of
milliseconds, which would be the highest latencies of each second where the load has all cores. If a watched process ends, that is a
warning, not an error: a rolling restart ends processes.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final, Protocol

import psutil

from loadtest.results.model import DriverProcess, Watched

INTERVAL_S: Final = 1.0
BUSY: Final = 0.9
"""Share of a core above which one thread is the limit: the driver is then what is measured."""
LONGEST: Final = 2 * 86_400
"""Number of readings that are kept of a target: two days."""
NICE: Final = 10
"""More than others have, of the thread that samples, where threads can have one of their own."""
IDLE: Final = 0.05
"""Share of all CPUs that has to be idle."""


class WatchError(Exception):
    """What `--watch` names cannot be watched."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a target had used until one point in time."""

    at: float
    """Seconds since 1970."""
    cpu_s: float
    memory: int = 0
    """Bytes, now."""
    threads: Mapping[tuple[int, int], float] = field(default_factory=dict)
    """CPU seconds of each thread by (pid, thread id), where asked for."""


class Target(Protocol):
    """Something to sample."""

    def read(self, at: float) -> Reading | None:
        """None if it does not exist (any more)."""


class Tree:
    """A process and its descendants. What ended processes had used stays counted."""

    def __init__(self, pid: int, *, threads: bool = False) -> None:
        self._pid, self._threads = pid, threads
        self._used: dict[tuple[int, float], float] = {}

    def read(self, at: float) -> Reading | None:
        try:
            root = psutil.Process(self._pid)
            processes = [root, *root.children(recursive=True)]
        except psutil.Error:
            return None
        memory, threads = 0, dict[tuple[int, int], float]()
        for process in processes:
            try:
                with process.oneshot():
                    cpu = process.cpu_times()
                    self._used[process.pid, process.create_time()] = cpu.user + cpu.system
                    memory += process.memory_info().rss
                    if self._threads:
                        threads |= {(process.pid, one.id): one.user_time + one.system_time for one in process.threads()}
            except psutil.Error:  # it ended meanwhile
                continue
        return Reading(at, sum(self._used.values()), memory, threads)


class Cgroup:
    """A control group, version 2, by its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, at: float) -> Reading | None:
        try:
            used = dict(row.split() for row in (self._folder / "cpu.stat").read_text().splitlines())["usage_usec"]
            memory = (self._folder / "memory.current").read_text()
            return Reading(at, int(used) / 1e6, int(memory))
        except (OSError, KeyError, ValueError):
            return None


class Host:
    """All CPUs of this machine: `cpu_s` is the time that was not idle, summed over the CPUs."""

    def read(self, at: float) -> Reading | None:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        return Reading(at, sum(times[:8]) - idle)  # user … steal: guest times are in user already


def watch(text: str) -> tuple[str, Target]:
    """Parse `--watch NAME=PID` or `NAME=FOLDER` (a cgroup): (name, target). Raises WatchError, in one line."""
    name, equals, what = text.partition("=")
    if not (name and equals and what):
        raise WatchError(f"--watch {text}: must be NAME=PID, or NAME=FOLDER of a cgroup, for example proxy=4711")
    target: Target
    if what.isascii() and what.isdigit():
        target, wrong = Tree(int(what)), f"there is no process {what} that can be read"
    else:
        target, wrong = Cgroup(Path(what)), "not a folder of a cgroup (version 2) with cpu.stat and memory.current"
    if target.read(0.0) is None:
        raise WatchError(f"--watch {text}: {wrong}")
    return name, target


class Sampler:
    """Reads targets once a second until it is closed. It keeps readings of two days at most."""

    def __init__(self, targets: Mapping[str, Target]) -> None:
        self._targets = dict(targets)
        self._readings: dict[str, list[Reading]] = {name: [] for name in self._targets}
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def add(self, name: str, target: Target) -> None:
        """Read another target from now on, such as a driver that was just started."""
        with self._lock:
            self._targets[name], self._readings[name] = target, []

    def readings(self, name: str) -> list[Reading]:
        """All readings of one target until now, and one taken now."""
        with self._lock:
            now = self._targets[name].read(time.time())
            return [*self._readings[name], *([now] if now else [])]

    def _run(self) -> None:
        with suppress(OSError):  # other systems than Linux have no thread of this number
            own = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + NICE)
        while True:
            self._read_all()
            # On the second, so that a long run has one reading for each.
            if self._over.wait(INTERVAL_S - time.time() % INTERVAL_S):
                return

    def _read_all(self) -> None:
        with self._lock:
            for name, target in self._targets.items():
                reading = target.read(time.time())
                if reading is not None and len(self._readings[name]) < LONGEST:
                    self._readings[name].append(reading)


def watched(name: str, readings: Sequence[Reading], start: float, end: float) -> Watched:
    """What was used from `start` to `end` (seconds since 1970); the lists have all readings."""
    during = _during(readings, start, end)
    shares = [share for _, share in _shares(during)]
    first = int(readings[0].at) if readings else 0
    cpu, memory = by_second(readings, first)
    sizes = [reading.memory for reading in during or readings[-1:]]
    return Watched(
        name=name,
        cpu_s=max(_used_at(readings, end) - _used_at(readings, start), 0.0) if readings else 0.0,
        cpu_max=max(shares, default=0.0),
        memory_bytes=int(median(sizes)) if sizes else 0,
        memory_max_bytes=max(sizes, default=0),
        lost=not readings or readings[-1].at < end - 3 * INTERVAL_S,
        first=first,
        cpu=cpu,
        memory=memory,
    )


def by_second(readings: Sequence[Reading], first: int) -> tuple[list[float], list[int]]:
    """(cores, bytes) in each second from `first` on; 0 for a second without a reading. A reading is about the second before it."""
    cpu, memory = list[float](), list[int]()
    for before, after in pairwise(readings):
        place, seconds = round(after.at) - 1 - first, after.at - before.at
        if place < 0 or seconds < INTERVAL_S / 2:
            continue
        missing = place + 1 - len(cpu)
        cpu += [0.0] * missing
        memory += [0] * missing
        cpu[place] = round(max(after.cpu_s - before.cpu_s, 0.0) / seconds, 4)
        memory[place] = after.memory
    return cpu, memory


def driver(name: str, pid: int, readings: Sequence[Reading], start: float, end: float) -> DriverProcess:
    """How busy the process of a driver was while load ran and warm-up was over."""
    during = _during(readings, start, end)
    busiest = [
        (after.at - before.at, max((used - before.threads.get(key, 0.0) for key, used in after.threads.items()), default=0.0))
        for before, after in pairwise(during)
        if after.at - before.at >= INTERVAL_S / 2  # shorter ones are not precise: the kernel counts in steps of 10 ms
    ]
    found = watched(name, readings, start, end)
    return DriverProcess(
        name=name,
        pid=pid,
        cpu_s=found.cpu_s,
        cpu_max=found.cpu_max,
        thread_max=max((used / seconds for seconds, used in busiest), default=0.0),
        saturated_s=sum(seconds for seconds, used in busiest if used / seconds > BUSY),
    )


def busy_s(readings: Sequence[Reading], cpus: int, start: float, end: float) -> float:
    """Seconds in which the machine (`Host`) had almost no idle CPU."""
    return sum(seconds for seconds, share in _shares(_during(readings, start, end)) if share > cpus * (1 - IDLE))


def _used_at(readings: Sequence[Reading], at: float) -> float:
    """CPU seconds used until `at`, interpolated between readings, as a short phase does not begin and end on a second."""
    later = bisect_left(readings, at, key=lambda reading: reading.at)
    if later == 0:
        return readings[0].cpu_s
    if later == len(readings):
        return readings[-1].cpu_s
    before, after = readings[later - 1], readings[later]
    return before.cpu_s + (after.cpu_s - before.cpu_s) * (at - before.at) / (after.at - before.at)


def _during(readings: Sequence[Reading], start: float, end: float) -> list[Reading]:
    return [reading for reading in readings if start <= reading.at <= end]


def _shares(readings: Sequence[Reading]) -> list[tuple[float, float]]:
    """(seconds, cores used) between one reading and the next."""
    pairs = ((before, after, after.at - before.at) for before, after in pairwise(readings))
    return [
        (seconds, max(after.cpu_s - before.cpu_s, 0.0) / seconds) for before, after, seconds in pairs if seconds >= INTERVAL_S / 2
    ]
