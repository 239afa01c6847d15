"""Kafka and the proxy, started and stopped. In: the out folder, how many brokers. Out: where clients bootstrap."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.local_proxy import LocalProxy
from configfile.access import Access, Login
from demo import plan
from demo.folder import Folder
from localkafka import LocalCluster

_BROKER_PROPERTIES = {
    "file.delete.delay.ms": 1000,  # 60 s by default: the deletion of phase 2's topics would go on in phase 3
    "broker.session.timeout.ms": 20_000,  # a broker that is busy with a storm is not dead
    "auto.create.topics.enable": False,
}


@dataclass(frozen=True)
class Services:
    """The parts that run."""

    kafka: LocalCluster
    proxy: LocalProxy
    folder: Folder

    @property
    def access(self) -> Access:
        """The login of the operator."""
        return Access(Login(plan.MECHANISM, plan.OPERATOR, self.folder.password.read_text(encoding="utf-8")))

    @property
    def upstream(self) -> str:
        """Where the cluster itself is."""
        return self.kafka.bootstrap_servers

    def check(self) -> None:
        """Raises ProxyError, NodeError when a part has ended by itself."""
        self.proxy.check()
        for node in self.kafka.brokers:
            node.check_alive()

    def limit_disk(self) -> None:
        """From now on the proxy keeps producers from writing much more to the disk."""
        free = shutil.disk_usage(self.kafka.brokers[0].log_dirs[0]).free
        self.settle(plan.disk_limit(free))

    def settle(self, more: str | None) -> None:
        """Other quotas beside those of the storms (`plan.settings_yaml`), which the proxy reads at once."""
        self.folder.settings.write_text(plan.settings_yaml(self.folder.password.absolute(), more), encoding="utf-8")
        os.kill(self.proxy.pid, signal.SIGHUP)

    def close(self) -> None:
        """Stop the proxy with SIGTERM, so that its usage log is complete; then the cluster."""
        self.proxy.stop()
        self.kafka.stop()


@contextmanager
def started(folder: Folder, brokers: int, say: Callable[[str], None]) -> Iterator[Services]:
    """Start the services for the duration of a `with` block. What still runs at its end is stopped.

    Raises ProxyError, and localkafka's own: JavaMissing, FetchError, FormatError, NodeError.
    """
    password = folder.password.read_text(encoding="utf-8")
    users = dict.fromkeys((*plan.TENANTS, plan.OPERATOR, plan.PROXY_USER), password)
    with LocalCluster(brokers, properties=_BROKER_PROPERTIES, sasl=users, progress=say) as kafka:
        arguments = ["--upstream", kafka.bootstrap_servers, "--logs", str(folder.usage)]
        with LocalProxy(folder.settings, folder.proxy_log, arguments) as proxy:
            yield Services(kafka, proxy, folder)
