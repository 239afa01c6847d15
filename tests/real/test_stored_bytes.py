"""A tenant's topics are filled at full speed by every client library, and never have more stored than they may: what does not fit
waits, nothing is lost, doubled or out of order while the limit comes and goes, and what is deleted makes room."""

from __future__ import annotations

import json
import logging
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, put, wait_until
from tests.real.refusing import make_topic
from tests.real.tenancy import PYTHON, USER, access, logged_in, upstream
from tests.real.test_refused_produce import CLIENTS, FILLER, REFUSED_FOR_GOOD, write
from tests.real.test_storage import RECORD, AioFlood, Flood, JavaFlood, delete, read_in_order, whole

pytestmark = pytest.mark.kafka

MB = 1_000_000
OLD, ROOM = 20 * MB, 5 * MB
"""Bytes that are there already, and that fit besides at first."""
RECORDS = {"rdkafka": 1000, "aiokafka": 500, "java": 600, "kafkapython": 400}
"""25 MB."""
RAISES, RAISE = 3, 2 * MB
"""How often a little more is allowed, and how much."""


class PythonFlood:
    """The same as `Flood` with kafka-python."""

    def __init__(self, bootstrap: str, topic: str, name: str, records: int) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []
        logging.getLogger("kafka").setLevel(logging.CRITICAL)  # it says a line for every batch that is refused
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, delivery_timeout_ms=120_000, **PYTHON)
        self._thread = threading.Thread(target=self._run, args=(topic, name, records), daemon=True)
        self._thread.start()

    def join(self, limit: float = 90.0) -> None:
        self._thread.join(limit)
        assert not self._thread.is_alive(), f"kafka-python does not finish: {self.acknowledged}"
        self._producer.close()

    def _run(self, topic: str, name: str, records: int) -> None:
        for number in range(records):
            sent = self._producer.send(topic, f"{name} {number}".ljust(RECORD).encode(), partition=number % 3)
            sent.add_callback(self._written).add_errback(lambda e: self.failed.append(repr(e)))
        self._producer.flush()

    def _written(self, _: object) -> None:
        self.acknowledged += 1


class Budget:
    """The limit of the tenant `apps` in the settings of a proxy that runs."""

    def __init__(self, proxy: ProxyProcess, hard: int) -> None:
        self.proxy, self.hard = proxy, hard

    def set(self, hard: int) -> None:
        self.hard = max(hard, self.hard)
        file = self.proxy.folder / "settings.yaml"
        data = yaml.safe_load(file.read_text())
        data["tenants"]["apps"]["stored_bytes_hard"] = hard
        changes = len(self.proxy.lines("settings applied"))
        put(file, yaml.safe_dump(data))
        self.proxy.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(self.proxy.lines("settings applied")) > changes, "the limit to hold")


def on_disk(kafka: LocalCluster, prefix: str) -> int:
    """Bytes of these topics, as the brokers tell."""
    total = 0
    for broker in kafka.brokers:
        with logged_in(broker.address, "operator") as connection:
            answer = connection.decoded(35, 4, topics=None)
        total += sum(p.partition_size for d in answer.results for t in d.topics if t.name.startswith(prefix) for p in t.partitions)
    return total


def create(kafka: LocalCluster, *topics: str) -> None:
    admin = AdminClient(access(kafka.bootstrap_servers, log_level=0))
    for made in admin.create_topics([NewTopic(topic, 3, 1) for topic in topics]).values():
        made.result(90)


