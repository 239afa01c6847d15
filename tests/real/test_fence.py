"""The sequence fence with real clients that log in at brokers with an authorizer: while batches are refused at random moments,
what is acknowledged is there once and in order per partition, and whoever retries gets everything delivered; without the
fence it is not so.

`FENCE_SECONDS` in the environment says for how long producers go on against each cluster; 5 when it is not set, 60 is the
proof."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from localkafka import LocalCluster
from tests.real import refusing
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.refusing import (
    MANY,
    NONE,
    PARTITIONS,
    Batch,
    Flicker,
    Outcome,
    RawProducer,
    by_producer,
    make_topic,
    set_total,
    thresholds,
)
from tests.real.steady import read_in_order
from tests.real.tenancy import LOGIN, USER, access, tenant_cluster, upstream

pytestmark = pytest.mark.kafka

SECONDS = float(os.environ.get("FENCE_SECONDS", "5"))
SEED = 8
NOT_ENOUGH_REPLICAS, OUT_OF_ORDER = 19, 45
FILLER = 10_000
"""Bytes that keep the rate above 1 byte/s until they are 11 s old."""


@pytest.fixture(scope="module")
def kafka_before() -> Iterator[LocalCluster]:
    """A broker of the series before."""
    with tenant_cluster(1, version="3.9.1") as cluster:
        yield cluster


@pytest.fixture(params=["tenants1", pytest.param("kafka_before", marks=pytest.mark.nightly)], ids=["newest", "3.9.1"])
def cluster(request: pytest.FixtureRequest) -> LocalCluster:
    found: LocalCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(cluster: LocalCluster, name: str) -> str:
    make_topic(cluster.bootstrap_servers, name, user=USER)
    return name


@pytest.mark.timeout(300 + 2 * SECONDS)
def test_what_is_acknowledged_is_there_once_and_in_order(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    """Every producer retries, so that is all; of transactions only what was committed is seen, and all of that."""
    found = {"java": Outcome(), "librdkafka": Outcome(), "transactions": Outcome(), "raw": Outcome()}
    with ProxyProcess(tmp_path, cluster.bootstrap_servers, settings()) as proxy:
        jobs = [(refusing.java, "java"), (refusing.librdkafka_transactions, "transactions")]
        jobs += [(refusing.librdkafka, "librdkafka"), (refusing.raw, "raw")] * 2
        with Flicker(proxy, SEED) as flicker, ThreadPoolExecutor() as threads:
            running = [
                threads.submit(job, proxy.bootstrap, topic, SECONDS, f"{sort}-{i}", found[sort], USER)
                for i, (job, sort) in enumerate(jobs)
            ]
            for one in running:
                one.result()
        refused = {quota: proxy.metric("refused_items_total", quota=quota) for quota in ("bytes_in", "sequence_fence")}
        print(f"Kafka {cluster.version}: {flicker.changes} changes of the threshold, refused {refused}")
        assert not proxy.lines("internal error")
    assert min(refused.values()) > 0, "or nothing was tried"
    for sort, one in found.items():
        print(
            f"  {sort}: {len(one.sent)} producers with {one.sent.total()} records, {one.retries} retries; of transactions"
            f" {len(one.committed)} parts committed and {len(one.aborted)} aborted, {one.given_up} given up"
        )
        assert one.errors == []
        assert one.sent or one.committed
    there = by_producer(read_in_order(cluster.bootstrap_servers, topic, PARTITIONS, **LOGIN))
    wait_until(lambda: ends(cluster, topic, "read_committed") == ends(cluster, topic), "transactions to end")
    committed = by_producer(read_in_order(cluster.bootstrap_servers, topic, PARTITIONS, "read_committed", **LOGIN))
    for one in found.values():
        for who, values in one.written.items():
            assert values == sorted(values, key=number_of), f"{who} was told in another order"
            assert there[who] == values, f"of {who}"
        written = Counter(name for (name, _), values in one.written.items() for _ in values)
        assert written == one.sent, "everything that was sent is acknowledged"
        for who, values in one.committed.items():
            assert committed[who] == values, f"of {who}"
    assert committed.keys() == {who for one in found.values() for who in (*one.written, *one.committed)}, "and nothing else"
    assert sum(len(one.aborted) for one in found.values()) > 0


def settings() -> dict[str, Any]:
    """Of a proxy."""
    return {"quotas": thresholds(MANY), "reload": {"interval": "0s"}, "upstream": upstream()}


def number_of(value: str) -> int:
    return int(value.rsplit(" ", 1)[1])


def ends(cluster: LocalCluster, topic: str, isolation: str = "read_uncommitted") -> list[int]:
    """The end of each partition for such a consumer."""
    consumer = Consumer(access(cluster.bootstrap_servers, **{"group.id": "nobody", "isolation.level": isolation}))
    try:
        return [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=90)[1] for n in range(PARTITIONS)]
    finally:
        consumer.close()


@pytest.mark.parametrize("program", ["proxy", "tests.real.without_fence"], ids=["fence", "none"])
def test_several_in_flight_of_a_new_producer_and_the_first_is_refused(
    cluster: LocalCluster, topic: str, tmp_path: Path, program: str
) -> None:
    """Nothing is left to chance: the threshold is such that sequence 0 is refused, then it is raised, and only then the next ones,
    which the producer sends without having looked at the answer, reach the proxy. Without a fence a broker that has no state of
    the producer takes them, and never again sequence 0: the record is lost."""
    with ProxyProcess(tmp_path, cluster.bootstrap_servers, settings(), program=program) as proxy:

        def hold(total: int, times: int) -> None:
            set_total(proxy, total)
            wait_until(lambda: len(proxy.lines("settings applied")) == times, "the threshold to hold")

        producer, filler = (RawProducer(proxy.bootstrap, topic, USER) for _ in range(2))
        filler.deliver(1, [Batch(0, ["x" * FILLER])])  # of which eleven seconds know
        filler.close()
        batches = [Batch(i, [f"new {i}"]) for i in range(4)]
        hold(NONE, 1)
        producer.send(0, batches[0])
        wait_until(lambda: proxy.metric("refused_items_total", quota="bytes_in") == 1, "a refusal")
        hold(MANY, 2)
        for batch in batches[1:]:
            producer.send(0, batch)
        first = [producer.answer(batch) for batch in batches]
        left = [batch for batch in batches if batch.code != 0]
        producer.deliver(0, left)
        producer.close()
        codes = [batch.code for batch in batches]
        there = read_in_order(cluster.bootstrap_servers, topic, PARTITIONS, **LOGIN)[0]
    if program == "proxy":
        assert first == [NOT_ENOUGH_REPLICAS] * 4
        assert codes == [0] * 4
        assert there == ["new 0", "new 1", "new 2", "new 3"]
    else:
        assert first == [NOT_ENOUGH_REPLICAS, 0, 0, 0]
        assert codes == [OUT_OF_ORDER, 0, 0, 0], "the first can never be written"
        assert there == ["new 1", "new 2", "new 3"]
