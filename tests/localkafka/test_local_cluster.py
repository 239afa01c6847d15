"""localkafka.cluster: real clusters, from one broker to three, stopped, killed, moved, and failing to start."""

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from processes import with_word

from localkafka import LocalCluster, NodeError, Tls, node
from localkafka.ports import HOST, HeldPort
from localkafka.storage import FormatError
from tests.certs import Authority
from tests.conftest import QUICK_START
from tests.real.proxies import wait_until

pytestmark = pytest.mark.kafka
QUIET = {"log_level": 0}


def produce(servers: str, topic: str, values: list[str], partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
    """Produce, to one partition after the other, and fail unless every value was acknowledged by all replicas."""
    failed: list[object] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", **QUIET, **(settings or {})})
    for number, value in enumerate(values):
        producer.produce(
            topic, value, partition=number % partitions, on_delivery=lambda error, _message: failed.append(error) if error else None
        )
    assert producer.flush(90) == 0
    assert failed == []


def consume(servers: str, topic: str, count: int, partitions: int = 1) -> list[str]:
    """The first `count` values of a topic, sorted. Groups are left to the tests of Kafka's own tools: joining takes seconds."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "unused", **QUIET})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    messages = consumer.consume(count, 90)
    consumer.close()
    return sorted((message.value() or b"").decode() for message in messages)


def create(servers: str, topic: str, partitions: int, replicas: int) -> None:
    """Create a topic and wait until it is there."""
    admin = AdminClient({"bootstrap.servers": servers, **QUIET})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(90)


def addresses(server: str) -> dict[int, str]:
    """Node id to address, as one broker tells clients."""
    metadata = AdminClient({"bootstrap.servers": server, **QUIET}).list_topics(timeout=90)
    return {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}


def all_know(cluster: LocalCluster) -> None:
    """Where everybody is. A broker that a busy machine holds up for seconds is away for a moment."""
    everybody = {number: broker.address for number, broker in enumerate(cluster.brokers)}
    wait_until(lambda: all(addresses(address) == everybody for address in everybody.values()), "all brokers to know all of them")


def test_one_broker_takes_and_gives_records(kafka1: LocalCluster) -> None:
    produce(kafka1.bootstrap_servers, "one", ["a", "b", "c"])  # a topic made by itself
    assert consume(kafka1.bootstrap_servers, "one", 3) == ["a", "b", "c"]
    assert addresses(kafka1.bootstrap_servers) == {0: kafka1.brokers[0].address}


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    """Three brokers of this module's own: those that the session shares keep their addresses."""
    with LocalCluster(3, jvm_flags=[*QUICK_START, "-Xmx256m"], properties={"num.partitions": 2}) as cluster:
        yield cluster


def test_three_brokers_replicate(three: LocalCluster) -> None:
    create(three.bootstrap_servers, "three", 6, 3)
    produce(three.bootstrap_servers, "three", [str(number) for number in range(9)], 6)
    assert consume(three.bootstrap_servers, "three", 9, 6) == [str(number) for number in range(9)]
    all_know(three)


def test_partitions_are_spread_over_several_log_dirs(three: LocalCluster) -> None:
    create(three.bootstrap_servers, "spread", 6, 3)
    produce(three.bootstrap_servers, "spread", ["x"] * 6, 6)
    for broker in three.brokers:
        assert len(broker.log_dirs) == 2
        assert all(any(folder.glob("spread-*")) for folder in broker.log_dirs)


def test_a_broker_stops_and_starts_again_at_its_address(three: LocalCluster) -> None:
    create(three.bootstrap_servers, "stopped", 3, 3)
    broker = three.brokers[1]
    three.stop_broker(1)
    assert not broker.running
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, broker.listeners.client), 5)
    produce(three.bootstrap_servers, "stopped", ["while one was away"])
    three.start_broker(1)
    all_know(three)
    assert consume(broker.address, "stopped", 1) == ["while one was away"]
    with pytest.raises(RuntimeError, match="broker 1 runs"):
        three.start_broker(1)


def test_a_killed_broker_comes_back_elsewhere_and_everybody_knows(three: LocalCluster) -> None:
    before = three.brokers[2].address
    three.kill_broker(2)
    three.start_broker(2, move=True)
    assert three.brokers[2].address != before
    all_know(three)


def test_properties_are_those_asked_for(three: LocalCluster) -> None:
    produce(three.bootstrap_servers, "asked", ["x"])
    metadata = AdminClient({"bootstrap.servers": three.bootstrap_servers, **QUIET}).list_topics("asked", timeout=90)
    assert len(metadata.topics["asked"].partitions) == 2


def test_a_broker_that_dies_while_it_starts_again_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalCluster(1, jvm_flags=QUICK_START, log_dirs=3) as cluster:
        assert len(cluster.brokers[0].log_dirs) == 3
        cluster.stop_broker(0)
        monkeypatch.setattr(cluster, "_properties", {"num.io.threads": "none"})
        with pytest.raises(NodeError, match=r"(?s)node 0 ended with exit code 1.*num\.io\.threads"):
            cluster.start_broker(0)
        assert not cluster.brokers[0].wanted


