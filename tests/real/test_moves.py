"""Brokers stop, come back, move to another port while clients are connected: the proxy follows, clients recover."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import connect

pytestmark = pytest.mark.kafka


@pytest.fixture
def restored(kafka3: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster, whole again afterwards."""
    yield kafka3
    for node in kafka3.brokers:
        if not node.running:
            kafka3.start_broker(node.node_id)


def brokers(proxy: ProxyProcess) -> set[int]:
    with connect(proxy.bootstrap) as connection:
        return {broker.node_id for broker in connection.decoded(3, 12, topics=[]).brokers}


def test_a_broker_leaves_comes_back_elsewhere_and_no_record_is_lost(proxy: ProxyProcess, restored: LocalCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    admin.create_topics([NewTopic(name, 6, 3)])[name].result(90)
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True, "acks": "all"})

    def produce(values: range) -> None:
        for value in values:
            producer.produce(name, str(value).encode(), on_delivery=lambda e, _: e and failed.append(e))
        assert producer.flush(90) == 0

    produce(range(100))
    restored.stop_broker(2)
    wait_until(lambda: brokers(proxy) == {0, 1}, "broker 2 to be gone")
    produce(range(100, 200))
    restored.start_broker(2, move=True)
    wait_until(lambda: brokers(proxy) == {0, 1, 2}, "broker 2 to be back")
    assert 2 in proxy.wait_for("brokers changed", moved=[2])["moved"]
    restored.stop_broker(0)
    produce(range(200, 300))
    restored.start_broker(0)
    assert not failed
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    got: list[int] = []
    while len(got) < 300:
        message = consumer.poll(90)
        assert message is not None, f"only {len(got)} of 300"
        if not message.error():
            got.append(int(message.value()))
    consumer.close()
    assert sorted(got) == list(range(300))
