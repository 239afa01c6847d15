"""Measures the CPU seconds that each test file takes: `make test PYTEST_ARGS=--cpu`. In: the tests of a run. Out: a table by
folder, and of the files and tests that cost most, at the end of the run. With several workers also: how long what is run as one
took, and for how long each worker had nothing to do at the end. That is what `SECONDS` in `tests/parallel.py` is made of.

Counted are user and system time of pytest and of all processes below it: brokers, Spark, proxies. A fixture is counted with the
test that starts or stops it; what a shared cluster does in the background, with the test that runs at that time. CPU seconds can be
compared when other programs use the machine; durations cannot.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import pytest

from tests.parallel import unit_of

PROPERTY = "cpu_seconds"
SHOWN = 60
"""Rows of a table at most."""


MOST = 1 << 16
"""Bytes of a file that are read: the kernel's are shorter."""
TICK = os.sysconf("SC_CLK_TCK")
"""of which a second has so many"""


def used(pid: int | None = None) -> float:
    """CPU seconds of a process (this one) and all below it, those that have ended included. 0 if it has ended itself."""
    own, children = os.getpid() if pid is None else pid, list[str]()
    # What stands behind the name, which may have spaces: user and system time, and those of children that were waited for.
    times = _read(f"/proc/{own}/stat").rpartition(")")[2].split()[11:15]
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{own}/task"):
            children += _read(f"/proc/{own}/task/{thread}/children").split()
    return sum(map(int, times)) / TICK + sum(used(int(child)) for child in children)


def _read(path: str) -> str:
    """Empty where the process or the thread has ended. Without `Path`: it would be half of what measuring takes."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(file, MOST).decode()
    except OSError:
        return ""
    finally:
        os.close(file)


class CpuReport:
    """A plugin of pytest. With pytest-xdist, workers measure and the controller reports."""

    def __init__(self) -> None:
        self._begin = 0.0
        self.files: defaultdict[str, float] = defaultdict(float)
        self.tests: defaultdict[str, float] = defaultdict(float)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        """unit → how long it took"""
        self.last: dict[str, tuple[float, str]] = {}
        """worker → when its last test ended, and of which unit"""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        """Of workers only: the controller would look at all processes for each of their tests."""
        self._begin = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report: Any = yield
        if call.when == "teardown":
            report.user_properties.append((PROPERTY, used() - self._begin))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, float):
                self.files[report.nodeid.split("::")[0]] += value
                self.tests[report.nodeid] += value
        if (worker := getattr(report, "worker_id", None)) is not None:
            unit = unit_of(report.nodeid)
            self.seconds[unit] += report.duration
            self.last[worker] = report.stop, unit

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folders: defaultdict[str, float] = defaultdict(float)
        for file, seconds in self.files.items():
            folders[str(PurePath(file).parent)] += seconds
        terminalreporter.section(f"CPU seconds: {sum(self.files.values()):.0f}")
        for table in (folders, self.files, self.tests):
            for name, seconds in sorted(table.items(), key=lambda row: -row[1])[:SHOWN]:
                terminalreporter.write_line(f"{seconds:8.1f}  {name}")
            terminalreporter.write_line("")
        if self.seconds:
            terminalreporter.section("seconds")
        for unit, seconds in sorted(self.seconds.items(), key=lambda row: -row[1])[:SHOWN]:
            terminalreporter.write_line(f"{seconds:8.1f}  {unit}")
        end = max((stop for stop, _ in self.last.values()), default=0.0)
        for worker, (stop, unit) in sorted(self.last.items()):
            terminalreporter.write_line(f"{worker} had nothing to do for the last {end - stop:.0f} s, after {unit}")
