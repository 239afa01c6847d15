"""A proxy of its own before a real broker, for one measurement. In: a folder, settings. Out: its address and its figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

METRICS: Final = "kafka_quota_proxy_"
START_LIMIT: Final = 30.0


class ProxyBefore:
    """`python -m proxy serve` before a broker, with these settings besides addresses, as a context manager."""

    def __init__(self, folder: Path, upstream: str, settings: Mapping[str, Any]) -> None:
        self._log = folder / "operations.jsonl"
        self._settings = folder / "settings.yaml"
        data = {
            **settings,
            "upstream": {"bootstrap_servers": [upstream], **settings.get("upstream", {})},
            "listen": {"bootstrap": "127.0.0.1:0"},
            "admin": {"listen": "127.0.0.1:0"},
            "logs": {"usage": {"path": str(folder / "usage")}},
        }
        self._settings.write_text(json.dumps(data))  # JSON is YAML

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(self._settings)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log)
        self.pid = self._process.pid
        try:
            wait(lambda: self._started() or self._process.poll() is not None, START_LIMIT)
            started = self._started()
            if started is None:
                raise SystemExit("the proxy did not start")
            self.bootstrap, self._admin = started["bootstrap"], started["admin"]
            self.listeners: dict[str, str] = started["listeners"]
            wait(lambda: self.figures().get("upstream_up") == 1, START_LIMIT)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def figures(self) -> dict[str, float]:
        """/metrics, without the prefix."""
        with urllib.request.urlopen(f"http://{self._admin}/metrics", timeout=10) as answer:
            rows = [row.decode().rsplit(" ", 1) for row in answer.read().splitlines() if row.startswith(METRICS.encode())]
        return {name.removeprefix(METRICS): float(value) for name, value in rows}

    def limits(self) -> dict[str, int]:
        """How often each limit bit, by its setting."""
        found = {name: round(value) for name, value in self.figures().items() if name.startswith("limit_hits_total{")}
        return {name.split('"')[1]: count for name, count in found.items() if count}

    def _started(self) -> dict[str, Any] | None:
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if '"started"' in line]
        return lines[0] if lines else None

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:  # an attack may keep it from noticing
            self._process.kill()
            self._process.wait()


def wait(condition: Callable[[], object], limit: float) -> None:
    """Until it is so, `limit` seconds at most."""
    deadline = time.monotonic() + limit
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.1)
