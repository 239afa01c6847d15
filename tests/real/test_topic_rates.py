"""A topic above its rate whose batches are refused, with a real idempotent producer: what it sends again is written once and in
order."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess
from tests.real.tenancy import access, upstream

pytestmark = pytest.mark.kafka

RATE, SIZE, MESSAGES, PARTITIONS = 100_000, 5000, 280, 3
"""14 s of the rate: 10 s of it pass at once, the rest takes 4 s of refusals."""


def test_refused_batches_are_written_once_and_in_order(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    admin = AdminClient(access(tenants3.bootstrap_servers))
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(20)
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
        assert producer.flush(60) == 0
        assert time.monotonic() - began >= 3, "what is above the rate takes time"
        assert not errors
        assert proxy.lines("over quota", quota="topic_producer_byte_rate", action="refuse")
    consumer = Consumer({**access(tenants3.bootstrap_servers), "group.id": name, "log_level": 2})
    consumer.assign([TopicPartition(name, i, OFFSET_BEGINNING) for i in range(PARTITIONS)])
    got: dict[int | None, list[int]] = {}
    deadline = time.monotonic() + 30
    while sum(map(len, got.values())) < MESSAGES and time.monotonic() < deadline:
        for message in consumer.consume(100, 0.2):
            assert message.error() is None
            got.setdefault(message.partition(), []).append(int((message.value() or b"")[:6]))
    consumer.close()
    assert got == {i: list(range(i, MESSAGES, PARTITIONS)) for i in range(PARTITIONS)}
