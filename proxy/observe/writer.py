"""The thread that writes the usage log, so that the event loop never waits for a disk.

In: lines, through a queue with a bound. Out: files `usage-<proxy>-<boot>-<number>.jsonl`, rotated by size and by age.
When the queue is full, lines are dropped and counted, and the next that gets through is preceded by a `gap` line. When
the disk refuses, lines are lost, counted the same way, and the next are tried again."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from proxy.observe.lines import Author, Line

Clock = Callable[[], float]
Complain = Callable[[str, str], None]
"""(file or folder, reason): called from the thread when the disk refuses, once until it works again."""


class LogWriter:
    """One usage log. `clock` gives monotonic seconds, `wall` the time as ISO 8601."""

    def __init__(
        self,
        folder: Path,
        author: Author,
        *,
        rotate_size: int,
        rotate_interval: float,
        queue_lines: int,
        clock: Clock,
        wall: Callable[[], str],
        complain: Complain,
    ) -> None:
        self._folder, self._author = folder, author
        self._rotate_size, self._rotate_interval = rotate_size, rotate_interval
        self._queue_lines = queue_lines
        self._clock, self._wall, self._complain = clock, wall, complain
        self._queue: queue.SimpleQueue[Sequence[Line] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._unreported = 0
        self.dropped = 0
        """Lines that were lost since the start."""
        self._file: int | None = None
        self._number = self._size = 0
        self._opened_at = 0.0
        self._cut = False
        self._refused = False
        self._thread = threading.Thread(target=self._run, name="usage-log", daemon=True)

    def start(self) -> None:
        """Make the folder and begin; OSError when it cannot be made."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Lines in the queue."""
        return self._waiting

    def put(self, lines: Sequence[Line]) -> None:
        """Hand lines over; never waits."""
        if not lines:
            return
        with self._lock:
            if self._waiting + len(lines) > self._queue_lines:
                self._lose(lines)
                return
            gap = [self._gap()] if self._unreported else []
            self._waiting += len(lines) + len(gap)
        self._queue.put([*gap, *lines])

    def stop(self, timeout: float) -> None:
        """Write what is waiting, for `timeout` seconds at most."""
        with self._lock:
            gap = [self._gap()] if self._unreported else []
            self._waiting += len(gap)
        if gap:
            self._queue.put(gap)
        self._queue.put(None)
        self._thread.join(timeout)

    def _gap(self) -> Line:
        lost, self._unreported = self._unreported, 0
        return self._author.line("gap", at=self._wall(), lines=lost)

    def _lose(self, lines: Sequence[Line]) -> None:
        """These lines are lost; a gap line among them takes what it told of along."""
        self.dropped += sum(line["type"] != "gap" for line in lines)
        self._unreported += sum(1 + line["lines"] if line["type"] == "gap" else 1 for line in lines)

    def _run(self) -> None:
        while (lines := self._queue.get()) is not None:
            self._write(lines)
        self._close()

    def _write(self, lines: Sequence[Line]) -> None:
        data = b"".join(orjson.dumps(line) + b"\n" for line in lines)
        try:
            self._rotate()
            assert self._file is not None
            self._write_all(self._file, data)
        except OSError as e:
            with self._lock:
                self._lose(lines)
            if not self._refused:
                self._complain(str(self._folder), e.strerror or str(e))
            self._refused = True
        else:
            self._refused = False
        with self._lock:
            self._waiting -= len(lines)

    def _write_all(self, file: int, data: bytes) -> None:
        if self._cut:  # what could be written of the last lines ends in the middle of one: let it be bad alone
            data = b"\n" + data
        written = os.write(file, data)
        self._cut = written < len(data)
        while self._cut:
            written += os.write(file, memoryview(data)[written:])
            self._cut = written < len(data)
        self._size += written

    def _rotate(self) -> None:
        now = self._clock()
        if self._file is not None and self._size < self._rotate_size and now - self._opened_at < self._rotate_interval:
            return
        self._close()
        path = self._folder / f"usage-{self._author.proxy}-{self._author.boot}-{self._number + 1:06}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._number += 1
        self._size, self._opened_at, self._cut = 0, now, False

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
