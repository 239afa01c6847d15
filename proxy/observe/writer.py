"""The thread that writes the usage log, so that the event loop never waits for a disk.

In: lines, through a queue with a bound, of which what single principals caused takes half at most, each its share
(`quota.fair_share`), so that one principal cannot cause the lines of all others to be dropped. Out: the same lines to every place
of the log: a folder, with files `usage-<proxy>-<boot>-<number>.jsonl`, rotated by size and by age; a topic (`net.log_topic`). When
the queue is full, lines are dropped and counted, and the next that gets through is preceded by a `gap` line. When a place refuses,
lines are lost there, counted the same way, and the next are tried again; a line that cannot be written as JSON is lost everywhere,
and no other is. A `gap` line goes to all places, and says in each what was lost there. Whatever fails, the thread goes on."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final, NamedTuple, Protocol

import orjson

from proxy.observe.lines import Author, Line
from quota.fair_share import FairShare

Clock = Callable[[], float]
Complain = Callable[[str, str], None]
"""(place, reason): called from the thread when a place refuses, once until it works again, and once if a line is no JSON."""
EVERYWHERE: Final = "all places"


class Losses:
    """The lines that did not get to one place. Any thread may add to them."""

    def __init__(self) -> None:
        self.lines = 0
        """All since the start, gap lines aside."""
        self._untold = 0
        self._lock = threading.Lock()

    def add(self, lines: int, *, untold: int = 0) -> None:
        """Count lost lines. `untold`: lines that a lost gap line had reported, and that gap line itself."""
        with self._lock:
            self.lines += lines
            self._untold += lines + untold

    def tell(self) -> int:
        """The number of lost lines that no gap line has reported yet; they count as reported from now on."""
        with self._lock:
            untold, self._untold = self._untold, 0
        return untold


class LogDestination(Protocol):
    """Where lines go to."""

    losses: Losses

    @property
    def name(self) -> str:
        """Its name in log lines."""

    @property
    def ready(self) -> bool:
        """Whether a gap line would get there: each that does not is another number that is missing."""

    def write(self, lines: list[bytes]) -> None:
        """Lines without their ends, in the log's order; OSError when they are lost here."""

    def close(self) -> None: ...


class Gap(NamedTuple):
    """A gap line, and what it is to say in each place."""

    line: Line
    lost: tuple[int, ...]


class LogWriter:
    """One usage log. `wall` gives the time as ISO 8601."""

    def __init__(
        self, places: Sequence[LogDestination], author: Author, *, queue_lines: int, wall: Callable[[], str], complain: Complain
    ) -> None:
        self._places, self._author = places, author
        self._queue_lines = queue_lines
        self._wall, self._complain = wall, complain
        self._queue: queue.SimpleQueue[tuple[Gap | None, Sequence[Line], str | None] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._shares = FairShare(max(queue_lines // 2, 1))
        self._lock = threading.Lock()
        self._refused: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="usage-log", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Lines in the queue."""
        return self._waiting

    @property
    def dropped(self) -> int:
        """Lines that were lost since the start, in each place."""
        return sum(place.losses.lines for place in self._places)

    def put(self, lines: Sequence[Line], principal: str | None = None) -> None:
        """Hand lines over; never waits. `principal`: who caused them, where it was one."""
        if not lines:
            return
        with self._lock:
            full = self._waiting + len(lines) > self._queue_lines
            if not full and principal is not None:
                full = not self._shares.take(principal, len(lines))
            if not full:
                self._waiting += len(lines)
        if full:
            for place in self._places:
                place.losses.add(len(lines))
        else:
            self._queue.put((self._gap([place.ready for place in self._places]), lines, principal))

    def stop(self, timeout: float) -> None:
        """Write what is waiting, for `timeout` seconds at most."""
        self._queue.put((self._gap([True for _ in self._places]), (), None))
        self._queue.put(None)
        self._thread.join(timeout)

    def _gap(self, ready: Sequence[bool]) -> Gap | None:
        lost = tuple(place.losses.tell() if now else 0 for place, now in zip(self._places, ready, strict=True))
        return Gap(self._author.line("gap", at=self._wall(), lines=0), lost) if any(lost) else None

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            gap, lines, principal = batch
            try:
                self._write(gap, lines)
            except Exception as e:  # the next lines may be better
                self._refuse(EVERYWHERE, e)
            with self._lock:
                self._waiting -= len(lines)
                if principal is not None:
                    self._shares.give_back(principal, len(lines))
        for place in self._places:
            with contextlib.suppress(Exception):
                place.close()

    def _write(self, gap: Gap | None, lines: Sequence[Line]) -> None:
        written = self._serialized(lines)
        for i, place in enumerate(self._places):
            before = [] if gap is None else [orjson.dumps(gap.line | {"lines": gap.lost[i]})]
            if not (before or written):
                continue
            try:
                place.write(before + written)
            except Exception as e:
                place.losses.add(len(written), untold=0 if gap is None else 1 + gap.lost[i])
                self._refuse(place.name, e)
            else:
                self._refused.discard(place.name)

    def _serialized(self, lines: Sequence[Line]) -> list[bytes]:
        """As JSON, without those that have no such form: they are lost."""
        written = []
        for line in lines:
            try:
                written.append(orjson.dumps(line))
            except Exception as e:
                self._refuse(EVERYWHERE, ValueError(f"a line of type {line.get('type')} cannot be written as JSON: {e}"))
        if len(written) < len(lines):
            for place in self._places:
                place.losses.add(len(lines) - len(written))
        return written

    def _refuse(self, place: str, error: Exception) -> None:
        """Say why lines are lost, once."""
        if place not in self._refused:
            self._refused.add(place)
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error) or type(error).__name__
            with contextlib.suppress(Exception):
                self._complain(place, reason)


class Folder:
    """The folder of the log. `clock` gives monotonic seconds."""

    def __init__(self, path: Path, author: Author, *, rotate_size: int, rotate_interval: float, clock: Clock) -> None:
        self._path, self._author, self._clock = path, author, clock
        self._rotate_size, self._rotate_interval = rotate_size, rotate_interval
        self.losses = Losses()
        self._file: int | None = None
        self._number = self._size = 0
        self._opened_at = 0.0
        self._cut = False

    ready = True

    @property
    def name(self) -> str:
        return str(self._path)

    def make(self) -> None:
        """Make the folder; OSError when it cannot be made, or no file in it."""
        self._path.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=self._path):
            pass

    def write(self, lines: list[bytes]) -> None:
        self._rotate()
        assert self._file is not None
        self._write_all(self._file, b"\n".join([*lines, b""]))

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
        self.close()
        path = self._path / f"usage-{self._author.proxy}-{self._author.boot}-{self._number + 1:06}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._number += 1
        self._size, self._opened_at, self._cut = 0, now, False

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
