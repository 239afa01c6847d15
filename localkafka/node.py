"""One Kafka process with its folder, its ports and its log.

In: a command line, properties, orders to start and stop. Out: a running process and what it printed.
Leaves to others: the cluster that it belongs to, formatting, whether it is ready.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from localkafka.guard import Guard
from localkafka.ports import HeldPort
from localkafka.settings import Listeners, PropertyValue, node_properties, render

_PORT_TAKEN = "Address already in use"
_STARTED = "Kafka Server started"


class NodeError(RuntimeError):
    """A node ended or did not become ready. The message holds the end of its log; `port_taken` says whether that was the reason."""

    def __init__(self, what: str, node: "Node") -> None:
        """Describe a node that just failed."""
        super().__init__(f"Kafka node {node.node_id} {what}; the end of its log:\n{node.log_tail()}")
        self.port_taken = _PORT_TAKEN in node.printed_since_start()


class Node:
    """A combined broker and controller. Not thread-safe; made by LocalCluster, whose methods start and stop it."""

    def __init__(self, node_id: int, folder: Path, log_dirs: int) -> None:
        """`folder` holds the node's settings, log, metadata and `log_dirs` folders of data."""
        self.node_id = node_id
        self.advertised: int | None = None
        """the port that clients are told from the next start on; by default that of the node"""
        self.folder = folder
        self.metadata_dir = folder / "metadata"
        self.log_dirs = tuple(folder / f"data{number}" for number in range(log_dirs))
        self.log_file = folder / "node.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None
        self._log_start = 0
        self._client, self._internal, self._controller = HeldPort(), HeldPort(), HeldPort()

    @property
    def address(self) -> str:
        """`host:port` of the listener for clients."""
        return self._client.address

    @property
    def listeners(self) -> Listeners:
        """The ports in use now."""
        return Listeners(self._client.number, self._internal.number, self._controller.number)

    @property
    def pid(self) -> int | None:
        """The process id while the node runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def running(self) -> bool:
        """Whether the process runs. It need not be ready."""
        return self.pid is not None

    @property
    def wanted(self) -> bool:
        """Whether it was started and not stopped since. If it does not run then, it has failed."""
        return self._process is not None

    def move(self) -> None:
        """Take new ports for clients and brokers; the quorum's port stays, as it is in every node's settings."""
        self._client.release()
        self._internal.release()
        self._client, self._internal = HeldPort(), HeldPort()

    def new_ports(self) -> None:
        """Take new ports for everything."""
        self.move()
        self._controller.release()
        self._controller = HeldPort()

    def release_ports(self) -> None:
        """Release all ports; the node cannot start after that."""
        for port in (self._client, self._internal, self._controller):
            port.release()

    def launch(
        self, guard: Guard, command: Sequence[str], common: Mapping[str, PropertyValue], extra: Mapping[str, PropertyValue]
    ) -> None:
        """Start the process and return at once. `command` lacks only the main class; `extra` overrides all other properties."""
        self.wait_end(0)
        self.folder.mkdir(parents=True, exist_ok=True)
        own = node_properties(self.node_id, self.listeners, self.log_dirs, self.metadata_dir, self.advertised)
        settings = self.folder / "server.properties"
        settings.write_text(render({**common, **own, **extra}))
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = guard.popen(
                [*command, "kafka.Kafka", str(settings)], cwd=self.folder, stdout=log, stderr=subprocess.STDOUT
            )
        self._guard = guard

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the process lives."""
        if (pid := self.pid) is not None:
            os.kill(pid, number)

    def wait_end(self, seconds: float) -> None:
        """Wait for the process to end, at most that long; then kill it."""
        if self._process is None or self._guard is None:
            return
        try:
            self._process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._guard.forget(self._process)
        self._process = None

    def started(self) -> bool:
        """Whether its log says that it has started: only then do all of its listeners listen."""
        return _STARTED in self.printed_since_start()

    def check_alive(self) -> None:
        """Raise NodeError if the process has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise NodeError(f"ended with exit code {code}", self)

    def printed_since_start(self) -> str:
        """The log since the last start."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the log since the last start."""
        return "\n".join(self.printed_since_start().splitlines()[-lines:])

    def resident_bytes(self) -> int:
        """Memory of the process that is in RAM now, in bytes; 0 when it does not run. Linux only."""
        if (pid := self.pid) is None:
            return 0
        status = Path(f"/proc/{pid}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


def wait_all(nodes: Sequence[Node], seconds: float) -> None:
    """Wait for several nodes to end, `seconds` in total; kill those that have not by then."""
    deadline = time.monotonic() + seconds
    for node in nodes:
        node.wait_end(deadline - time.monotonic())
