"""Measures the CPU seconds that each test file takes: `make test PYTEST_ARGS=--cpu`. In: the tests of a run. Out: a table by
folder, and of the files and tests that cost most, at the end of the run.

Counted are user and system time of pytest and of all processes below it: brokers, Spark, proxies. A fixture is counted with the
test that starts or stops it; what a shared cluster does in the background, with the test that runs at that time. CPU seconds can be
compared when other programs use the machine; durations cannot.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import PurePath
from typing import Any

import psutil
import pytest

PROPERTY = "cpu_seconds"
SHOWN = 60
"""Rows of a table at most."""


def used() -> float:
    """CPU seconds of this process and all below it, those that have ended included."""
    times = os.times()
    seconds = times.user + times.system + times.children_user + times.children_system
    for process in psutil.Process().children(recursive=True):
        try:
            own = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        seconds += own.user + own.system + own.children_user + own.children_system
    return seconds


class CpuReport:
    """A plugin of pytest. With pytest-xdist, workers measure and the controller reports."""

    def __init__(self) -> None:
        self._begin = 0.0
        self.files: defaultdict[str, float] = defaultdict(float)
        self.tests: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
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

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        folders: defaultdict[str, float] = defaultdict(float)
        for file, seconds in self.files.items():
            folders[str(PurePath(file).parent)] += seconds
        terminalreporter.section(f"CPU seconds: {sum(self.files.values()):.0f}")
        for table in (folders, self.files, self.tests):
            for name, seconds in sorted(table.items(), key=lambda row: -row[1])[:SHOWN]:
                terminalreporter.write_line(f"{seconds:8.1f}  {name}")
            terminalreporter.write_line("")
