"""All controller mutations on real brokers with an authorizer, and on clients that log in: what is charged, who is refused, who is
slowed; and that a token bucket here does what the broker's own does."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from localkafka import LocalCluster, run_java, tool
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.tenancy import PYTHON, USER, USERS, access, java_properties, logged_in, tenant_cluster, upstream

pytestmark = pytest.mark.kafka

REFUSED, EXISTS, UNKNOWN = 89, 36, 3
RATE, BURST = 10, 20
SECONDS = datetime.timedelta(seconds=20)


@pytest.fixture(scope="module")
def limited(tenants3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """Every client id of the user has a quota of its own, those named `little` one that is used up for hours by a single topic,
    those named `slow` one that 30 partitions use up for longer than any broker takes to make them."""
    everyone = {"user": USER, "client_id": "<default>", "controller_mutations_rate": RATE, "controller_mutations_burst": BURST}
    hardly = {"controller_mutations_rate": 0.001, "controller_mutations_burst": 1}
    little = [{"user": USER, "client_id": f"little-{i}", **hardly} for i in range(9)]
    slow = [
        {"user": USER, "client_id": f"slow-{client}", "controller_mutations_rate": 0.1, "controller_mutations_burst": BURST}
        for client in ("librdkafka", "aiokafka")
    ]
    settings = {
        "quotas": {"entities": [everyone, *little, *slow]},
        "exempt": {"clients": [{"user": USER, "client_id": "operator"}]},
        "upstream": upstream(),
        "limits": {"max_throttle": "2s"},
    }
    with ProxyProcess(tmp_path_factory.mktemp("mutations"), tenants3.bootstrap_servers, settings) as proxy:
        yield proxy


@pytest.fixture
def little(limited: ProxyProcess, name: str) -> Callable[[int], str]:
    """The client id of a quota that is used up already."""

    def used_up(number: int) -> str:
        client_id = f"little-{number}"
        with logged_in(limited.bootstrap) as connection:
            connection.client_id = client_id
            answer = connection.decoded(19, 7, topics=[topic(f"{name}-used-{number}", 5)], timeout=SECONDS)
        assert answer.topics[0].error_code == 0
        return client_id

    return used_up


def topic(name: str, partitions: int) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


def sizes(kafka: LocalCluster, name: str) -> dict[str, int]:
    """Topics of this test and their numbers of partitions, as the cluster itself says."""
    found = AdminClient(access(kafka.bootstrap_servers)).list_topics(timeout=90).topics
    return {topic: len(found[topic].partitions) for topic in found if topic.startswith(f"{name}-")}


def test_java_gets_there_or_is_told(limited: ProxyProcess, name: str) -> None:
    source = Path(__file__).parent / "java" / "Mutations.java"
    run = run_java(source, limited.bootstrap, name, "little-0", USER, USERS[USER], check=True, timeout=120)
    assert run.stdout.splitlines() == [
        "created: all",
        "grown: all",
        "deleted: all",
        "create: quota exceeded, wait told",
        "grow: quota exceeded, wait told",
        "grow to what it has: InvalidPartitionsException",
        "delete: quota exceeded, wait told",
        "delete by id: quota exceeded, wait told",
        "delete what is not there: UnknownTopicOrPartitionException",
    ]


def test_kafka_topics_alters_and_deletes_until_the_quota_says_no(limited: ProxyProcess, tenants3: LocalCluster, name: str) -> None:
    config = java_properties(limited.folder, client_id="little-1")
    where = ("--command-config", config, "--topic", f"{name}-0")
    assert tool("topics", "--bootstrap-server", tenants3.bootstrap_servers, *where, "--create").returncode == 0
    how = ("--bootstrap-server", limited.bootstrap, *where)
    grown = tool("topics", *how, "--alter", "--partitions", "9")
    assert grown.returncode == 0, grown.stderr
    refused = tool("topics", *how, "--delete")
    assert refused.returncode != 0
    assert f"The controller mutation quota of user {USER}, client-id little-1 is exceeded" in refused.stdout + refused.stderr
    wait_until(lambda: sizes(tenants3, name) == {f"{name}-0": 9}, "the broker that is asked to know the topic")


def test_librdkafka_is_slowed_and_never_refused(limited: ProxyProcess, tenants3: LocalCluster, name: str) -> None:
    """It speaks CreatePartitions 2 and DeleteTopics 4."""
    admin = AdminClient(access(limited.bootstrap, **{"client.id": "slow-librdkafka"}))
    before = limited.metric("throttled_requests_total", quota="controller_mutations")
    admin.create_topics([NewTopic(f"{name}-0", 30, 1)])[f"{name}-0"].result(90)
    admin.create_partitions([NewPartitions(f"{name}-0", 40)])[f"{name}-0"].result(90)
    wait_until(lambda: sizes(tenants3, name) == {f"{name}-0": 40}, "ten partitions more")
    admin.delete_topics([f"{name}-0"])[f"{name}-0"].result(90)
    wait_until(lambda: not sizes(tenants3, name), "the topic to go")
    assert limited.metric("throttled_requests_total", quota="controller_mutations") > before


def test_aiokafka_is_slowed_and_never_refused(limited: ProxyProcess, tenants3: LocalCluster, name: str) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=limited.bootstrap, client_id="slow-aiokafka", **PYTHON)
        await admin.start()
        try:
            from aiokafka.admin import NewTopic as AioNewTopic

            made = await admin.create_topics([AioNewTopic(f"{name}-0", 30, 1), AioNewTopic(f"{name}-1", 1, 1)])
            assert [error for _, error, *_ in made.topic_errors] == [0, 0]
            grown = await admin.create_partitions({f"{name}-1": AioNewPartitions(total_count=3)})
            assert [error for _, error, *_ in grown.topic_errors] == [0]
            gone = await admin.delete_topics([f"{name}-0", f"{name}-1"])
            assert [error for _, error, *_ in gone.topic_error_codes] == [0, 0]
        finally:
            await admin.close()

    before = limited.metric("throttled_requests_total", quota="controller_mutations")
    asyncio.run(run())
    wait_until(lambda: not sizes(tenants3, name), "the topics to go")
    assert limited.metric("throttled_requests_total", quota="controller_mutations") > before


def test_what_exists_or_does_not_is_the_brokers_to_say(limited: ProxyProcess, little: Callable[[int], str], name: str) -> None:
    with logged_in(limited.bootstrap) as connection:
        connection.client_id = little(2)
        made = connection.decoded(19, 7, topics=[topic(f"{name}-new", 1), topic(f"{name}-used-2", 1)], timeout=SECONDS)
        assert [(t.name, int(t.error_code)) for t in made.topics] == [(f"{name}-new", REFUSED), (f"{name}-used-2", EXISTS)]
        gone = connection.decoded(20, 6, topics=[{"name": f"{name}-no"}, {"name": f"{name}-used-2"}], timeout=SECONDS)
        assert [(t.name, int(t.error_code)) for t in gone.responses] == [(f"{name}-no", UNKNOWN), (f"{name}-used-2", REFUSED)]


def test_what_the_broker_refuses_is_not_charged(limited: ProxyProcess, tenants3: LocalCluster, name: str) -> None:
    """Nine brokers for each partition: the quota would be used up many times over."""
    with logged_in(limited.bootstrap) as connection:
        connection.client_id = "little-3"
        for _ in range(3):
            many = {**topic(f"{name}-0", 500), "replication_factor": 9}
            (refused,) = connection.decoded(19, 7, topics=[many], timeout=SECONDS).topics
            assert refused.error_code not in (0, REFUSED)
        (made,) = connection.decoded(19, 7, topics=[topic(f"{name}-0", 1)], timeout=SECONDS).topics
        assert made.error_code == 0
    wait_until(lambda: sizes(tenants3, name) == {f"{name}-0": 1}, "the topic")


def test_the_clusters_own_default_is_charged(tmp_path: Path, name: str) -> None:
    """num.partitions is 7, which nobody told the proxy; two topics are 14, above the 10 of the burst."""
    limit = {"user": USER, "client_id": "raw", "controller_mutations_rate": 0.01, "controller_mutations_burst": 10}
    settings = {"quotas": {"entities": [limit]}, "limits": {"max_throttle": "1s"}, "upstream": upstream()}
    with (
        tenant_cluster(1, properties={"num.partitions": "7"}) as kafka,
        ProxyProcess(tmp_path, kafka.bootstrap_servers, settings) as proxy,
        logged_in(proxy.bootstrap) as connection,
    ):
        made = connection.decoded(19, 7, topics=[topic(f"{name}-{i}", -1) for i in range(3)], timeout=SECONDS)
        assert [int(t.error_code) for t in made.topics] == [0, 0, REFUSED]
        proxy.stop()
        rows = [line for line in proxy.usage() if line.get("mutations")]
        assert sum(line["mutations"] for line in rows) == 14


def test_a_producer_and_a_consumer_create_no_topics_beyond_the_quota(
    limited: ProxyProcess, tenants3: LocalCluster, little: Callable[[int], str], name: str
) -> None:
    """auto.create.topics.enable is on: by being named the first topic comes, the second does not before there is room."""
    client_id = little(4)
    for kind in (Producer, Consumer):
        more = {"group.id": name, "allow.auto.create.topics": True} if kind is Consumer else {"message.timeout.ms": 1500}
        client = kind(access(limited.bootstrap, **{"client.id": client_id, **more}))
        if isinstance(client, Producer):
            errors: list[Any] = []
            client.produce(f"{name}-by-producer", b"x", on_delivery=lambda error, _, errors=errors: errors.append(error))
            client.flush(90)
            assert errors[0] is not None
        else:
            client.subscribe([f"{name}-by-consumer"])
            wait_until(lambda client=client: (message := client.poll(0.2)) and message.error(), "the consumer to be told")
            client.close()
    assert sizes(tenants3, name).keys() == {f"{name}-used-4"}
    producer = Producer(access(limited.bootstrap, **{"client.id": f"rich-{name}"}))
    producer.produce(f"{name}-allowed", b"x")
    assert producer.flush(90) == 0
    wait_until(lambda: f"{name}-allowed" in sizes(tenants3, name), "the broker that is asked to know the topic")


# ---------------------------------------------------------------------- the token bucket


def set_broker_quota(kafka: LocalCluster, client_id: str, rate: float) -> None:
    """The broker's own quota of the user's client id, once it is in force."""
    names = {"user": USER, "client-id": client_id}
    entity = [{"entity_type": sort, "entity_name": each} for sort, each in names.items()]
    wanted = [{"entity_type": sort, "match_type": 0, "match": each} for sort, each in names.items()]
    with logged_in(kafka.brokers[0].address, "operator") as connection:
        op = {"key": "controller_mutation_rate", "value": rate, "remove": False}
        (answer,) = connection.decoded(49, 1, entries=[{"entity": entity, "ops": [op]}]).entries
        assert answer.error_code == 0
        wait_until(lambda: connection.decoded(48, 1, components=wanted, strict=True).entries, "the broker to know the quota")


BUCKET = 0.5
"""The rate of token buckets; their burst is that of 11 windows, as brokers have it."""


@contextmanager
def both_buckets(
    kafka: LocalCluster, folder: Path, client_id: str, max_throttle: str, rate: float = BUCKET
) -> Iterator[dict[str, tuple[str, str]]]:
    """(address, client id) directly and through a proxy, with the same quota at the broker and at the proxy."""
    ids = {side: f"{client_id}-{side}" for side in ("direct", "through")}
    set_broker_quota(kafka, ids["direct"], rate)
    limit = {"controller_mutations_rate": rate, "controller_mutations_burst": 11 * rate}
    quotas = {
        "entities": [{"user": USER, "client_id": ids["through"], **limit}],
        "controller_mutations_algorithm": "token_bucket",
    }
    settings = {"quotas": quotas, "limits": {"max_throttle": max_throttle}, "upstream": upstream()}
    with ProxyProcess(folder, kafka.bootstrap_servers, settings) as proxy:
        yield {"direct": (kafka.brokers[0].address, ids["direct"]), "through": (proxy.bootstrap, ids["through"])}


@pytest.mark.parametrize(("version", "accepted"), [(7, 3), (4, 6)])
def test_a_token_bucket_accepts_and_tells_what_the_brokers_own_does(
    tenants3: LocalCluster, tmp_path: Path, name: str, version: int, accepted: int
) -> None:
    """The same topics are accepted, and the same wait is told, but for what comes in while a request is on its way."""
    codes, waits, took = [], [], []
    with both_buckets(tenants3, tmp_path, name, "10m") as sides:
        for side, (address, client_id) in sides.items():
            with logged_in(address) as connection:
                connection.client_id = client_id
                began = time.monotonic()
                asked = [topic(f"{name}-{side}-{i}", 2) for i in range(6)]
                made = connection.decoded(19, version, topics=asked, timeout=SECONDS)
                took.append(time.monotonic() - began)
            codes.append(sorted(int(t.error_code) for t in made.topics))
            waits.append(made.throttle_time.total_seconds())
    assert codes[0] == codes[1] == [0] * accepted + [REFUSED] * (6 - accepted)
    assert waits[0] + took[0] > 0.5, "what is told is less by the time that the answer took"
    assert abs(waits[0] - waits[1]) <= max(took)


def knows_everywhere(kafka: LocalCluster, name: str) -> bool:
    """A broker may hear of a new topic later than the controller."""
    for broker in kafka.brokers:
        with logged_in(broker.address) as connection:
            if connection.decoded(3, 12, topics=[{"name": name}], allow_auto_topic_creation=False).topics[0].error_code:
                return False
    return True


def test_a_token_bucket_refuses_what_the_brokers_own_does(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    """New partitions and deletions too; what would be nothing is the broker's to say. After the topic, the bucket needs minutes."""
    steps: list[list[list[int]]] = []
    with both_buckets(tenants3, tmp_path, name, "100ms", BUCKET / 20) as sides:
        for side, (address, client_id) in sides.items():
            own = f"{name}-{side}"

            def ask(key: int, version: int, address: str = address, client_id: str = client_id, **asked: Any) -> Any:
                with logged_in(address) as connection:  # a new one, as a broker too mutes that of a throttled request
                    connection.client_id = client_id
                    return connection.decoded(key, version, **asked, timeout=SECONDS)

            made = ask(19, 7, topics=[topic(own, 6)]).topics
            wait_until(lambda own=own: knows_everywhere(tenants3, own), "all brokers to know the topic")
            grown = ask(37, 3, topics=[{"name": own, "count": 7}]).results
            gone = ask(20, 6, topics=[{"name": own}]).responses
            steps.append([[int(each.error_code) for each in results] for results in (made, grown, gone)])
    assert steps[0] == steps[1] == [[0], [REFUSED], [REFUSED]]
