"""Two proxies that look like one are restarted one after the other under load: nothing that was acknowledged is lost, and no
client shows an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Thread

import pytest

from localkafka import LocalCluster, run_java
from tests.real.proxies import ProxyProcess, shared_ports, wait_until
from tests.real.steady import SteadyConsumer, SteadyProducer, count_values, create

pytestmark = pytest.mark.kafka

HARMLESS = {"_ALL_BROKERS_DOWN"}
"""What librdkafka tells when all connections that it needs at the moment were closed; it opens others. It does the same without
a proxy."""
SLOW = {"ledger is away"}
"""What workers say on a machine that is too busy to let their supervisor answer within a second."""
PORTS = 4
"""The bootstrap port, and one for each broker."""


class Pair:
    """Proxies `a` and `b` at the same ports of this machine, each of so many workers."""

    def __init__(self, folder: Path, kafka: LocalCluster, first: int, workers: int) -> None:
        self._folder, self._kafka = folder, kafka
        listen = {"bootstrap": f"127.0.0.1:{first}", "broker_ports": f"{first + 1}-{first + PORTS - 1}", "reuse_port": True}
        self._settings = {"listen": listen, "limits": {"drain_timeout": "60s"}, "workers": workers}
        self.bootstrap = f"127.0.0.1:{first}"
        self.running: dict[str, ProxyProcess] = {}
        self.ended: list[ProxyProcess] = []

    def __enter__(self) -> Pair:
        for name in ("a", "b"):
            self.start(name)
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:  # all of them, whatever one of them does: the next test may get the same ports
            for name in list(self.running):
                stack.callback(self.stop, name)

    def start(self, name: str) -> None:
        """Start one, and wait until it is ready and knows all brokers."""
        settings = {**self._settings, "proxy_id": name}
        proxy = ProxyProcess(self._folder / name, self._kafka.bootstrap_servers, settings).__enter__()
        self.running[name] = proxy
        wait_until(lambda: proxy.metric("brokers") == 3, "all brokers to be known")

    def stop(self, name: str) -> None:
        """SIGTERM, and nothing but exit code 0."""
        proxy = self.running.pop(name)
        self.ended.append(proxy)
        assert proxy.stop() == 0, proxy.stderr
        assert not proxy.stderr


@pytest.fixture
def pair(kafka3: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with shared_ports(PORTS) as first, Pair(tmp_path, kafka3, first, getattr(request, "param", 1)) as running:
        yield running


@pytest.mark.parametrize(
    ("pair", "rounds"),
    [(1, 1), pytest.param(1, 3, marks=pytest.mark.nightly), pytest.param(2, 1, marks=pytest.mark.nightly)],
    indirect=["pair"],
)
def test_nothing_is_lost_and_no_client_fails(pair: Pair, kafka3: LocalCluster, tmp_path: Path, name: str, rounds: int) -> None:
    create(kafka3.bootstrap_servers, name)
    source, stop = Path(__file__).parent / "java" / "Steady.java", tmp_path / "stop"
    java: list[str] = []
    thread = Thread(target=lambda: java.append(run_java(source, pair.bootstrap, name, str(stop), timeout=180, check=True).stdout))
    thread.start()
    producers = {
        "idempotent": SteadyProducer(pair.bootstrap, name, "idempotent", **{"enable.idempotence": True}),
        "plain": SteadyProducer(pair.bootstrap, name, "plain", acks="all"),
        "zstd": SteadyProducer(pair.bootstrap, name, "zstd", **{"compression.type": "zstd", "acks": "all"}),
    }
    consumers = [SteadyConsumer(pair.bootstrap, name, name) for _ in range(2)]
    new = SteadyConsumer(pair.bootstrap, name, f"{name}-new", **{"group.protocol": "consumer"})
    try:
        with ExitStack() as stack:
            for client in (*producers.values(), *consumers, new):
                stack.enter_context(client)
            wait_until(lambda: stop.with_name("stop.going").exists() or not thread.is_alive(), "the Java producers to be at work")
            for _ in range(rounds):
                for which in ("a", "b"):
                    seen = {key: len(producer.acknowledged) for key, producer in producers.items()}
                    wait_until(lambda which=which: pair.running[which].metric("client_connections") > 3, f"clients at {which}")
                    pair.stop(which)
                    wait_until(
                        lambda seen=seen: all(len(producers[key].acknowledged) > seen[key] + 100 for key in producers),
                        "clients to go on at the other proxy",
                    )
                    pair.start(which)
            stop.touch()
            thread.join(180)
            acknowledged = {value for producer in producers.values() for value in producer.acknowledged}
            for read in (lambda: {value for consumer in consumers for value in consumer.read}, lambda: set(new.read)):
                wait_until(lambda read=read: acknowledged <= read(), "the groups to read everything")
    finally:
        stop.touch()
        thread.join(180)
    assert len(pair.ended) == 2 * rounds
    for proxy in pair.ended:
        assert not proxy.lines("drain timeout")
        assert not [line for line in proxy.events if line["level"] in ("error", "critical") and line["event"] not in SLOW]
        assert not [line for line in proxy.usage() if line["type"] == "gap"]
    found, by_leader = count_values(kafka3.bootstrap_servers, name, expected=acknowledged)
    for key, producer in producers.items():
        assert not producer.failed, key
        assert not producer.unsent, key
        assert producer.noticed.keys() <= HARMLESS, key
        # What a proxy did not answer it did not pass on, so not even a producer that is not idempotent wrote anything twice.
        assert {by_leader[value] for value in producer.acknowledged} == {1}, key
    assert {found[value] for value in producers["idempotent"].acknowledged} == {1}
    idempotent, plain, failed = (int(part) for part in java[0].split())
    assert failed == 0
    assert idempotent > 500
    assert {found[f"java {i}"] for i in range(idempotent)} == {1}
    assert {by_leader[f"java-plain {i}"] for i in range(plain)} == {1}
    for consumer in (*consumers, new):
        assert not consumer.errors
        assert consumer.noticed.keys() <= HARMLESS
