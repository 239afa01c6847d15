"""A real Redis, or Valkey, for tests: started on a free loopback port, stopped, killed, cut off. `python -m tests.redis_server`
installs one where there is none, which takes Debian or Ubuntu, and root."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import redis

from localkafka.ports import HeldPort

NAMES = ("redis-server", "valkey-server")
MISSING = (
    "no redis-server and no valkey-server on the PATH: `make redis` installs one as root on Debian, or use your system's package"
)
START_LIMIT = 120.0


def program() -> str | None:
    """The server to start."""
    return next((found for name in NAMES if (found := shutil.which(name)) is not None), None)


needs_redis = pytest.mark.skipif(program() is None, reason=MISSING)


def cluster_ports() -> list[HeldPort]:
    """A port, and the one by which nodes of a cluster speak to each other, which is above it by 10,000."""
    while True:
        port = HeldPort()
        try:
            return [port, HeldPort(port.number + 10_000)]
        except (OSError, OverflowError):
            port.release()


class RedisServer:
    """One server that keeps nothing on disk, as a context manager. `port` stays the same when it is started again, and nobody else
    gets it meanwhile."""

    def __init__(self, folder: Path, *options: str, port: HeldPort | None = None, **client: Any) -> None:
        """`options` of the command line; `client`: what a client needs to be let in."""
        self.folder, self._options, self._with = folder, options, client
        self._ports = [port or HeldPort()] if "--cluster-enabled" not in options else cluster_ports()
        self.port = self._ports[0].number
        self.address = self._ports[0].address

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        for port in self._ports:
            port.release()

    def start(self) -> None:
        """Start it, empty."""
        found = program()
        assert found is not None, MISSING
        self.folder.mkdir(parents=True, exist_ok=True)
        fixed = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", str(self.folder), "--loglevel", "warning"]
        ports = [] if "--tls-port" in self._options else ["--port", str(self.port)]
        command = [found, *fixed, *ports, *self._options]
        with (self.folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_LIMIT
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except (redis.ConnectionError, redis.BusyLoadingError):
                assert self.process.poll() is None, (self.folder / "redis.log").read_text()
                assert time.monotonic() < deadline, "Redis does not start"
                time.sleep(0.02)

    def client(self) -> Any:
        """A client of it, which may do anything."""
        return redis.Redis(port=self.port, socket_timeout=60, **self._with)

    def freeze(self) -> None:
        """It does not answer any more, and takes connections."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """At once, with all that it knew."""
        self.process.kill()
        self.process.wait()


class Relay:
    """A TCP port before another one. Cut, it takes connections and passes on nothing; whole again, it drops those that it had."""

    def __init__(self, target: int) -> None:
        self._target, self._cut, self._ends = target, False, False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ends = True
        self._thread.join(10)

    def cut(self) -> None:
        self._cut = True

    def mend(self) -> None:
        self._cut = False

    def _run(self) -> None:
        was_cut = False
        while not self._ends:
            if was_cut and not self._cut:
                for sock in list(self._pairs):
                    self._drop(sock)
            was_cut = self._cut
            if was_cut:
                time.sleep(0.01)
                continue
            for key, _ in self._selector.select(0.05):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._listener:
                    self._accept()
                elif sock in self._pairs and not self._cut:
                    self._pass(sock)
        for sock in [self._listener, *self._pairs]:
            sock.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), 5)
        except OSError:
            client.close()
            return
        for here, there in ((client, server), (server, client)):
            self._pairs[here] = there
            self._selector.register(here, selectors.EVENT_READ)

    def _pass(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(1 << 16)
            self._pairs[sock].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(sock)

    def _drop(self, sock: socket.socket) -> None:
        for one in (sock, self._pairs.get(sock)):
            if one is not None and self._pairs.pop(one, None) is not None:
                self._selector.unregister(one)
                with contextlib.suppress(OSError):
                    one.close()


def install() -> int:
    """Install a server where there is none. The exit code: 1 where that cannot be."""
    if program() is not None:
        return 0
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"{MISSING}. Tests that need it are skipped.", file=sys.stderr)
        return 0
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # it is not to be started as a service
    base = ["apt-get", "-y", "-q", "-o", "DPkg::Lock::Timeout=300"]
    attempts: Sequence[Sequence[str]] = (["install"], ["update"], ["install"])
    said = ""
    for attempt in attempts:
        packages = ["--no-install-recommends", "redis-server"] if attempt == ["install"] else []
        run = subprocess.run([*base, *attempt, *packages], env=environment, capture_output=True, text=True, check=False)
        said = (run.stderr or run.stdout).strip()[-300:]
        if program() is not None:
            return 0
    print(f"Redis cannot be installed ({said}). Tests that need it are skipped.", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(install())
