"""A proxy in front of a cluster. In: where the cluster is, a settings file. Out: the proxy's addresses, its figures, its log.

It runs as a user's own does, `python -m proxy serve`, and does not outlive this process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from localkafka.guard import Guard

METRICS: Final = "kafka_quota_proxy_"
START_LIMIT: Final = 90.0
STOP_LIMIT: Final = 40.0
"""Seconds; the proxy's own limit is 20."""
TAIL_LINES: Final = 15


class ProxyError(RuntimeError):
    """The proxy did not start, or ended by itself; the message says how its log ended."""


class LocalProxy:
    """`python -m proxy serve` with a settings file and further arguments, as a context manager. What it prints goes to `log`."""

    def __init__(self, config: Path, log: Path, arguments: Sequence[str] = ()) -> None:
        self.log = log
        self._command = [sys.executable, "-m", "proxy", "serve", "--config", str(config), *arguments]

    def __enter__(self) -> Self:
        self._guard = Guard()
        try:
            with self.log.open("wb") as log:
                self._process = self._guard.popen(self._command, stdout=log, stderr=subprocess.STDOUT)
            self.pid = self._process.pid
            wait(lambda: self._started() or self._process.poll() is not None, START_LIMIT)
            started = self._started()
            if started is None:
                raise ProxyError(f"the proxy did not start; the end of its log:\n{self._tail()}")
            self.bootstrap, self.admin = str(started["bootstrap"]), str(started["admin"])
            self.listeners: dict[str, str] = started["listeners"]
            wait(lambda: self.figures().get("upstream_up") == 1, START_LIMIT)
        except BaseException:
            self._guard.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None:
            self.stop()
        self._guard.close()

    def check(self) -> None:
        """Raises ProxyError when it has ended."""
        if self._process.poll() is not None:
            raise ProxyError(f"the proxy ended; the end of its log:\n{self._tail()}")

    def stop(self) -> None:
        """As an operator would, so that its usage log is complete. Stopping twice is allowed."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:  # an attack may keep it from noticing
            self._process.kill()
            self._process.wait()
        self._guard.forget(self._process)

    def figures(self) -> dict[str, float]:
        """/metrics, without the prefix."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=10) as answer:
            rows = [row.decode().rsplit(" ", 1) for row in answer.read().splitlines() if row.startswith(METRICS.encode())]
        return {name.removeprefix(METRICS): float(value) for name, value in rows}

    def limits(self) -> dict[str, int]:
        """How often each limit was enforced, by its setting."""
        found = {name: round(value) for name, value in self.figures().items() if name.startswith("limit_hits_total{")}
        return {name.split('"')[1]: count for name, count in found.items() if count}

    def _started(self) -> dict[str, Any] | None:
        """What the proxy's line about its start says."""
        for line in self.log.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n") and '"started"' in line:
                found: dict[str, Any] = json.loads(line)
                return found
        return None

    def _tail(self) -> str:
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            return "\n".join(f"  {line.rstrip()}" for line in deque(lines, TAIL_LINES)) or "  (nothing)"


def proxy_before(folder: Path, upstream: str, settings: Mapping[str, Any]) -> LocalProxy:
    """A proxy for one measurement, with these settings besides addresses; its files go to `folder`."""
    data = {
        **settings,
        "upstream": {"bootstrap_servers": upstream.split(","), **settings.get("upstream", {})},
        "listen": {"bootstrap": "127.0.0.1:0"},
        "admin": {"listen": "127.0.0.1:0"},
        "logs": {"usage": {"path": str(folder / "usage")}},
    }
    config = folder / "settings.yaml"
    config.write_text(json.dumps(data))  # JSON is YAML
    return LocalProxy(config, folder / "operations.jsonl")


def wait(condition: Callable[[], object], limit: float) -> None:
    """Until it is so, `limit` seconds at most."""
    deadline = time.monotonic() + limit
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
