"""What brings the usage log to standard output (files/ship.py), on files as a proxy writes them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.observe.lines import Author
from proxy.observe.writer import Folder, LogWriter
from tests.chart.helm import CHART
from tests.real.proxies import wait_until


class Shipper:
    """The process, and the lines that it wrote."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", (CHART / "files" / "ship.py").read_text(), str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def stop(self) -> int:
        self.process.terminate()
        code = self.process.wait(90)
        self._reader.join(20)
        return code


@pytest.fixture
def shipper(tmp_path: Path) -> Iterator[Shipper]:
    started = Shipper(tmp_path / "usage")
    yield started
    started.process.kill()
    started.process.communicate()


def writer(folder: Path, boot: str, now: list[float]) -> tuple[Author, LogWriter]:
    """What writes the log of a proxy; a file ends when the clock has gone on by ten seconds."""
    author = Author("proxy-a", boot)
    place = Folder(folder, author, rotate_size=1 << 20, rotate_interval=10.0, clock=lambda: now[0])
    place.make()
    made = LogWriter(
        [place],
        author,
        queue_lines=1000,
        wall=lambda: "2026-01-01T00:00:00.000Z",
        complain=lambda where, why: pytest.fail(f"{where}: {why}"),
    )
    made.start()
    return author, made


def test_every_line_once_in_order_and_old_files_go(shipper: Shipper, tmp_path: Path) -> None:
    folder, now, sent = tmp_path / "usage", [0.0], 0
    for boot in ("0" * 16, "1" * 16):
        author, log = writer(folder, boot, now)
        for _ in range(3):
            log.put([author.line("usage", number=number) for number in range(sent, sent + 100)])
            sent += 100
            wait_until(lambda sent=sent: len(shipper.lines) == sent, "the lines to be out")
            now[0] += 11
        log.stop(10)
    wait_until(lambda: len(list(folder.iterdir())) == 1, "old files to go")
    assert [json.loads(line)["number"] for line in shipper.lines] == list(range(sent))
    assert shipper.process.poll() is None


def test_the_last_lines_are_out_when_it_is_told_to_end(shipper: Shipper, tmp_path: Path) -> None:
    file = tmp_path / "usage" / "usage-a-0-000001.jsonl"
    file.parent.mkdir()
    file.write_text("1\n")
    wait_until(lambda: shipper.lines == ["1"], "the first line")
    with file.open("a") as more:
        more.write('2\n3\n{"cut')
    assert shipper.stop() == 0
    assert shipper.lines == ["1", "2", "3"]
