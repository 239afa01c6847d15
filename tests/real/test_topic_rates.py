"""Topics above their rates with real clients: what a producer sends again is written once and in order, consumers get everything
later, and no client library sees an error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess
from tests.real.refusing import make_topic
from tests.real.steady import read_in_order
from tests.real.tenancy import LOGIN, PYTHON, USER, access, logged_in, upstream
from tests.real.test_refused_produce import ALL, CLIENTS, WRITTEN, write

pytestmark = pytest.mark.kafka

RATE, SIZE, MESSAGES, PARTITIONS = 100_000, 5000, 280, 3
"""14 s of the rate: 10 s of it pass at once, the rest takes 4 s of refusals."""


def test_refused_batches_are_written_once_and_in_order(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    admin = AdminClient(access(tenants3.bootstrap_servers))
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(90)
    rates = {"topics": {name: {"bytes_in": RATE}}, "mode": "transient"}
    with ProxyProcess(tmp_path, tenants3.bootstrap_servers, {"quotas": {"topic_rates": rates}, "upstream": upstream()}) as proxy:
        settings = {"enable.idempotence": True, "batch.size": 3 * SIZE, "log_level": 2, "retry.backoff.ms": 50}
        producer = Producer({**access(proxy.bootstrap), **settings})
        errors: list[str] = []
        began = time.monotonic()
        for number in range(MESSAGES):
            producer.produce(
                name,
                b"%06d" % number + bytes(SIZE - 6),
                partition=number % PARTITIONS,
                on_delivery=lambda error, _: errors.append(str(error)) if error is not None else None,
            )
        assert producer.flush(90) == 0
        assert time.monotonic() - began >= 3, "what is above the rate takes time"
        assert not errors
        proxy.wait_for("over quota", quota="topic_producer_byte_rate", action="refuse")
    consumer = Consumer({**access(tenants3.bootstrap_servers), "group.id": name, "log_level": 2})
    consumer.assign([TopicPartition(name, i, OFFSET_BEGINNING) for i in range(PARTITIONS)])
    got: dict[int | None, list[int]] = {}
    deadline = time.monotonic() + 90
    while sum(map(len, got.values())) < MESSAGES and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            got.setdefault(message.partition(), []).append(int((message.value() or b"")[:6]))
    consumer.close()
    assert got == {i: list(range(i, MESSAGES, PARTITIONS)) for i in range(PARTITIONS)}


SLOW = 10_000
"""Bytes per second of the topics below."""


@pytest.mark.parametrize(
    ("mode", "owed", "limits", "counter"),
    [
        ("throttle", 6.0, {}, "throttled_requests_total"),
        ("transient", 6.0, {}, "refused_items_total"),
        ("throttle", 11.5, {"max_throttle": "300ms"}, "refused_items_total"),  # more than throttles can pay
    ],
)
def test_every_client_library_writes_later_and_sees_no_error(
    tenants1: LocalCluster, tmp_path: Path, name: str, mode: str, owed: float, limits: dict[str, str], counter: str
) -> None:
    """`owed`: seconds of the rate when clients start. Where that is over before they have started, as on a busy machine, nothing
    was tried: then they come once more, and four times as much is owed."""
    for times in (1, 4):
        (folder := tmp_path / str(times)).mkdir()
        topics = {client: f"{name}-{client.replace(' ', '-')}-{times}" for client in CLIENTS}
        rates = {"topics": {topic: {"bytes_in": SLOW} for topic in topics.values()}, "mode": mode}
        settings = {"quotas": {"topic_rates": rates}, "limits": limits, "upstream": upstream()}
        for topic in topics.values():
            make_topic(tenants1.bootstrap_servers, topic, 2, USER)
        with ProxyProcess(folder / "proxy", tenants1.bootstrap_servers, settings) as proxy:
            run = partial(owing, proxy, topics, round(SLOW * (10 + owed * times)), folder)
            with ThreadPoolExecutor(len(CLIENTS)) as threads:
                seen = dict(zip(CLIENTS, threads.map(run, CLIENTS), strict=True))
            tried = proxy.metric(counter, quota="topic_producer_byte_rate")
        assert {client: said[:6] for client, said in seen.items()} == dict.fromkeys(CLIENTS, WRITTEN * 2)
        for topic in topics.values():
            assert read_in_order(tenants1.bootstrap_servers, topic, 2, **LOGIN)[0] == ALL
        if tried >= len(CLIENTS):
            return
    pytest.fail(f"of {len(CLIENTS)} clients {tried:.0f} were held back")


def owing(proxy: ProxyProcess, topics: Mapping[str, str], size: int, folder: Path, client: str) -> list[str]:
    """What a client sees that writes to its topic just after so many bytes were written there."""
    with logged_in(proxy.bootstrap) as connection:
        write(connection, topics[client], 1, bytes(size))
    return CLIENTS[client](proxy, topics[client], "all", lambda: None, folder / client)


def aiokafka_reads(address: str, topic: str, count: int) -> list[bytes]:
    async def read() -> list[bytes]:
        consumer = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", **PYTHON)
        async with consumer:
            return [(await consumer.getone()).value or b"" for _ in range(count)]

    return asyncio.run(read())


def kafka_python_reads(address: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(topic, bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **PYTHON)
    found = [next(consumer).value for _ in range(count)]
    consumer.close()
    return found


@pytest.mark.parametrize("reads", [aiokafka_reads, kafka_python_reads])
@pytest.mark.parametrize("quota", ["topic_consumer_byte_rate", "cold_read_rate"])
def test_consumers_of_other_libraries_get_everything_later(
    tenants1: LocalCluster, tmp_path: Path, name: str, quota: str, reads: Callable[[str, str, int], list[bytes]]
) -> None:
    make_topic(tenants1.bootstrap_servers, name, 1, USER)
    values = [b"%06d" % n + bytes(4994) for n in range(24)]  # 12 s of the rate
    with logged_in(tenants1.bootstrap_servers) as connection:
        for value in values:
            write(connection, name, 0, value)
    quotas = (
        {"topic_rates": {"topics": {name: {"bytes_out": SLOW}}}}
        if quota == "topic_consumer_byte_rate"
        else {"entities": [{"user": USER, "cluster_cold_read_rate": SLOW}], "cold_read_lag": 0}
    )
    with ProxyProcess(tmp_path, tenants1.bootstrap_servers, {"quotas": quotas, "upstream": upstream()}) as proxy:
        assert reads(proxy.bootstrap, name, len(values)) == values
        proxy.wait_for("over quota", quota=quota, action="throttle")