def test_a_cluster_that_cannot_start_says_why_and_leaves_nothing() -> None:
    cluster = LocalCluster(1, jvm_flags=QUICK_START, properties={"num.io.threads": "none"})
    with pytest.raises(NodeError, match=r"num\.io\.threads"):
        cluster.start()
    assert with_word(str(cluster.brokers[0].folder.parent)) == []
    assert not cluster.brokers[0].folder.exists()


def test_a_version_that_formats_in_another_way_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka 4.4 did when it was new."""
    monkeypatch.setattr("localkafka.storage._place", lambda _: Path("elsewhere"))
    with pytest.raises(FormatError, match=r"of this version makes no elsewhere:\n(?s:.+)"):
        LocalCluster(1, sasl={"alice": "secret"}).start()


def test_a_cluster_that_is_never_ready_says_so() -> None:
    with pytest.raises(NodeError, match=r"was not ready after 0 s"):
        LocalCluster(1, jvm_flags=QUICK_START, start_limit=0.0).start()


def test_a_taken_port_is_exchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as taken:
        number = taken.getsockname()[1]

        class Unlucky(HeldPort):
            left = 1

            def __init__(self) -> None:
                super().__init__()
                if Unlucky.left:
                    Unlucky.left -= 1
                    self.number = number

        monkeypatch.setattr(node, "HeldPort", Unlucky)
        with LocalCluster(1, jvm_flags=QUICK_START) as cluster:
            assert cluster.brokers[0].listeners.client != number
            assert addresses(cluster.bootstrap_servers) == {0: cluster.brokers[0].address}


def test_data_that_is_given_a_folder_outlives_the_cluster(tmp_path: Path) -> None:
    with LocalCluster(1, jvm_flags=QUICK_START, data_dir=tmp_path) as cluster:
        produce(cluster.bootstrap_servers, "kept", ["x"])
    with LocalCluster(1, jvm_flags=QUICK_START, data_dir=tmp_path) as cluster:
        assert consume(cluster.bootstrap_servers, "kept", 1) == ["x"]
        with pytest.raises(RuntimeError, match="started already"):
            cluster.start()
    cluster.stop()
    assert tmp_path.exists()


@pytest.fixture(scope="module")
def secure() -> Iterator[LocalCluster]:
    """One broker that asks for a login."""
    with LocalCluster(1, jvm_flags=QUICK_START, sasl={"alice": "s3cret:/?", "bob": "b"}) as cluster:
        yield cluster


def login(mechanism: str, user: str, password: str) -> dict[str, str]:
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}


@pytest.mark.nightly  # tests/real/test_sasl_clients.py logs in by each mechanism, and with a wrong password
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("user", "password"), [("alice", "s3cret:/?"), ("bob", "b")])
def test_users_log_in(secure: LocalCluster, mechanism: str, user: str, password: str) -> None:
    produce(secure.bootstrap_servers, "secure", ["x"], settings=login(mechanism, user, password))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "settings", [{}, login("PLAIN", "alice", "b"), login("SCRAM-SHA-512", "alice", "b"), login("PLAIN", "eve", "b")]
)
def test_others_do_not(secure: LocalCluster, settings: dict[str, str]) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": secure.bootstrap_servers, **QUIET, **settings}).list_topics(timeout=1)


@pytest.mark.nightly  # tests/real/test_confirmed_topics.py has users without rights
def test_with_an_authorizer_only_super_users_may_do_something_at_first() -> None:
    with LocalCluster(1, jvm_flags=QUICK_START, sasl={"root": "r", "bob": "b"}, super_users=["root"]) as cluster:
        produce(cluster.bootstrap_servers, "of-root", ["x"], settings=login("PLAIN", "root", "r"))
        seen = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET, **login("PLAIN", "bob", "b")}).list_topics(
            timeout=90
        )
        assert not seen.topics


@pytest.mark.nightly  # tests/real/test_upstream_security.py goes to brokers by TLS with certificates and with logins
def test_clients_come_by_tls_with_a_certificate_and_a_login(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    broker, client = authority.server("broker", HOST), authority.client("client")
    with LocalCluster(1, jvm_flags=QUICK_START, sasl={"bob": "b"}, tls=Tls(broker.cert, broker.key, authority.file)) as cluster:
        trusting = {**login("PLAIN", "bob", "b"), "security.protocol": "SASL_SSL", "ssl.ca.location": str(authority.file)}
        own = {"ssl.certificate.location": str(client.cert), "ssl.key.location": str(client.key)}
        produce(cluster.bootstrap_servers, "by-tls", ["x"], settings={**trusting, **own})
        with pytest.raises(KafkaException):
            AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **QUIET, **trusting}).list_topics(timeout=1)
