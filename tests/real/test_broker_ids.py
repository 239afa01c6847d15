"""Brokers whose ids are far apart, such as 101, 201 and 301: each has a port that its id alone says, or none; nobody is led to
another broker than it meant."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from localkafka import LocalCluster
from tests.conftest import QUICK_START
from tests.real.proxies import ProxyProcess, shared_ports, wait_until
from tests.real.raw import connect
from tests.real.steady import create
from tests.real.tenancy import LOGIN

pytestmark = pytest.mark.kafka

IDS = (101, 201, 301)


@pytest.fixture(scope="module")
def far(kafka_version: str) -> Iterator[LocalCluster]:
    with LocalCluster(3, ids=IDS, version=kafka_version, jvm_flags=QUICK_START) as cluster:
        create(cluster.bootstrap_servers, "t", 6)
        yield cluster


@pytest.fixture
def first() -> Iterator[int]:
    with shared_ports(11) as port:
        yield port


def listen(first: int, **more: Any) -> dict[str, Any]:
    """Ten ports for brokers, which two proxies share."""
    ports = {"bootstrap": f"127.0.0.1:{first}", "broker_ports": f"{first + 1}-{first + 10}", "reuse_port": True}
    return {"listen": ports | more}


def shown(bootstrap: str) -> dict[int, tuple[str, int]]:
    """Where clients are told that brokers are."""
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).brokers.values()
    return {broker.id: (broker.host, broker.port) for broker in brokers}


def leaders(bootstrap: str) -> dict[int, int]:
    """Partition → its leader."""
    found = AdminClient({"bootstrap.servers": bootstrap}).list_topics("t", timeout=60).topics["t"].partitions
    return {number: partition.leader for number, partition in found.items()}


def test_ids_that_are_named_have_the_same_ports_at_every_proxy_and_after_a_restart(
    far: LocalCluster, tmp_path: Path, first: int
) -> None:
    settings = listen(first, broker_ids=list(IDS))
    told = {node_id: ("127.0.0.1", first + 1 + place) for place, node_id in enumerate(IDS)}
    for name in ("a", "b"):
        with ProxyProcess(tmp_path / name, far.bootstrap_servers, settings) as proxy:
            assert shown(proxy.bootstrap) == told
    with ProxyProcess(tmp_path / "c", far.bootstrap_servers, settings) as proxy:
        failed: list[Any] = []
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
        for partition in range(6):
            producer.produce(
                "t", b"named", partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
            )
        assert producer.flush(60) == 0
        assert not failed
        assert proxy.get("/readyz") == (200, "ok\n")
        assert proxy.metric("brokers_without_port") == 0


def test_of_two_brokers_for_one_port_one_is_served_and_the_others_clients_are_refused(
    far: LocalCluster, tmp_path: Path, first: int
) -> None:
    far.stop_broker(101)
    with ProxyProcess(tmp_path / "late", far.bootstrap_servers, listen(first)) as proxy:
        assert shown(f"127.0.0.1:{first}") == {
            201: ("127.0.0.1", first + 2),
            301: ("broker-301-has-no-port.invalid", first),
        }
        far.start_broker(101)
        told = {
            101: ("127.0.0.1", first + 2),
            201: ("broker-201-has-no-port.invalid", first),
            301: ("broker-301-has-no-port.invalid", first),
        }
        wait_until(lambda: shown(f"127.0.0.1:{first}") == told, "the lowest id to have the port")
        reason = f"its port {first + 2} is that of broker 101"
        ready = ["ok", *(f"listener main: clients cannot reach broker {node_id}: {reason}" for node_id in (201, 301))]
        with ProxyProcess(tmp_path / "second", far.bootstrap_servers, {**listen(first), "workers": 2}) as second:
            assert shown(f"127.0.0.1:{first}") == told, "whoever answers"
            wait_until(lambda: second.get("/readyz")[1].splitlines() == ready, "all workers to know the brokers")
            assert second.metric("brokers_without_port") == 2
        status, text = proxy.get("/readyz")
        assert (status, text.splitlines()) == (200, ready)
        assert proxy.metric("brokers_without_port") == 2
        for node_id in (201, 301):
            assert "broker_ids" in proxy.wait_for("no port for a broker", broker=node_id, reason=reason)["detail"]
        reach_the_lowest_alone(far, f"127.0.0.1:{first}")


def reach_the_lowest_alone(far: LocalCluster, bootstrap: str) -> None:
    """Records for broker 101 are written, and those for others nowhere."""

    def known() -> dict[int, int] | None:
        """The leaders, once each broker leads something and all know it."""
        first, *others = (leaders(node.address) for node in far.brokers)
        if set(first.values()) != set(IDS):
            elect(far)
            return None
        return first if others == [first] * len(others) else None

    lead = wait_until(known, "each broker to lead something")
    mine = {partition for partition, node_id in lead.items() if node_id == 101}
    assert set(sent(bootstrap, mine, 60).values()) == {None}
    assert set(sent(bootstrap, lead.keys() - mine, 3).values()) == {KafkaError._MSG_TIMED_OUT}
    assert written(far, b"refused") == mine


def sent(bootstrap: str, partitions: Iterable[int], seconds: float) -> dict[int, int | None]:
    """Partition → None if a record was written there within this time, else the error's code."""
    found: dict[int, int | None] = {}
    quiet = {"log_level": 0, "error_cb": lambda _: None, "message.timeout.ms": int(seconds * 1000)}
    producer = Producer({"bootstrap.servers": bootstrap, **quiet})

    def told(error: KafkaError | None, message: Any) -> None:
        found[message.partition()] = None if error is None else error.code()

    for partition in partitions:
        producer.produce("t", b"refused", partition=partition, on_delivery=told)
    assert producer.flush(seconds + 60) == 0
    return found


