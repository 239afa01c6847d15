"""A real proxy process for tests. In: settings. Out: its addresses, its log, its exit code."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from proxy import compiled
from tests.loopback import WORKER, own_host
from tests.real.launcher import ForkedProcess

START_LIMIT = 90.0
SELDOM = 0.2
"""The longest pause between two looks, in seconds."""
RUNNING: list[ProxyProcess] = []
"""The proxies of the moment, whose complaints a failed test shows."""


def put(file: Path, text: str) -> None:
    """Another text for a file that a process may read at any time: it never sees an empty one, or half of one."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


class ProxyProcess:
    """`kafka-quota-proxy serve` on free ports of a loopback address of its own, as a context manager. Ends with SIGTERM, and must
    then exit with 0.

    `program`: another module in place of `proxy`; it then runs as pure Python, so that it can change what it likes.
    `options` of `serve`, besides the settings."""

    def __init__(
        self,
        folder: Path,
        upstream: str,
        settings: dict[str, Any] | None = None,
        *,
        wait_ready: bool = True,
        program: str = "proxy",
        options: Sequence[str] = (),
    ) -> None:
        data: dict[str, Any] = {"logs": {"usage": {"path": str(folder / "logs"), "interval": "1s"}}, **(settings or {})}
        data.setdefault("listen", {"bootstrap": f"{own_host()}:0"})
        data.setdefault("admin", {"listen": "127.0.0.1:0"})
        data.setdefault("upstream", {})["bootstrap_servers"] = upstream.split(",")
        data["upstream"].setdefault("metadata_refresh", "1s")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.logs = folder / "logs"
        self._config = folder / "settings.yaml"
        self._config.write_text(yaml.safe_dump(data))
        self._wait_ready, self._program, self._options = wait_ready, program, options
        self.events: list[dict[str, Any]] = []
        self._begun = b""  # a line that has no end yet
        self._reading = threading.Lock()
        self.stderr = ""

    def __enter__(self) -> Self:
        self.process = self._launch(["serve", "--config", str(self._config), *self._options])
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read_events, self._read_errors)]
        for thread in self._threads:
            thread.start()
        RUNNING.append(self)
        started = self.wait_for("started")
        self.bootstrap = started["bootstrap"]
        self.admin = started["admin"]
        if self._wait_ready:
            wait_until(lambda: self.get("/readyz")[0] == 200, "the proxy to be ready")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        code = self.stop()
        if kind is None:
            assert code == 0, (code, self.stderr)
            assert not self.stderr, self.stderr

    def _launch(self, arguments: list[str]) -> subprocess.Popen[str] | ForkedProcess:
        own = self._program == "proxy"
        if own and "LD_PRELOAD" not in os.environ:  # which takes hold when a process starts, and not when it forks
            return ForkedProcess(arguments)
        command = [sys.executable, "-m", self._program, *arguments]
        env = os.environ if own else os.environ | {compiled.PURE: "1"}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def complaints(self) -> str:
        """Its last warnings and errors, with what went well again."""
        told = [event for event in self.events if event.get("level") != "info" or str(event.get("event", "")).endswith("is up")]
        return "\n".join(json.dumps(event) for event in told[-30:])

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        if self in RUNNING:
            RUNNING.remove(self)
        self.process.terminate()
        try:
            code = self.process.wait(START_LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        for thread, pipe in zip(self._threads, (self.process.stdout, self.process.stderr), strict=True):
            thread.join(5)
            if pipe is not None and not thread.is_alive():
                pipe.close()
        return code

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """The first line of the operations log with this event and these fields."""
        found = wait_until(lambda: next(iter(self.lines(event, **fields)), None) or self._ended(), f"the event {event!r}")
        assert isinstance(found, dict), f"the proxy ended: {self.stderr}"
        return found

    def wait_for_reason(self, event: str, text: str) -> None:
        """A line with this event whose reason has this text. A busy broker may be another reason before."""
        wait_until(lambda: any(text in line["reason"] for line in self.lines(event)), f"the event {event!r} as {text!r}")

    def lines(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """All lines with this event and these fields, of those that the proxy has written up to now."""
        wait_until(self._read_all, "its lines to be read")
        return [line for line in list(self.events) if line["event"] == event and fields.items() <= line.items()]

    def get(self, path: str) -> tuple[int, str]:
        """(status, body) of the admin listener."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def metric(self, name: str, **labels: str) -> float:
        """The first figure of /metrics that has these labels, 0 when there is none."""
        wanted, pairs = "kafka_quota_proxy_" + name, {f'{k}="{v}"' for k, v in labels.items()}
        for line in self.get("/metrics")[1].splitlines():
            series, _, value = line.rpartition(" ")
            found, _, those = series.rstrip("}").partition("{")
            if found == wanted and pairs <= set(those.split(",")):
                return float(value)
        return 0.0

    def figures(self) -> dict[str, float]:
        """/metrics of the proxy's own, with labels as they stand there, without the prefix."""
        rows = [row for row in self.get("/metrics")[1].splitlines() if row.startswith("kafka_quota_proxy_")]
        return {name.removeprefix("kafka_quota_proxy_"): float(value) for name, value in (row.rsplit(" ", 1) for row in rows)}

    def usage(self) -> list[dict[str, Any]]:
        """All lines of the usage log so far. A proxy that runs may be about to write the rest of the last one."""
        return [json.loads(line) for path in sorted(self.logs.glob("*.jsonl")) for line in path.read_bytes().split(b"\n")[:-1]]

    def _ended(self) -> bool:
        return self.process.poll() is not None

    def _read_events(self) -> None:
        assert self.process.stdout is not None
        pipe, data = self.process.stdout.fileno(), b"."
        while data:
            _readable(pipe)
            with self._reading:
                data = os.read(pipe, 1 << 16)
                *whole, self._begun = (self._begun + data).split(b"\n")
                self.events += map(json.loads, whole)

    def _read_all(self) -> bool:
        """Whether nothing waits in the pipe or is read now."""
        reader, pipe = self._threads[0], self.process.stdout
        with self._reading:
            return not reader.is_alive() or pipe is None or not (self._begun or _readable(pipe.fileno(), 0))

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.stderr += line


def _readable(pipe: int, limit: float | None = None) -> bool:
    """Whether a pipe has something to read, or has ended. Waits for that, `limit` milliseconds at most; None: without end."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    return bool(poll.poll(limit))


RANGES = 120
_turns = count(WORKER * RANGES // 3)


@contextmanager
def shared_ports(number: int) -> Iterator[int]:
    """The first of so many ports in a row, which several proxies may listen at. Each time others: clients of a former proxy may
    still try to reach it. A name that only one process can have keeps other tests away, as a port that is shared cannot."""
    for _ in range(RANGES):
        first = 20_100 + next(_turns) % RANGES * 97
        with ExitStack() as stack:
            try:
                stack.enter_context(socket.socket(socket.AF_UNIX)).bind(f"\0kafka-quota-proxy ports {first}")
                for port in range(first, first + number):
                    sock = stack.enter_context(socket.socket())
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                    sock.bind(("127.0.0.1", port))
            except OSError:
                continue
            yield first
            return
    raise AssertionError("no free ports")


def wait_until(condition: Any, what: str, limit: float = START_LIMIT) -> Any:
    """What the condition gives once it is true. Waits for a real process, so it looks again and again: often at first, and then
    less, as each look takes the CPU of two processes."""
    deadline, pause = time.monotonic() + limit, 0.02
    while time.monotonic() < deadline:
        found = condition()
        if found:
            return found
        time.sleep(pause)
        pause = min(1.3 * pause, SELDOM)
    raise AssertionError(f"waited {limit:g} s in vain for {what}")
