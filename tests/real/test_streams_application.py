"""A real Kafka Streams application, whose group is one of the protocol `streams` (KIP-1071): brokers create its internal topics,
they are charged to the controller mutation quota, and count for the numbers of their tenant. tests/session/test_streams_topics.py
and tests/apis/test_topic_numbers.py have the rules, case by case."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster, run_java
from tests.conftest import QUICK_START
from tests.real.proxies import ProxyProcess, put, wait_until

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.every_kafka,
    pytest.mark.nightly,
    pytest.mark.since("4.2", "groups of the protocol `streams` (KIP-1071)"),
]

JAVA = Path(__file__).parent / "java"
MEMBER = "app-StreamThread-1-consumer"
"""The client id of its heartbeats."""
PARTITIONS, RECORDS = 3, 90
OFTEN = {"group.streams.min.heartbeat.interval.ms": 500, "group.streams.heartbeat.interval.ms": 500}
"""Heartbeats, so that a member soon learns what the group's coordinator has done."""


@pytest.fixture(scope="module")
def kafka(kafka_version: str) -> Iterator[LocalCluster]:
    with LocalCluster(1, version=kafka_version, properties=OFTEN, jvm_flags=QUICK_START) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("words", PARTITIONS, 1)])["words"].result(90)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for i in range(RECORDS):
            producer.produce("words", ("one", "two", "three")[i % 3], partition=i % PARTITIONS)
        assert producer.flush(90) == 0
        yield cluster


def test_its_internal_topics_are_charged_and_it_waits_for_its_quota(kafka: LocalCluster, tmp_path: Path) -> None:
    """The first application takes more than the burst: both of its internal topics have the partitions of the topic it reads. The
    second one is told to try again, for hours if nobody raises the quota, and then gets there by itself."""
    with ProxyProcess(tmp_path / "proxy", kafka.bootstrap_servers, settings(0.001)) as proxy, ThreadPoolExecutor() as threads:
        arguments = (proxy.bootstrap, "words", str(RECORDS), str(tmp_path), "first", "second")
        running = threads.submit(run_java, JAVA / "Streams.java", *arguments, streams=True, timeout=280)
        wait_until(lambda: running.done() or refused(proxy), "the second one to be refused", 200)
        assert not running.done(), running.result()
        raise_quota(proxy)
        run = running.result()
        assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == [
        line
        for name in ("first", "second")
        for line in (
            f"{name} counted {{one=30, three=30, two=30}}",
            f"{name} is Stable: 1 member, 2 subtopologies",
            f"{name} has [{name}-counts-changelog, {name}-counts-repartition]",
        )
    ]
    charged = [line["mutations"] for line in proxy.usage() if line.get("api") == "StreamsGroupHeartbeat" and line.get("mutations")]
    assert charged == [2 * PARTITIONS] * 2


def test_one_whose_internal_topics_are_too_many_is_told_why_and_ends_and_others_go_on(kafka: LocalCluster, tmp_path: Path) -> None:
    """Of both protocols: brokers create the topics of the one, the application those of the other, one after the other."""
    tenants = {"apps": {"topic_prefixes": ["limited-", "classic-limited-"], "max_topics": 1}}
    names = ("limited", "classic-limited", "third")
    with ProxyProcess(tmp_path / "proxy", kafka.bootstrap_servers, {"tenants": tenants}) as proxy:
        arguments = (proxy.bootstrap, "words", str(RECORDS), str(tmp_path), *names)
        run = run_java(JAVA / "Streams.java", *arguments, streams=True, timeout=280)
    assert run.returncode == 0, run.stderr
    too_many = "tenant apps has 1 of 1 topics (max_topics); 1 more is too many."
    assert run.stdout.splitlines()[:3] == [
        f"limited ended: {too_many}",
        f"classic-limited ended: {too_many}",
        "third counted {one=30, three=30, two=30}",
    ]
    topics = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(timeout=90).topics
    assert {topic for topic in topics if "limited-" in topic} == {"classic-limited-counts-repartition"}


def settings(rate: float) -> dict[str, Any]:
    entity = {"client_id": MEMBER, "controller_mutations_rate": rate, "controller_mutations_burst": max(rate, 1)}
    return {"quotas": {"entities": [entity]}}


def refused(proxy: ProxyProcess) -> bool:
    return proxy.metric("refused_items_total", quota="controller_mutations") > 0


def raise_quota(proxy: ProxyProcess) -> None:
    """To far more than an application takes."""
    file = proxy.folder / "settings.yaml"
    put(file, yaml.safe_dump(yaml.safe_load(file.read_text()) | settings(1000)))
    proxy.process.send_signal(signal.SIGHUP)
