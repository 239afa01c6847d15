"""The whole demo on a real Kafka, and its end by Ctrl-C.

Every process that it starts inherits its TMPDIR, by which those that are left are found.
"""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from demo import history, plan
from tests.real.proxies import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(720)]


QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""The quick compiler only, for a broker and a Spark that live for seconds."""


HALF_A_SECOND = 5 << 20
"""Bytes that the archive writes in it where nobody slows it down."""
BURST = 50
"""Which the old client uses up by its first request, however long a busy machine takes for it."""
SMALL = f"""
from demo import plan
plan.MUTATIONS_BURST, plan.storm_partitions = {BURST}, lambda _: 150
plan.FLOOD_SECONDS, plan.FAIR_AFTER, plan.SETTLED = 7, 2, 2
from demo.cli import demo
demo()
"""
"""The demo with a third of the partitions and half of the flood, which take a broker most of its time."""


class Demo:
    """A running demo with short phases."""

    def __init__(self, tmp_path: Path, *, small: bool = True) -> None:
        self._temporary = tmp_path / "temporary"
        self._temporary.mkdir()
        self.out = tmp_path / "out"
        program = ["-c", SMALL] if small else ["-m", "proxy", "demo"]
        command = [sys.executable, *program, "--seconds", "5", "--out", str(self.out)]
        environment = {**os.environ, "TMPDIR": str(self._temporary), "COLUMNS": "100", "JAVA_TOOL_OPTIONS": QUICK_JAVA}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.printed = ""

    def read_until(self, text: str) -> None:
        """Read until a line with this text was printed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.printed += line
            if text in line:
                return
        raise AssertionError(f"ended without {text!r}:\n{self.printed}")

    def family(self) -> list[int]:
        """The ids of all processes that have its TMPDIR."""
        mark = f"TMPDIR={self._temporary}\0".encode()
        return [int(folder.name) for folder in Path("/proc").glob("[0-9]*") if mark in _environment(folder)]

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, seconds: float) -> int:
        """Wait for its end; the exit code."""
        self.printed += self._process.communicate(timeout=seconds)[0]
        return self._process.returncode

    def nothing_left(self) -> bool:
        """Whether all of its processes are gone, or go by themselves, and their files."""
        wait_until(lambda: not self.family(), "its processes to end", 30)
        return not list(self._temporary.glob("localkafka-*"))

    def kill(self) -> None:
        """End it, if it still lives; then what it started ends too."""
        self._process.kill()
        self._process.communicate()


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo that has just been started."""
    started = Demo(tmp_path)
    yield started
    started.kill()


def cells(printed: str, label: str) -> list[str]:
    """The cells of a row of the first table."""
    (row,) = re.findall(rf"^ +{label} {{2,}}(.*)$", printed, re.MULTILINE)
    return str(row).split()


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_it_shows_what_the_quota_did_and_leaves_nothing_running(tmp_path: Path, small: bool) -> None:
    demo = Demo(tmp_path, small=small)
    try:
        shows_what_the_quota_did(demo, BURST if small else plan.MUTATIONS_BURST)
    finally:
        demo.kill()


def shows_what_the_quota_did(demo: Demo, burst: int) -> None:
    assert demo.end(700) == 0, demo.printed
    asked, created, refused = (
        [int(cell.replace(",", "").replace("-", "0")) for cell in cells(demo.printed, row)]
        for row in ("partitions asked for", "created", "refused with error 89")
    )
    assert created[:2] == asked[:2], demo.printed  # without a quota
    assert all(min(burst, *created[:2]) <= made <= burst + 200 for made in created[2:]), demo.printed
    assert created[2] < min(created[0], asked[2]), demo.printed  # the rest is refused
    assert refused == [0, 0, asked[2] - created[2], 0], demo.printed
    assert "of them lost" in demo.printed
    assert " 0 of them lost" in demo.printed
    assert "Traceback" not in demo.printed
    page = (demo.out / "report" / "report.html").read_text()
    assert "The two weeks before the demo are generated" in page
    assert "/generated/data-1 will be the first volume to reach its limit" in page
    assert "The topic that grew most on it is archive, produced mostly by User:archive." in page
    assert "The proposed quotas would have held back 1 of 1 owner." in page
    assert (demo.out / "report" / "plots" / "produced-by-principal.png").read_bytes().startswith(b"\x89PNG")
    lines = [json.loads(line) for file in demo.out.glob("logs/*.jsonl") for line in file.read_text().splitlines()]
    decisions = {(line["client_id"], line["action"], line["api_version"]) for line in lines if line["type"] == "decision"}
    assert {("storm-new", "refuse", 7), ("storm-old", "throttle", 4)} <= decisions
    refused = {(line["principal"], line["quota"]) for line in lines if line["type"] == "decision" and line["action"] == "refuse"}
    assert {("User:ci", "controller_mutations"), ("User:clicks", "bytes_in")} <= refused
    held = {line["principal"] for line in lines if line["type"] == "decision" and line["quota"] == "storage"}
    unhindered = written_on_a_full_disk([line for line in lines if line["proxy"] != history.PROXY])
    if held:
        assert held == {"User:archive"}
    else:  # other programs have removed more from this disk than the demo wrote, or it wrote slowly, as these took the machine
        assert "archive was not held back" in demo.printed
        assert unhindered < HALF_A_SECOND, "slowed down, and refused where the machine is quick enough"
    assert not any(principal in {"User:shop", "User:teams"} for principal, _ in refused), "ordinary tenants notice nothing"
    assert not any(client_id.endswith("-unlimited") for client_id, _, _ in decisions)
    assert demo.nothing_left()


def written_on_a_full_disk(lines: list[dict[str, Any]]) -> int:
    """Bytes that the archive wrote in seconds when the disk was past its soft limit from begin to end, and in the second before:
    each look said so, and what was on its way before the first has been answered. Other programs fill and empty this disk too."""
    looks = sorted(
        (datetime.fromisoformat(line["at"]), line["usable_bytes"] <= line["soft_limit_bytes"])
        for line in lines
        if line["type"] == "volume"
    )
    assert looks
    written = 0
    for line in lines:
        if line["type"] == "usage" and line["topic"] == "archive":
            begin, end = datetime.fromisoformat(line["start"]) - timedelta(seconds=1), datetime.fromisoformat(line["end"])
            known = [full for at, full in looks if at <= begin][-1:]
            if known and end < looks[-1][0] and all(known + [full for at, full in looks if begin < at <= end]):
                written += line["record_bytes"]
    return written


@pytest.mark.parametrize(
    ("after", "number", "code"),
    [
        ("What it leaves", signal.SIGINT, 130),
        pytest.param("1 the ordinary clients alone", signal.SIGINT, 130, marks=pytest.mark.nightly),
        ("up in", signal.SIGTERM, 143),
    ],
)
def test_a_signal_ends_all_of_it(demo: Demo, after: str, number: signal.Signals, code: int) -> None:
    demo.read_until(after)
    wait_until(lambda: len(demo.family()) > 1, "a process of what comes next")
    demo.signal(number)
    assert demo.end(90) == code, demo.printed
    assert demo.printed.endswith("stopped; nothing is left running\n")
    assert "Traceback" not in demo.printed
    assert demo.nothing_left()
