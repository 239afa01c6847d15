"""Starts a proxy in front of a cluster, as `python -m proxy serve` does. The proxy does not outlive this process.

In: where the cluster is, a settings file. Out: the proxy's addresses, its metrics, its log."""

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
from typing import Any, Final, Self

from localkafka.guard import Guard

METRICS_PREFIX: Final = "kafka_quota_proxy_"
START_LIMIT: Final = 90.0
STOP_LIMIT: Final = 40.0
"""Seconds; the proxy's own limit is 20."""
TAIL_LINES: Final = 15


class ProxyError(RuntimeError):
    """The proxy did not start, or ended by itself. The message has the end of its log."""


def serve_command(*arguments: str) -> list[str]:
    """The command line of a proxy with these arguments."""
    return [sys.executable, "-m", "proxy", "serve", *arguments]


def metrics_of(admin: str) -> dict[str, float]:
    """The metrics of the proxy with this admin listener, without the prefix of their names."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as answer:
        rows = [row.decode().rsplit(" ", 1) for row in answer.read().splitlines() if row.startswith(METRICS_PREFIX.encode())]
    return {name.removeprefix(METRICS_PREFIX): float(value) for name, value in rows}


class LocalProxy:
    """`python -m proxy serve` with a settings file and further arguments, as a context manager. What it prints goes to `log`."""

    def __init__(self, config: Path, log: Path, arguments: Sequence[str] = ()) -> None:
        self.log = log
        self._command = serve_command("--config", str(config), *arguments)

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
            wait(lambda: self.metrics().get("upstream_up") == 1, START_LIMIT)
        except BaseException:
            self._guard.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.stop()
        self._guard.close()

    def check(self) -> None:
        """Raises ProxyError when the proxy has ended."""
        if self._process.poll() is not None:
            raise ProxyError(f"the proxy ended; the end of its log:\n{self._tail()}")

    def stop(self) -> None:
        """Stop the proxy with SIGTERM, so that its usage log is complete. Stopping twice is allowed."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:  # under an attack it may not react to the signal
            self._process.kill()
            self._process.wait()
        self._guard.forget(self._process)

    def metrics(self) -> dict[str, float]:
        """Its metrics, without the prefix of their names."""
        return metrics_of(self.admin)

    def limits(self) -> dict[str, int]:
        """How often each limit was enforced, by its setting."""
        hits = {name: round(value) for name, value in self.metrics().items() if name.startswith("limit_hits_total{")}
        return {name.split('"')[1]: count for name, count in hits.items() if count}

    def _started(self) -> dict[str, Any] | None:
        """The event "started" of the proxy's log; None while it is not written."""
        lines = self.log.read_text(encoding="utf-8").splitlines(keepends=True)
        return next((json.loads(line) for line in lines if line.endswith("\n") and '"started"' in line), None)

    def _tail(self) -> str:
        with self.log.open(encoding="utf-8", errors="replace") as lines:
            return "\n".join(f"  {line.rstrip()}" for line in deque(lines, TAIL_LINES)) or "  (nothing)"


def proxy_with(settings: Mapping[str, Any], upstream: str, folder: Path) -> LocalProxy:
    """A proxy with these settings and free ports, for one measurement. Its files are written to `folder`."""
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
    """Return when the condition is true, or after `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
