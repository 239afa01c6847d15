"""Topics that a real broker creates because clients name them: no more than the quota allows, however they are named, and in the
end all of them; and partitions that are added behind a long poll."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection, connect

pytestmark = pytest.mark.kafka

RATE, BURST = 5, 20


@pytest.fixture(scope="module")
def limited(kafka1: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """Every client id has a quota of its own."""
    everyone = {"client_id": "<default>", "controller_mutations_rate": RATE, "controller_mutations_burst": BURST}
    slow = {"client_id": "slow", "controller_mutations_rate": 0.01, "controller_mutations_burst": 1}
    quotas = {"entities": [everyone, slow], "ask_timeout": "100ms"}
    with ProxyProcess(tmp_path_factory.mktemp("named"), kafka1.bootstrap_servers, {"quotas": quotas}) as proxy:
        yield proxy


def existing(kafka: LocalCluster, prefix: str) -> dict[str, int]:
    """Topics and their numbers of partitions, as the broker says."""
    found = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=90).topics
    return {topic: len(found[topic].partitions) for topic in found if topic.startswith(prefix)}


def name_topics(connection: Connection, version: int, names: list[str]) -> dict[str, int]:
    """Error codes by topic."""
    answer = connection.decoded(3, version, topics=[{"name": name} for name in names], allow_auto_topic_creation=True)
    return {topic.name: int(topic.error_code) for topic in answer.topics}


@pytest.mark.parametrize("version", [0, 1, 3, 4, 12])
def test_a_new_connection_for_each_request_creates_no_more(
    limited: ProxyProcess, kafka1: LocalCluster, name: str, version: int
) -> None:
    began, wanted = time.monotonic(), 0
    while time.monotonic() - began < 2 or wanted < 5 * BURST:
        names = [f"{name}-{wanted + i}" for i in range(5)]
        wanted += 5
        with connect(limited.bootstrap) as connection:
            connection.client_id = f"storm-{name}"
            told = name_topics(connection, version, names)
        assert told.keys() == set(names)
        assert set(told.values()) <= {0, 3, 5}
    seconds = time.monotonic() - began
    wait_until(lambda: len(existing(kafka1, f"{name}-")) >= BURST, "what fits")
    time.sleep(0.5)
    assert len(existing(kafka1, f"{name}-")) <= BURST + 1 + 2 * RATE * seconds


def test_a_consumer_of_many_absent_topics_gets_all_of_them(limited: ProxyProcess, kafka1: LocalCluster, name: str) -> None:
    """More at once than the burst: what fits is created at once, the others as the quota allows."""
    names = [f"{name}-{i}" for i in range(2 * BURST)]
    consumer = KafkaConsumer(
        *names, bootstrap_servers=limited.bootstrap, client_id="consumer", group_id=name, metadata_max_age_ms=300
    )
    began = time.monotonic()

    def got_all() -> bool:
        consumer.poll(200)
        return len(existing(kafka1, f"{name}-")) == len(names)

    wait_until(got_all, "all topics")
    assert time.monotonic() - began > (len(names) - BURST - 1) / (2 * RATE), "the quota holds"
    consumer.close()


def test_a_producer_to_many_absent_topics_writes_to_all_of_them(limited: ProxyProcess, kafka1: LocalCluster, name: str) -> None:
    names = [f"{name}-{i}" for i in range(BURST + 10)]
    settings = {"bootstrap.servers": limited.bootstrap, "client.id": "producer", "message.timeout.ms": 80_000}
    producer = Producer({**settings, "topic.metadata.refresh.fast.interval.ms": 100})
    errors: list[Any] = []
    for topic in names:
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(90) == 0
    assert errors == [None] * len(names)
    assert existing(kafka1, f"{name}-").keys() == set(names)


def test_partitions_that_are_added_behind_a_long_poll_cost_what_they_are(
    limited: ProxyProcess, kafka1: LocalCluster, name: str
) -> None:
    seconds = datetime.timedelta(seconds=20)
    for topic in (f"{name}-a", f"{name}-b"):
        with connect(kafka1.bootstrap_servers) as connection:
            created = connection.decoded(
                19, 7, topics=[{"name": topic, "num_partitions": 1, "replication_factor": 1}], timeout=seconds
            )
            assert created.topics[0].error_code == 0
    with connect(limited.bootstrap) as connection:
        connection.client_id = "slow"
        codes = []
        for topic in (f"{name}-a", f"{name}-b"):
            where = {"topic": f"{name}-a", "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}
            wait = datetime.timedelta(seconds=1)
            connection.send(1, 11, replica_id=-1, max_wait=wait, min_bytes=1000, max_bytes=1000, topics=[where])
            connection.send(37, 3, topics=[{"name": topic, "count": 40}], timeout=seconds)
            connection.receive(1, 11)
            codes.append(int(connection.receive(37, 3).results[0].error_code))
    assert codes == [0, 89], "39 partitions are not one"
    assert existing(kafka1, f"{name}-") == {f"{name}-a": 40, f"{name}-b": 1}


def test_internal_topics_of_streams_groups_are_charged(limited: ProxyProcess, kafka1: LocalCluster, name: str) -> None:
    """The group coordinator creates them, with as many partitions as the source topic has."""
    seconds, size = datetime.timedelta(seconds=20), 2 * BURST
    source, changelog = f"{name}-source", f"{name}-count-changelog"
    with connect(kafka1.bootstrap_servers) as connection:
        topic = {"name": source, "num_partitions": size, "replication_factor": 1}
        assert connection.decoded(19, 7, topics=[topic], timeout=seconds).topics[0].error_code == 0
        found = connection.decoded(10, 4, key_type=0, coordinator_keys=[name])  # has the groups' own topic created
        assert found.coordinators[0].error_code in (0, 15)

    def join(connection: Connection, group: str, changelog: str) -> Any:
        part = {"subtopology_id": "0", "source_topics": [source], "state_changelog_topics": [{"name": changelog}]}
        return connection.decoded(
            88,
            0,
            group_id=group,
            member_id=group,
            member_epoch=0,
            rebalance_timeout=seconds,
            topology={"epoch": 1, "subtopologies": [part]},
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
            client_tags=[],
        )

    with connect(limited.bootstrap) as connection:
        connection.client_id = f"streams-{name}"

        asked, figures = time.monotonic(), list[float]()

        def charged() -> float:
            """On average, so that it only gets less with time, down to nothing on a machine that is busy for so long."""
            figures.append(limited.metric("controller_mutations_rate", client_id=connection.client_id))
            return figures[-1]

        def created() -> bool:
            """The coordinator may be new, and hear of the source topic later than the broker."""
            joined = join(connection, name, changelog).error_code == 0
            charged()
            return joined and existing(kafka1, changelog) == {changelog: size}

        wait_until(created, "the changelog topic")
        before = charged()
        assert max(figures) > 0
        assert join(connection, name, changelog).error_code == 0
        assert charged() <= before, "it is there: nothing is charged"
        other = f"{name}-other"
        error = wait_until(lambda: (code := join(connection, other, f"{other}-changelog").error_code) != 14 and str(code), "room")
        assert error == "0"
        assert time.monotonic() - asked > 2, "twice the burst was used up, and is waited for"
        wait_until(lambda: existing(kafka1, f"{other}-changelog"), "the other changelog topic")
