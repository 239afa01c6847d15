"""Room demo, stage: Kafka and the proxy, started and stopped.

In: the out folder, how many brokers. Out: where clients bootstrap, and programs run on the stage. Leaves to others: what is played.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from demo.clock import now
from demo.errors import DemoError
from demo.folder import Folder
from demo.processes import Program, tail
from localkafka import LocalCluster
from localkafka.guard import Guard

_START_LIMIT = 30.0  # seconds
_STOP_LIMIT = 40.0  # seconds; the proxy's own limit is 20
_POLL = 0.05  # seconds

_BROKER_PROPERTIES = {
    "file.delete.delay.ms": 1000,  # 60 s by default: the deletion of phase 2's topics would go on in phase 3
    "broker.session.timeout.ms": 20_000,  # a broker that is busy with a storm is not dead
    "auto.create.topics.enable": False,
}


@dataclass(frozen=True)
class Stage:
    """What runs. `bootstrap` is the proxy, `upstream` the cluster behind it, `admin` the proxy's metrics: `host:port` each."""

    guard: Guard
    kafka: LocalCluster
    proxy: Program
    bootstrap: str
    admin: str

    @property
    def upstream(self) -> str:
        """Where the cluster itself is."""
        return self.kafka.bootstrap_servers

    def check(self) -> None:
        """Errors: DemoError, NodeError when a part has ended by itself."""
        self.proxy.check()
        if not self.proxy.running:
            raise DemoError(f"the proxy ended; the end of its log:\n{tail(self.proxy.out)}")
        for node in self.kafka.brokers:
            node.check_alive()

    def run(self, name: str, module: str, *arguments: object) -> Program:
        """Start one of the load's programs."""
        return Program(self.guard, name, f"demo.load.{module}", *arguments)

    def close(self) -> None:
        """Stop the proxy as an operator would, so that its usage log is complete; then the cluster."""
        self.proxy.end(_STOP_LIMIT)
        self.kafka.stop()


@contextmanager
def raised(folder: Folder, brokers: int, say: Callable[[str], None]) -> Iterator[Stage]:
    """A stage for the length of a `with` block; whatever still runs at its end is stopped.

    Errors: DemoError, and localkafka's own: JavaMissing, FetchError, FormatError, NodeError.
    """
    with Guard() as guard, LocalCluster(brokers, properties=_BROKER_PROPERTIES, progress=say) as kafka:
        arguments = ["serve", "--upstream", kafka.bootstrap_servers, "--config", folder.settings, "--logs", folder.usage]
        proxy = Program(guard, "the proxy", "proxy", *arguments, log=folder.proxy_log)
        started = _wait_started(proxy)
        yield Stage(guard, kafka, proxy, str(started["bootstrap"]), str(started["admin"]))


def _wait_started(proxy: Program) -> dict[str, object]:
    """The proxy's line about its start."""
    deadline = now() + _START_LIMIT
    while now() < deadline:
        running = proxy.running
        for line in proxy.out.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n") and '"started"' in line:
                found: dict[str, object] = json.loads(line)
                return found
        if not running:
            break
        time.sleep(_POLL)
    raise DemoError(f"the proxy did not start; the end of its log:\n{tail(proxy.out)}")