def elect(far: LocalCluster) -> None:
    """Give brokers back what others lead in their place."""
    from confluent_kafka import ElectionType

    admin = AdminClient({"bootstrap.servers": far.bootstrap_servers})
    admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("t", number) for number in range(6)]).result(60)


def written(far: LocalCluster, value: bytes) -> set[int]:
    """The partitions in which it stands."""
    consumer = Consumer({"bootstrap.servers": far.bootstrap_servers, "group.id": "far", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition("t", number, 0) for number in range(6)])
        found, ended, until = set(), 0, time.monotonic() + 60
        while ended < 6 and time.monotonic() < until:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found |= {message.partition()} if message.value() == value else set()
            ended += message is not None and message.error() is not None
        assert ended == 6
        return found
    finally:
        consumer.close()


def test_clients_of_a_broker_at_whose_address_another_one_is_are_sent_off(
    tenants1: LocalCluster, tmp_path: Path, first: int
) -> None:
    """The proxy has no identity, so it learns from the first client's answer who is there."""
    (node,) = tenants1.brokers
    wrong = {"upstream": {"brokers": {5: node.address}}, **listen(first)}
    with ProxyProcess(tmp_path, tenants1.bootstrap_servers, wrong, wait_ready=False) as proxy:
        with connect(f"127.0.0.1:{first + 6}") as connection:
            assert connection.ask(18, 0), "its port is open"
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{first + 6}", "log_level": 0, **LOGIN})
        told = proxy_tells(admin, proxy)
        assert (told["broker"], told["address"], told["really"]) == (5, node.address, 0)
        assert told["connections_closed"] >= 1
        assert proxy.get("/readyz") == (200, f"ok\nupstream.brokers: {node.address} is broker 0, not 5\n")
        with pytest.raises(ConnectionRefusedError), connect(f"127.0.0.1:{first + 6}"):
            pass
        assert shown_to(LOGIN, f"127.0.0.1:{first}") == {0: ("127.0.0.1", first + 1)}


def proxy_tells(admin: AdminClient, proxy: ProxyProcess) -> dict[str, Any]:
    with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT"):
        admin.list_topics(timeout=3)
    return proxy.wait_for("address of another broker")


def shown_to(login: dict[str, Any], bootstrap: str) -> dict[int, tuple[str, int]]:
    brokers = AdminClient({"bootstrap.servers": bootstrap, **login}).list_topics(timeout=60).brokers.values()
    return {broker.id: (broker.host, broker.port) for broker in brokers}
