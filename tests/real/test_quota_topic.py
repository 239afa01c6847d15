"""The topic that keeps quotas, when it is not as it should be: what a proxy says, and how it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection, connect

pytestmark = pytest.mark.kafka


def proxy_of(folder: Path, kafka: LocalCluster, topic: str, **more: str) -> ProxyProcess:
    """Anybody may alter quotas, as nobody logs in."""
    quotas = {"admins": ["ANONYMOUS"], "dynamic": {"topic": topic}, "entities": [{"user": "a", "producer_ids_rate": 1}]}
    return ProxyProcess(folder, kafka.bootstrap_servers, {"quotas": quotas, "upstream": {"metadata_refresh": "200ms"}, **more})


@pytest.fixture
def admin(kafka1: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka1.bootstrap_servers})


def alter(connection: Connection, user: str, rate: float) -> tuple[int, str | None]:
    entity, op = {"entity_type": "user", "entity_name": user}, {"key": "producer_ids_rate", "value": rate, "remove": False}
    answer = connection.decoded(49, 1, entries=[{"entity": [entity], "ops": [op]}])
    return int(answer.entries[0].error_code), answer.entries[0].error_message


def create(admin: AdminClient, name: str, partitions: int, **settings: str) -> None:
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(90)


@pytest.mark.parametrize(
    ("partitions", "policy", "said"),
    [(2, "compact", "it has 2 partitions; it must have one"), (1, "delete", "its cleanup.policy is delete")],
)
def test_a_topic_that_would_forget_is_not_used(
    kafka1: LocalCluster, admin: AdminClient, tmp_path: Path, name: str, partitions: int, policy: str, said: str
) -> None:
    create(admin, name, partitions, **{"cleanup.policy": policy})
    producer = Producer({"bootstrap.servers": kafka1.bootstrap_servers})
    producer.produce(name, b"something", b"of somebody")
    producer.flush(90)
    with proxy_of(tmp_path, kafka1, name) as proxy, connect(proxy.bootstrap) as connection:
        assert said in proxy.wait_for("quota topic is away")["reason"]
        code, message = alter(connection, "x", 5)
        assert (code, said in str(message)) == (8, True)
        if policy == "delete":
            op = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[op])
            admin.incremental_alter_configs([resource])[resource].result(90)
            proxy.wait_for("quota topic is up")
            assert alter(connection, "x", 5) == (0, None)


def test_a_topic_that_is_deleted_is_made_and_filled_again(
    kafka1: LocalCluster, admin: AdminClient, tmp_path: Path, name: str
) -> None:
    """As long as one proxy runs, nothing that was acknowledged is lost."""
    with proxy_of(tmp_path / "one", kafka1, name) as proxy, connect(proxy.bootstrap) as connection:
        for rate in range(2, 5):
            assert alter(connection, "a", rate) == (0, None)
        admin.delete_topics([name])[name].result(90)
        assert proxy.wait_for("quotas written again")["limits"] == 1
        assert wait_until(lambda: described(connection) == 4 and alter(connection, "b", 7) == (0, None), "an alteration")
        assert not proxy.lines("quota changed", old=4.0)
        with proxy_of(tmp_path / "two", kafka1, name, proxy_id="two") as other, connect(other.bootstrap) as second:
            assert described(second) == 4
            assert proxy.metric("enforces_alone") == 0
            assert alter(second, "b", 8) == (0, None)
            assert "proxy two stands before the same cluster" in proxy.wait_for("quotas are not shared")["reason"]
            assert proxy.metric("enforces_alone") == 1
            assert other.metric("enforces_alone") == 0, "it is the one that altered"
        resource = ConfigResource(ResourceType.TOPIC, name)
        assert admin.describe_configs([resource])[resource].result(90)["cleanup.policy"].value == "compact"


def described(connection: Connection) -> float:
    answer = connection.decoded(48, 1, components=[{"entity_type": "user", "match_type": 0, "match": "a"}])
    return float(answer.entries[0].values[0].value)


def test_too_few_replicas(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """What too few brokers have is not acknowledged; it goes on when they are back."""
    how = AdminClient({"bootstrap.servers": kafka3.bootstrap_servers})
    settings = {"cleanup.policy": "compact", "min.insync.replicas": "3"}
    how.create_topics([NewTopic(name, 1, 3, config=settings)])[name].result(90)
    with proxy_of(tmp_path, kafka3, name) as proxy:
        assert altered(proxy, 2) == 0
        kafka3.stop_broker(2)
        try:
            wait_until(lambda: altered(proxy, 3) == 8, "a refusal", 60)
        finally:
            kafka3.start_broker(2)
        wait_until(lambda: altered(proxy, 4) == 0, "an alteration that is taken again", 60)


def altered(proxy: ProxyProcess, rate: float) -> int | None:
    """The error code; None when the connection was to the broker that went away."""
    try:
        with connect(proxy.bootstrap) as connection:
            return alter(connection, "a", rate)[0]
    except (ConnectionError, TimeoutError):
        return None


def test_partitions_that_are_added_later(kafka1: LocalCluster, admin: AdminClient, tmp_path: Path, name: str) -> None:
    """Whoever runs goes on with the first; whoever starts says what is wrong."""
    with proxy_of(tmp_path / "one", kafka1, name) as proxy, connect(proxy.bootstrap) as connection:
        assert alter(connection, "a", 2) == (0, None)
        admin.create_partitions([NewPartitions(name, 3)])[name].result(90)
        assert alter(connection, "a", 3) == (0, None)
        with proxy_of(tmp_path / "two", kafka1, name) as other:
            assert "it has 3 partitions" in other.wait_for("quota topic is away")["reason"]
