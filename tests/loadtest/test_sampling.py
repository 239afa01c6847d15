"""CPU and memory of processes beside the load: real processes, and readings with made figures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from loadtest.results.sampling import (
    NICE,
    Cgroup,
    Host,
    Reading,
    Sampler,
    Tree,
    WatchError,
    busy_s,
    by_second,
    driver,
    watch,
    watched,
)

CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'x = bytearray(64 << 20)\\nwhile True: pass'])"


def test_children_and_their_memory_count() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], start_new_session=True) as process:
        try:
            target = Tree(process.pid, threads=True)
            deadline = time.monotonic() + 90
            while time.monotonic() < deadline:
                reading = target.read(0.0)
                assert reading is not None
                if reading.cpu_s > 0.3 and reading.memory > 64 << 20:
                    break
                time.sleep(0.05)
            assert reading.cpu_s > 0.3
            assert reading.memory > 64 << 20
            assert len({pid for pid, _ in reading.threads}) == 2
        finally:
            os.killpg(process.pid, 9)
    assert target.read(0.0) is None


def test_the_sampler_reads_until_it_is_closed() -> None:
    with Sampler({"me": Tree(os.getpid())}) as sampler:
        sampler.add("host", Host())
        assert len(sampler.readings("me")) >= 1
        assert sampler.readings("host")[-1].cpu_s > 0


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_the_sampler_gives_way_to_the_load() -> None:
    found = []

    class Niceness:
        def read(self, at: float) -> Reading:
            found.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return Reading(at, 0.0)

    own = os.getpriority(os.PRIO_PROCESS, 0)
    with Sampler({"niceness": Niceness()}):
        pass
    assert found[0] == min(own + NICE, 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_what_ended_stays_counted() -> None:
    readings = [Reading(100.0 + i, cpu_s=i * 0.5, memory=(i + 1) * 1000) for i in range(11)]
    found = watched("proxy", readings, 102.0, 108.0)
    assert (found.cpu_s, found.cpu_max, found.memory_bytes, found.memory_max_bytes) == (3.0, 0.5, 6000, 9000)
    assert (found.first, found.cpu, found.lost) == (100, [0.5] * 10, False)
    assert watched("proxy", readings, 102.0, 120.0).lost
    short = watched("proxy", readings, 102.25, 102.75)
    assert (short.cpu_s, short.lost, short.memory_bytes) == (pytest.approx(0.25), False, 11_000)
    assert watched("proxy", readings, 90.0, 120.0).cpu_s == 5.0


def test_a_second_without_a_reading_is_nothing() -> None:
    times = [100.0, 101.01, 102.0, 102.2, 103.0, 107.0, 108.0]
    readings = [Reading(at, cpu_s=float(place), memory=place) for place, at in enumerate(times)]
    cpu, memory = by_second(readings, 100)
    assert memory == [1, 2, 4, 0, 0, 0, 5, 6]
    assert [value > 0 for value in cpu] == [True, True, True, False, False, False, True, True]


def test_the_busiest_thread_makes_a_driver_saturated() -> None:
    used = [0.0, 0.5, 1.45, 2.43, 2.5]
    readings = [Reading(10.0 + i, cpu * 1.5, threads={(1, 1): cpu, (1, 2): cpu / 2}) for i, cpu in enumerate(used)]
    found = driver("victim-0", 1, readings, 0.0, 99.0)
    assert found.saturated_s == 2.0
    assert found.thread_max == pytest.approx(0.98)
    assert found.cpu_max == pytest.approx(1.47)


def test_a_machine_without_idle_cpus_is_busy() -> None:
    readings = [Reading(float(i), cpu) for i, cpu in enumerate([0.0, 1.0, 2.95, 4.9, 6.0])]
    assert busy_s(readings, 2, 0.0, 9.0) == 2.0


def test_a_cgroup_is_asked_for_its_own_sums(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nsystem_usec 1\n")
    (tmp_path / "memory.current").write_text("4096\n")
    assert Cgroup(tmp_path).read(5.0) == Reading(5.0, 2.5, 4096)
    name, target = watch(f"broker={tmp_path}")
    assert (name, target.read(1.0)) == ("broker", Reading(1.0, 2.5, 4096))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4711", "must be NAME=PID"),
        ("proxy=", "must be NAME=PID"),
        ("proxy=999999999", "there is no process"),
        ("p=/nowhere", "not a folder"),
    ],
)
def test_what_cannot_be_watched_is_refused(text: str, said: str) -> None:
    with pytest.raises(WatchError, match=said):
        watch(text)
