"""A log writer whose disk, clock and thread are the test's: lines are written when the test says so."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from proxy.observe.lines import Author
from proxy.observe.writer import Folder, LogDestination, LogWriter


class LogFiles:
    """A writer in a folder. `work` does what its thread would do."""

    def __init__(
        self,
        folder: Path,
        rotate_size: int = 10_000,
        rotate_interval: float = 100.0,
        queue_lines: int = 100,
        others: Sequence[LogDestination] = (),
    ) -> None:
        self.folder = folder
        self.author = Author("edge", "0123456789abcdef")
        self.now = 0.0
        self.complaints: list[str] = []
        self.place = Folder(folder, self.author, rotate_size=rotate_size, rotate_interval=rotate_interval, clock=lambda: self.now)
        self.writer = LogWriter(
            [self.place, *others],
            self.author,
            queue_lines=queue_lines,
            wall=lambda: "2026-01-01T00:00:00.000Z",
            complain=lambda _, reason: self.complaints.append(reason),
        )
        folder.mkdir(exist_ok=True)

    def put(self, lines: int = 1, size: int = 0) -> None:
        self.writer.put([self.author.line("usage", pad="x" * size) for _ in range(lines)])

    def work(self) -> None:
        """What the thread does until the queue is empty."""
        self.writer._queue.put(None)
        self.writer._run()

    @property
    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir())

    def lines(self) -> list[dict[str, Any]]:
        """All lines that can be read, in the order of files."""
        found = []
        for name in self.files:
            for line in (self.folder / name).read_bytes().split(b"\n"):
                try:
                    found.append(json.loads(line))
                except json.JSONDecodeError:
                    continue
        return found


@contextmanager
def full_disk(room: int = 0) -> Iterator[None]:
    """Writes take `room` bytes, then fail as on a full disk."""
    left = room
    real = os.write

    def write(fd: int, data: Any) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(28, "No space left on device")
        taken = min(left, len(data))
        left -= taken
        return real(fd, bytes(data[:taken]))

    with mock.patch("proxy.observe.writer.os.write", write):
        yield
