"""A real broker that cannot keep up: one I/O thread, which compresses what is written. Who floods it is slowed down, who asks for
little is not, and all are let go when the flood is over. What is seen is what happens to whom; how long it takes, the load test
measures."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection
from tests.real.records import record_batch
from tests.real.tenancy import access, grant_ledger, logged_in, tenant_cluster, upstream
from tests.real.twins import ms

pytestmark = pytest.mark.kafka

KIB = 1 << 10
LARGE, MIDDLE, SMALL = (record_batch(b64encode(Random(size).randbytes(size * 3 // 4))) for size in (900 * KIB, 200 * KIB, KIB))
"""Batches; a broker takes some 30 ms for a large one."""
TOPIC = "slow"
FLOODS = 16
"""Connections of the user who floods: what they have under way takes the broker some times the target of 100 ms."""
FLOOD, LITTLE = "tenant", ("other", "operator")
"""Users: one who floods, and those who ask for little."""


class Writers:
    """Connections that write one request after the other, in threads. In: for each its user, what it writes, and how long it
    pauses, as a part of what each request took. Out: the throttle times that it was told, in ms."""

    def __init__(self, address: str) -> None:
        self.told: dict[str, list[int]] = {}
        self.address = address
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def add(self, user: str, batch: bytes, pause: float = 0.0) -> None:
        told = self.told.setdefault(user, [])
        self._threads.append(threading.Thread(target=self._run, args=(user, batch, pause, told)))
        self._threads[-1].start()

    def _run(self, user: str, batch: bytes, pause: float, told: list[int]) -> None:
        with logged_in(self.address, user) as connection:
            while not self._stop.is_set():
                began = time.monotonic()
                told.append(write(connection, batch))
                self._stop.wait(pause * (time.monotonic() - began))

    def written(self, user: str, count: int) -> None:
        """Wait until that user has written `count` more."""
        wanted = len(self.told[user]) + count
        wait_until(lambda: len(self.told[user]) >= wanted, f"{count} answers to {user}")

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def write(connection: Connection, batch: bytes) -> int:
    """The throttle time of the answer, in ms."""
    data = [{"name": TOPIC, "partition_data": [{"index": 0, "records": batch}]}]
    answer = connection.decoded(0, 9, acks=-1, timeout=ms(10_000), topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == 0
    return round(answer.throttle_time.total_seconds() * 1000)


@pytest.fixture(scope="module")
def slow_kafka(kafka_version: str) -> Iterator[LocalCluster]:
    with tenant_cluster(1, version=kafka_version, properties={"num.io.threads": "1"}) as kafka:
        topic = NewTopic(TOPIC, 1, 1, config={"compression.type": "gzip"})
        admin = AdminClient(access(kafka.bootstrap_servers))
        admin.create_topics([topic])[TOPIC].result(90)
        yield kafka


def broker_address(proxy: ProxyProcess) -> str:
    """The address that a proxy shows for the broker."""
    (broker,) = AdminClient(access(proxy.bootstrap)).list_topics(timeout=90).brokers.values()
    return f"{broker.host}:{broker.port}"


@contextmanager
def writing(kafka: LocalCluster, folder: Path, **overload: str) -> Iterator[tuple[ProxyProcess, Writers]]:
    """A proxy before the broker, and writers at the address that it shows for it; those who ask for little write already."""
    settings = {"quotas": {"overload": overload}, "upstream": upstream()}
    with ExitStack() as stack:
        proxy = stack.enter_context(ProxyProcess(folder, kafka.bootstrap_servers, settings))
        writers = Writers(broker_address(proxy))
        stack.callback(writers.stop)
        for user in LITTLE:
            writers.add(user, SMALL, pause=5)
        yield proxy, writers


def throttled(proxy: ProxyProcess) -> list[tuple[str, str, str]]:
    """(user, which broker, quota) of those who are throttled now."""
    found = json.loads(proxy.get("/throttles")[1])["throttled"]
    return [(line["entity"]["user"], line["entity"]["topic"], line["quota"]) for line in found]


def test_a_broker_at_seven_tenths_of_what_it_can_do_has_nobody_throttled(slow_kafka: LocalCluster, tmp_path: Path) -> None:
    # Ten times the target that there is by default, as this machine may be overloaded too, and the broker with it.
    with writing(slow_kafka, tmp_path, target_latency="1s") as (proxy, writers):
        writers.add(FLOOD, MIDDLE, pause=0.4)
        wait_until(lambda: proxy.metric("overload_latency_seconds", broker="0") > 0, "the first look at the broker's latency")
        writers.written(FLOOD, 150)  # for some more looks
        assert not throttled(proxy)
    assert not proxy.lines("broker overloaded")
    assert not any(map(any, writers.told.values()))


def test_who_floods_a_slow_broker_is_told_a_throttle_time_others_are_not_and_then_all_are_let_go(
    slow_kafka: LocalCluster, tmp_path: Path
) -> None:
    with writing(slow_kafka, tmp_path) as (proxy, writers):
        for _ in range(FLOODS):
            writers.add(FLOOD, LARGE)
        proxy.wait_for("broker overloaded", broker=0)
        assert proxy.metric("overload_limited", broker="0") == 1
        wait_until(lambda: any(writers.told[FLOOD]), "a throttle time")
        wait_until(lambda: (FLOOD, "broker 0", "overload") in throttled(proxy), "the flood to be shown")
        for user in LITTLE:
            writers.written(user, 3)
        writers.stop()
        wait_until(lambda: proxy.metric("overload_limited", broker="0") == 0, "the broker to be let go")
        proxy.wait_for("broker no longer overloaded", broker=0)
        with logged_in(writers.address, FLOOD) as connection:
            assert write(connection, LARGE) == 0
    assert not any(any(writers.told[user]) for user in LITTLE)
    decided = [line for line in proxy.usage() if line["type"] == "decision"]
    assert {(line["quota"], line["entity"]["user"]) for line in decided} == {("overload", FLOOD)}


@pytest.mark.nightly
def test_who_floods_a_slow_broker_through_two_proxies_gets_no_more_than_who_does_it_through_one(
    slow_kafka: LocalCluster, tmp_path: Path
) -> None:
    """Those who ask for little at one of the proxies are let alone there, too."""
    both, one = FLOOD, LITTLE[0]
    ledger = {"kind": "kafka", "topic": "slow-ledger"}
    grant_ledger(slow_kafka, "slow-ledger")
    with ExitStack() as stack:
        proxies, writers = [], []
        for name in ("first", "second"):
            settings = {"proxy_id": name, "quotas": {"overload": {}}, "ledger": ledger, "upstream": upstream()}
            proxies.append(stack.enter_context(ProxyProcess(tmp_path / name, slow_kafka.bootstrap_servers, settings)))
            writers.append(Writers(broker_address(proxies[-1])))
            stack.callback(writers[-1].stop)
        wait_until(lambda: all(proxy.metric("ledger_proxies") == 2 for proxy in proxies), "the proxies to share the ledger", 60)
        first, second = writers
        second.add(LITTLE[1], SMALL, pause=5)
        for writer, user in ((first, both), (second, both), (first, one)):
            for _ in range(FLOODS):
                writer.add(user, MIDDLE)
        for proxy in proxies:
            proxy.wait_for("broker overloaded", broker=0)
        first.written(one, 600)  # by then it is settled
        before = len(first.told[both]) + len(second.told[both])
        first.written(one, 600)
        got = len(first.told[both]) + len(second.told[both]) - before
        assert 400 <= got <= 900, f"{got} requests through two proxies while 600 came through one"
        assert not any(second.told[LITTLE[1]])
