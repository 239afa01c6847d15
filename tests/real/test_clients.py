"""Unchanged clients on a cluster of three brokers: they produce, consume, commit and administrate through the proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as KafkaPythonTopic

from localkafka import LocalCluster, run_java, tool
from tests.real.proxies import ProxyProcess, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka]
RECORDS = 300


def create(proxy: ProxyProcess, topic: str, partitions: int = 6) -> None:
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(90)


def produce(proxy: ProxyProcess, topic: str, **settings: object) -> None:
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": proxy.bootstrap, **settings})
    for i in range(RECORDS):
        producer.produce(topic, str(i).encode(), str(i).encode(), on_delivery=lambda e, _: e and failed.append(e))
    assert producer.flush(90) == 0
    assert not failed


def consume(proxy: ProxyProcess, topic: str, group: str, count: int = RECORDS, **settings: object) -> list[int]:
    consumer = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": group, "auto.offset.reset": "earliest", **settings})
    consumer.subscribe([topic])
    got: list[int] = []
    while len(got) < count:
        message = consumer.poll(90)
        assert message is not None, f"only {len(got)} of {count}"
        assert message.error() is None, message.error()
        got.append(int(message.value() or b""))
    consumer.commit(asynchronous=False)
    consumer.close()
    return sorted(got)


@pytest.mark.parametrize("settings", [{}, {"enable.idempotence": True}, {"compression.type": "zstd", "linger.ms": 50}])
def test_librdkafka_produces_and_consumes(proxy: ProxyProcess, name: str, settings: dict[str, object]) -> None:
    create(proxy, name)
    produce(proxy, name, **settings)
    assert consume(proxy, name, name) == list(range(RECORDS))


def test_a_producer_that_wants_no_answers(proxy: ProxyProcess, name: str) -> None:
    """With acks=0 a broker that does not lead yet drops records without a word, so every partition takes one the safe way first."""
    create(proxy, name)
    first = Producer({"bootstrap.servers": proxy.bootstrap})
    for partition in range(6):
        first.produce(name, b"-1", partition=partition)
    assert first.flush(90) == 0
    produce(proxy, name, acks=0)
    assert consume(proxy, name, name, RECORDS + 6) == [-1] * 6 + list(range(RECORDS))


@pytest.mark.parametrize(
    "protocol",
    [
        "classic",
        pytest.param("consumer", marks=pytest.mark.since("4.0", "groups of protocol `consumer` unless asked for (KIP-848)")),
    ],
)
def test_groups_share_the_work_and_remember_offsets(proxy: ProxyProcess, name: str, protocol: str) -> None:
    create(proxy, name)
    produce(proxy, name)
    assert consume(proxy, name, name, **{"group.protocol": protocol}) == list(range(RECORDS))
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap})
    group = admin.describe_consumer_groups([name])[name].result(90)
    assert str(group.coordinator.port) in {str(broker.port) for broker in admin.list_topics(timeout=90).brokers.values()}
    committed = Consumer({"bootstrap.servers": proxy.bootstrap, "group.id": name}).committed(
        [TopicPartition(name, partition) for partition in range(6)], timeout=90
    )
    assert sum(partition.offset for partition in committed) == RECORDS


def test_transactions_commit_and_abort(proxy: ProxyProcess, name: str) -> None:
    create(proxy, name)
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "transactional.id": name})
    producer.init_transactions(90)
    for values, commit in ((range(10), True), (range(10, 20), False), (range(20, 30), True)):
        producer.begin_transaction()
        for value in values:
            producer.produce(name, str(value).encode())
        producer.flush(90)
        producer.commit_transaction(90) if commit else producer.abort_transaction(90)
    got = consume(proxy, name, name, 20, **{"isolation.level": "read_committed"})
    assert got == [*range(10), *range(20, 30)]


def test_librdkafka_admin(proxy: ProxyProcess, kafka3: LocalCluster, name: str) -> None:
    create(proxy, name, 2)
    through, direct = (AdminClient({"bootstrap.servers": servers}) for servers in (proxy.bootstrap, kafka3.bootstrap_servers))
    wait_until(lambda: len(through.list_topics(name, timeout=90).topics[name].partitions) == 2, "the topic")
    described, real = (admin.describe_cluster().result(90) for admin in (through, direct))
    assert described.cluster_id == real.cluster_id
    assert {node.id for node in described.nodes} == {node.id for node in real.nodes}
    through.delete_topics([name])[name].result(90)


def test_aiokafka(proxy: ProxyProcess, name: str) -> None:
    create(proxy, name)

    async def both_ways() -> list[int]:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, enable_idempotence=True) as producer:
            await asyncio.gather(*[await producer.send(name, str(i).encode()) for i in range(RECORDS)])
        settings = {"bootstrap_servers": proxy.bootstrap, "group_id": name, "auto_offset_reset": "earliest"}
        got: list[int] = []
        async with aiokafka.AIOKafkaConsumer(name, **settings) as consumer:
            async with asyncio.timeout(90):
                while len(got) < RECORDS:
                    got.append(int((await consumer.getone()).value))
            await consumer.commit()
        return sorted(got)

    assert asyncio.run(both_ways()) == list(range(RECORDS))


def test_kafka_python(proxy: ProxyProcess, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=proxy.bootstrap)
    admin.create_topics([KafkaPythonTopic(name, 3, 3)])
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap, acks="all")
    for i in range(RECORDS):
        producer.send(name, str(i).encode())
    producer.flush(90)
    consumer = KafkaConsumer(
        name, bootstrap_servers=proxy.bootstrap, group_id=name, auto_offset_reset="earliest", consumer_timeout_ms=90_000
    )
    got = sorted(int(next(consumer).value) for _ in range(RECORDS))
    consumer.close()
    assert got == list(range(RECORDS))
    admin.delete_topics([name])
    admin.close()


def test_java_tools(proxy: ProxyProcess, name: str) -> None:
    at = ("--bootstrap-server", proxy.bootstrap)
    tool("topics", *at, "--create", "--topic", name, "--partitions", "3", "--replication-factor", "3", check=True)
    producer = ("--topic", name, "--num-records", "1000", "--record-size", "100", "--throughput", "-1")
    produced = tool("producer-perf", *producer, "--producer-props", f"bootstrap.servers={proxy.bootstrap}", check=True)
    assert "1000 records sent" in produced.stdout
    consumed = tool(
        "console-consumer", *at, "--topic", name, "--from-beginning", "--max-messages", "1000", "--group", name, check=True
    )
    assert consumed.stdout.count("\n") >= 1000
    described = tool("groups", *at, "--list", check=True)
    assert name in described.stdout


@pytest.mark.since("4.2", "share groups (KIP-932)")
def test_java_share_consumer_and_transactions(proxy: ProxyProcess, name: str) -> None:
    """One Java program: a transaction commits, a share group gets its records and acknowledges them."""
    create(proxy, name, 3)
    done = run_java(Path(__file__).parent / "java" / "Through.java", proxy.bootstrap, name)
    assert done.returncode == 0, done.stderr
    assert "committed 50, shared 50" in done.stdout
