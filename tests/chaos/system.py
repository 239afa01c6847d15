"""Three brokers on small file systems behind relays, two proxies with two workers each before them, and the store of their ledger.
In: a folder, how large file systems are. Out: parts that can be killed, frozen, cut off, started again.

Without proxies clients go to the brokers' relays. Where file systems cannot be mounted (only root may), disks are not filled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

import psutil
import yaml

from localkafka import LocalCluster
from localkafka.guard import Guard
from localkafka.node import Node
from localkafka.ports import HOST, free_port
from tests.certs import Authority
from tests.chaos.relay import Relay, Relays
from tests.chaos.schedule import BROKERS, PROXIES, WORKERS
from tests.real.proxies import shared_ports, wait_until
from tests.real.volumes import Volumes, can_mount, small_volumes
from tests.redis_server import RedisServer

MIB: Final = 1 << 20
LIMIT_LEFT: Final = 64 * MIB
"""What has to be available on a volume; below it the proxies let nobody write."""
RATES: Final = (192 << 10, 64 << 10, 128 << 10)
"""Quotas of client id `held` that take turns, in bytes per second."""
MEMORY: Final = 64 * MIB
"""What all connections of a proxy may hold (`limits.memory_total`)."""
MEMORY_BOUND: Final = 250 * MIB
"""The most that a worker may have resident: 75 MiB without clients, what it may hold, and as much again for buffers."""
PROPERTIES: Final = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "transaction.state.log.min.isr": 2,
    "share.coordinator.state.topic.min.isr": 2,
    "group.share.min.record.lock.duration.ms": 5000,
    "group.share.record.lock.duration.ms": 5000,
    "group.share.delivery.count.limit": 10,
    "group.consumer.session.timeout.ms": 45000,
    "auto.create.topics.enable": False,
}


class Proxy:
    """One proxy that is started again with the same settings. What it prints is kept."""

    def __init__(self, folder: Path, settings: dict[str, Any], guard: Guard) -> None:
        folder.mkdir(parents=True)
        self.settings, self._guard = settings, guard
        self._file, self.log = folder / "settings.yaml", folder / "operations.jsonl"
        self.admin: str = settings["admin"]["listen"]
        self.process: subprocess.Popen[bytes] | None = None
        self._started = False

    def start(self) -> None:
        """Returns when it is ready, or after a while: brokers may be away."""
        self._write()
        command = [sys.executable, "-m", "proxy", "serve", "--config", str(self._file)]
        with self.log.open("ab") as log:
            self.process = self._guard.popen(command, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not self.ready():
            assert self.process.poll() is None, f"a proxy ended:\n{self.log.read_text()[-3000:]}"
            time.sleep(0.1)
        self._started = True

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.admin}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def change(self, **settings: Any) -> None:
        """While it runs."""
        self.settings.update(settings)
        self._write()
        if self._started:  # before it listens for signals, SIGHUP would end it
            self.signal(signal.SIGHUP)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self._started = False
        self.process.terminate()
        code = self.process.wait(60)
        self._guard.forget(self.process)
        return code

    def kill(self) -> None:
        assert self.process is not None
        self._started = False
        self.process.kill()
        self.process.wait()
        self._guard.forget(self.process)

    def signal(self, number: int) -> None:
        """To the process that supervises; nothing if it has ended."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def workers(self) -> list[psutil.Process]:
        if self.process is None or self.process.poll() is not None:
            return []
        try:
            children = psutil.Process(self.process.pid).children()
            return sorted((it for it in children if '"supervisor"' in it.cmdline()[-1]), key=lambda it: it.pid)
        except psutil.Error:
            return []

    def events(self) -> list[dict[str, Any]]:
        """The operations log. A line that is no JSON, such as a traceback, is an event of level `text`."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                found.append({"level": "text", "event": line})
        return found

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=30) as answer:
            rows = [row.rsplit(" ", 1) for row in answer.read().decode().splitlines() if not row.startswith("#")]
        return {name.removeprefix("kafka_quota_proxy_"): float(value) for name, value in rows}

    def _write(self) -> None:
        """At once for those who read it."""
        partial = self._file.with_suffix(".new")
        partial.write_text(yaml.safe_dump(self.settings))
        partial.rename(self._file)


class System:
    """All parts, as a context manager. `bootstrap`: where clients go; `properties`: how (a file for `--command-config`)."""

    def __init__(self, folder: Path, *, size: int, direct: bool, say: Callable[[str], None]) -> None:
        self.folder, self._size, self.direct, self._say = folder, size, direct, say
        self.relays: list[Relay] = []
        self.proxies: list[Proxy] = []
        self.volumes: Volumes | None = None
        self.properties = folder / "client.properties"
        self.largest = 0
        """bytes that a worker had resident at most"""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.guard = stack.enter_context(Guard())
            self._relays = stack.enter_context(Relays())
            self._brokers(stack)
            if self.direct:
                self.bootstrap = ",".join(f"{HOST}:{node.advertised}" for node in self.kafka.brokers)
                self.properties.write_text("security.protocol=PLAINTEXT\n")
            else:
                self._start_proxies(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _brokers(self, stack: ExitStack) -> None:
        data = self.folder / "kafka"
        if can_mount(self.folder / "probe"):
            self.volumes = stack.enter_context(small_volumes(data, self._size, BROKERS))
        self.kafka = LocalCluster(BROKERS, log_dirs=1, data_dir=data, properties=PROPERTIES, in_front=self._in_front)
        self._say("starting three brokers")
        self.kafka.start()
        stack.callback(self._end_brokers)

    def _in_front(self, node: Node) -> int:
        relay, port = self._relays.before(node.listeners.client)
        self.relays.append(relay)
        return port

    def _end_brokers(self) -> None:
        for node in self.kafka.brokers:
            node.signal(signal.SIGCONT)
            self.kafka.kill_broker(node.node_id)
        self.kafka.stop()

    def _start_proxies(self, stack: ExitStack) -> None:
        self.store = stack.enter_context(RedisServer(self.folder / "redis"))
        self.authority = Authority(self.folder / "certificates")
        self.certificate("first")
        first = stack.enter_context(shared_ports(BROKERS + 1))
        for number in range(PROXIES):
            settings = self._settings(first, number)
            self.proxies.append(Proxy(self.folder / f"proxy{number}", settings, self.guard))
        self._say("starting two proxies")
        for proxy in self.proxies:
            proxy.start()
        for proxy in self.proxies:
            wait_until(lambda proxy=proxy: proxy.metrics().get("brokers") == BROKERS, "all brokers to be known")
        self.bootstrap = f"{HOST}:{first}"
        self.properties.write_text(
            f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={self.authority.file}\n"
        )
        self._over = threading.Event()
        watch = threading.Thread(target=self._watch, daemon=True)
        watch.start()
        stack.callback(watch.join)
        stack.callback(self._over.set)

    def _settings(self, first: int, number: int) -> dict[str, Any]:
        tls = {"cert_file": str(self.folder / "server.pem"), "key_file": str(self.folder / "server.key")}
        storage = {"check_interval": "1s", "min_available_bytes": LIMIT_LEFT, "check_timeout": "5s"}
        return {
            "proxy_id": f"chaos-{number}",
            "workers": WORKERS,
            "upstream": {
                "bootstrap_servers": [f"{HOST}:{node.advertised}" for node in self.kafka.brokers],
                "metadata_refresh": "2s",
            },
            "listen": {
                "bootstrap": f"{HOST}:{first}",
                "broker_ports": f"{first + 1}-{first + BROKERS}",
                "reuse_port": True,
                "tls": tls,
            },
            "admin": {"listen": f"{HOST}:{free_port()}"},
            "limits": {"memory_total": MEMORY, "max_frame": 8 * MIB, "max_connection_age": "60s"},
            "ledger": {"kind": "redis", "servers": [self.store.address]},
            "logs": {"usage": {"path": str(self.folder / f"proxy{number}" / "usage")}},
            "quotas": quotas(RATES[0]) | ({"storage": storage} if self.volumes else {}),
        }

    def certificate(self, name: str) -> None:
        """From now on the proxies have another certificate of the same authority."""
        pair = self.authority.server(name, HOST)
        for made, used in ((pair.key, "server.key"), (pair.cert, "server.pem")):
            partial = self.folder / f"{used}.new"
            partial.write_bytes(made.read_bytes())
            os.replace(partial, self.folder / used)

    def run(self, what: Any) -> None:
        """In the thread of the relays."""
        self._relays.run(what)

    def _watch(self) -> None:
        while not self._over.wait(1.0):
            for proxy in self.proxies:
                for worker in proxy.workers():
                    try:
                        self.largest = max(self.largest, worker.memory_info().rss)
                    except psutil.Error:
                        continue


def quotas(rate: int) -> dict[str, Any]:
    return {"entities": [{"client_id": "held", "cluster_producer_byte_rate": rate}]}
