"""Room demo, processes: runs programs and reads what they said.

In: names of modules, arguments. Out: running programs, their events, and the end of their logs when they fail.
Leaves to others: what the programs do. None outlives the demo: they belong to a localkafka.guard.Guard.
"""

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from demo import events
from demo.errors import DemoError
from localkafka.guard import Guard

_TAIL_LINES = 15


class Program:
    """One Python module that runs in a process of its own. Not thread-safe."""

    def __init__(self, guard: Guard, name: str, module: str, *arguments: object, log: Path | None = None) -> None:
        """Start it. What it prints goes to a file of the guard's folder, errors included when `log` names another file."""
        self.name = name
        self.out = log or guard.folder / f"{name.replace(' ', '-')}.jsonl"
        self._errors = self.out if log else self.out.with_suffix(".err")
        command = [sys.executable, "-m", module, *map(str, arguments)]
        with self.out.open("wb") as out, self._errors.open("ab") as errors:
            self._process = guard.popen(command, stdout=out, stderr=errors.fileno())
        self._guard = guard

    @property
    def running(self) -> bool:
        """Whether it lives."""
        return self._process.poll() is None

    def check(self) -> None:
        """Errors: DemoError when it has failed."""
        code = self._process.poll()
        if code:
            raise DemoError(f"{self.name} ended with exit code {code}; the end of what it said:\n{tail(self._errors)}")

    def end(self, limit: float) -> None:
        """SIGTERM, and wait `limit` seconds at most. Errors: DemoError when it does not end, or not well."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            raise DemoError(
                f"{self.name} did not end within {limit:.0f} s of SIGTERM; its last words:\n{tail(self._errors)}"
            ) from None
        self.check()
        self._guard.forget(self._process)

    def kill(self) -> None:
        """SIGKILL, where it still lives."""
        self._process.kill()
        self._process.wait()
        self._guard.forget(self._process)

    def events(self, kind: str) -> Iterator[events.Event]:
        """What it said up to now."""
        return events.read(self.out, kind)


def tail(log: Path) -> str:
    """The last lines of a log."""
    with log.open(encoding="utf-8", errors="replace") as lines:
        return "\n".join(f"  {line.rstrip()}" for line in deque(lines, _TAIL_LINES)) or "  (nothing)"