def fill(kafka: LocalCluster, topic: str, size: int) -> None:
    producer = Producer(access(kafka.bootstrap_servers, log_level=0))
    for _ in range(size // RECORD):
        producer.produce(topic, bytes(RECORD - 100))
        producer.poll(0)
    assert producer.flush(90) == 0


def test_no_client_stores_more_than_its_tenant_may_and_all_go_on_when_there_is_room(
    tenants1: LocalCluster, tmp_path: Path, name: str
) -> None:
    prefix, old = f"{name}.", f"{name}.old"
    create(tenants1, old, f"{prefix}new")
    fill(tenants1, old, OLD)
    first = on_disk(tenants1, prefix) + ROOM
    settings: dict[str, Any] = {
        "tenants": {"apps": {"topic_prefixes": [prefix], "stored_bytes_hard": first}},
        "quotas": {"stored_bytes": {"check_interval": "1s", "near_interval": "200ms"}},
        "upstream": upstream(),
        "reload": {"interval": 0},
    }
    with ProxyProcess(tmp_path, tenants1.bootstrap_servers, settings) as proxy:
        budget, topic = Budget(proxy, first), f"{prefix}new"
        rdkafka = Flood(proxy.bootstrap, topic, "rdkafka", RECORDS["rdkafka"])
        aio = AioFlood(proxy.bootstrap, topic, "aiokafka", RECORDS["aiokafka"])
        java = JavaFlood(proxy.bootstrap, topic, RECORDS["java"])
        python = PythonFlood(proxy.bootstrap, topic, "kafkapython", RECORDS["kafkapython"])
        proxy.wait_for("stored bytes at the limit", entity="tenant apps")
        clients = ('"rdkafka"', '"aiokafka', '"producer-1"', '"kafka-python')
        wait_until(lambda: all(it in proxy.get("/live")[1] for it in clients), "all clients to have come")
        for raised in range(1, RAISES + 1):
            before = proxy.metric("refused_items_total", quota="tenant_stored_bytes")
            budget.set(first + raised * RAISE)
            refused = f"refusals of raise {raised}"
            wait_until(lambda n=before: proxy.metric("refused_items_total", quota="tenant_stored_bytes") > n + 20, refused)
            assert on_disk(tenants1, prefix) <= budget.hard
            budget.set(1)
            time.sleep(0.3)
            assert on_disk(tenants1, prefix) <= budget.hard
        budget.set(first + RAISES * RAISE)
        (tenant,) = json.loads(proxy.get("/tenants")[1])["tenants"]
        assert tenant["quotas"][0]["quota"] == "tenant_stored_bytes"
        assert tenant["quotas"][0]["usage"] > first
        delete(tenants1.bootstrap_servers, old)
        proxy.wait_for("stored bytes within the limits", entity="tenant apps")
        for flood in (rdkafka, aio, java, python):
            flood.join()
    *_, had = (line for line in proxy.usage() if line["type"] == "owned" and line["tenant"] == "apps")
    assert had["stored_bytes"] > ROOM, "the log says so, too"
    assert (rdkafka.failed, aio.failed, java.failed, python.failed) == ([], [], 0, [])
    assert "what is written would pass its limit" in java.errors, "a client that shows messages shows why"
    written = {place: numbers for it in RECORDS.items() for place, numbers in whole(*it).items()}
    assert read_in_order(tenants1.bootstrap_servers, topic) == written


def test_what_is_refused_for_good_every_client_shows_and_who_is_not_idempotent_goes_on(
    tenants1: LocalCluster, tmp_path: Path, name: str
) -> None:
    """As with `mode: fail` of other quotas: kafka-python gives up its producer, aiokafka has skipped sequences for good where it is
    idempotent."""
    settings: dict[str, Any] = {
        "tenants": {"apps": {"topic_prefixes": [f"{name}."], "stored_bytes_hard": 1 << 30}},
        "quotas": {"stored_bytes": {"check_interval": "1s", "near_interval": "200ms", "mode": "fail"}},
        "upstream": upstream(),
        "reload": {"interval": 0},
    }
    seen = {}
    with ProxyProcess(tmp_path, tenants1.bootstrap_servers, settings) as proxy:
        budget = Budget(proxy, 1 << 30)
        for what, client in CLIENTS.items():
            topic = f"{name}.{what.replace(' ', '-')}"
            make_topic(tenants1.bootstrap_servers, topic, 2, USER)
            with logged_in(proxy.bootstrap) as connection:
                write(connection, topic, 1, FILLER)  # so that brokers have let this user write there
            budget.set(1)
            seen[what] = client(proxy, topic, "all", lambda: budget.set(1 << 30), tmp_path / what)
    assert seen == REFUSED_FOR_GOOD
