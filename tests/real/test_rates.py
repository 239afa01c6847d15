"""What real clients with logins get through under byte and request rates, all of them together: quota x (10 s + time), and one
request each.

A lower bound needs a machine that keeps up: `make bench-rates` has the figures of a minute. Rates of topics are for the night:
test_topic_rates.py has real clients of them before every push."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess
from tests.real.tenancy import access, logged_in, upstream

pytestmark = pytest.mark.kafka

RATE, REQUESTS = 200_000, 20
BURST = 10
"""seconds of the quota that pass at once"""
BATCH = 16_384
CLIENTS = 5
ENOUGH = 14
"""seconds of the quota after which a test ends: that takes 4 s where the quota holds"""


@pytest.fixture(scope="module")
def limited(tenants3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    entities = [
        {"client_id": "rated", "cluster_producer_byte_rate": RATE, "cluster_consumer_byte_rate": RATE},
        {"client_id": "backfill", "cluster_cold_read_rate": RATE},
        {"client_id": "asking", "cluster_request_rate": REQUESTS},
        {"client_id": "asking-metadata", "metadata_request_rate": REQUESTS},
    ]
    topics = {"rated-in": {"bytes_in": RATE}, "rated-out": {"bytes_out": RATE}}
    settings = {"quotas": {"entities": entities, "topic_rates": {"topics": topics}, "cold_read_lag": 10}, "upstream": upstream()}
    with ProxyProcess(tmp_path_factory.mktemp("rates"), tenants3.bootstrap_servers, settings) as proxy:
        yield proxy


def create(kafka: LocalCluster, name: str) -> None:
    admin = AdminClient(access(kafka.bootstrap_servers))
    admin.create_topics([NewTopic(name, CLIENTS, 1)])[name].result(90)


def stored(kafka: LocalCluster, name: str) -> int:
    """Bytes of a topic, by what its brokers say of their disks."""
    total = 0
    for node in kafka.brokers:
        with logged_in(node.address, "operator") as broker:
            found = broker.decoded(35, 1, topics=None)
        total += sum(p.partition_size for d in found.results for t in d.topics if t.name == name for p in t.partitions)
    return total


def most(quota: float, began: float, each: float) -> float:
    """What may be through by now: also what each client said while all owed nothing."""
    return quota * (BURST + time.monotonic() - began) + CLIENTS * each


@pytest.mark.parametrize(
    ("topic", "client_id", "quota"),
    [(None, "rated", "producer_byte_rate"), pytest.param("rated-in", "any", "topic_producer_byte_rate", marks=pytest.mark.nightly)],
)
def test_producers_of_one_quota_store_no_more_than_it_allows(
    limited: ProxyProcess, tenants3: LocalCluster, name: str, topic: str | None, client_id: str, quota: str
) -> None:
    name = topic or name
    create(tenants3, name)
    settings = {
        **access(limited.bootstrap),
        "client.id": client_id,
        "log_level": 2,
        "batch.size": BATCH,
        "queue.buffering.max.messages": 50,
    }
    producers = [Producer(settings) for _ in range(CLIENTS)]
    began = time.monotonic()
    size, look = 0, began
    while size < ENOUGH * RATE:
        for i, producer in enumerate(producers):
            producer.poll(0.01)
            for _ in range(50 - len(producer)):
                producer.produce(name, b"x" * 5000, partition=i)
        if time.monotonic() > look:
            size, look = stored(tenants3, name), time.monotonic() + 0.2
            assert size <= most(RATE, began, 2 * BATCH)
        assert time.monotonic() < began + 60, f"{size} bytes in a minute"
    for producer in producers:
        assert producer.flush(90) == 0, "never an error, and all is delivered"
    assert size + 50 * CLIENTS * 5100 >= stored(tenants3, name)
    limited.wait_for("over quota", quota=quota, action="throttle")


@pytest.mark.parametrize(
    ("topic", "client_id", "quota"),
    [
        (None, "rated", "consumer_byte_rate"),
        pytest.param("rated-out", "any", "topic_consumer_byte_rate", marks=pytest.mark.nightly),
        (None, "backfill", "cold_read_rate"),
    ],
)
def test_consumers_of_one_quota_get_no_more_than_it_allows(
    limited: ProxyProcess, tenants3: LocalCluster, name: str, topic: str | None, client_id: str, quota: str
) -> None:
    name = topic or name
    create(tenants3, name)
    producer = Producer(access(tenants3.bootstrap_servers, **{"batch.size": BATCH}))  # a batch is fetched whole
    for i in range(ENOUGH * RATE // 5000):
        producer.produce(name, b"x" * 5000, partition=i % CLIENTS)
    assert producer.flush(90) == 0
    settings = {
        **access(limited.bootstrap),
        "client.id": client_id,
        "log_level": 2,
        "group.id": name,
        "fetch.message.max.bytes": BATCH,
    }
    consumers = [Consumer(settings) for _ in range(CLIENTS)]
    began = time.monotonic()
    for i, consumer in enumerate(consumers):
        consumer.assign([TopicPartition(name, i, OFFSET_BEGINNING)])
    got = 0
    while got < ENOUGH * RATE // 5000 * 5000:
        for consumer in consumers:
            messages = consumer.consume(1000, 0.02)
            assert not any(message.error() for message in messages)
            got += sum(len(message.value() or b"") for message in messages)
        assert got <= most(RATE, began, 2 * BATCH)
        assert time.monotonic() < began + 60, f"{got} bytes in a minute"
    for consumer in consumers:
        consumer.close()
    limited.wait_for("over quota", quota=quota, action="throttle")


@pytest.mark.parametrize(("client_id", "quota"), [("asking", "request_rate"), ("asking-metadata", "metadata_request_rate")])
def test_clients_of_one_quota_are_answered_no_more_requests_than_it_allows(
    limited: ProxyProcess, client_id: str, quota: str
) -> None:
    clients = [AdminClient(access(limited.bootstrap, **{"client.id": client_id, "log_level": 2})) for _ in range(CLIENTS)]
    began = time.monotonic()

    def ask(client: AdminClient) -> None:
        for _ in range(ENOUGH * REQUESTS // CLIENTS):
            client.list_topics(timeout=90)

    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(ask, clients))
    assert most(REQUESTS, began, 1) >= ENOUGH * REQUESTS
    limited.wait_for("over quota", quota=quota, action="throttle")


def test_requests_of_another_kind_are_not_slowed_down(limited: ProxyProcess, tenants3: LocalCluster, name: str) -> None:
    create(tenants3, name)
    client_id = "asking-metadata"
    asking = AdminClient(access(limited.bootstrap, **{"client.id": client_id, "log_level": 2}))
    producer = Producer({**access(limited.bootstrap), "client.id": client_id, "log_level": 2, "linger.ms": 0})
    producer.produce(name, b"x", partition=0)
    assert producer.flush(90) == 0, "it knows its topic"
    before = len(limited.lines("over quota", quota="metadata_request_rate", action="throttle"))
    with ThreadPoolExecutor(1) as pool:
        storm = pool.submit(lambda: [asking.list_topics(timeout=90) for _ in range(ENOUGH * REQUESTS)])
        began = time.monotonic()
        while not storm.done():
            producer.produce(name, b"x", partition=0)
            assert producer.flush(90) == 0
            time.sleep(0.02)  # more would only keep the processor busy
        produced, asked = limited.lines("over quota", api="Produce"), limited.lines("over quota", api="Metadata")
        assert time.monotonic() - began < 60
        storm.result()
    assert len(asked) > before
    assert not [line for line in produced if line["client_id"] == client_id]
