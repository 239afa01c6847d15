"""Volumes of a real cluster with logins and an authorizer are filled at full speed, and none fills: nothing that was acknowledged
is lost, nothing is written twice or in another order, and everybody goes on by themselves once there is space again."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import LocalCluster, run_java, tool
from tests.real import steady
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.tenancy import LOGIN, PYTHON, USER, USERS, access, java_properties, upstream
from tests.real.volumes import MIB, Gauge, Volumes, can_mount, small_cluster

pytestmark = pytest.mark.kafka

SIZE = 256 * MIB
LEFT = 96 * MIB
"""the limit: what has to be left of it"""
RECORD = 10_000
PARTITIONS = 3
QUICK = 170.0
"""seconds after which something does not come any more"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalCluster, Volumes]]:
    with small_cluster(tmp_path_factory.mktemp("small"), SIZE) as made:
        yield made


def storage(**settings: Any) -> dict[str, Any]:
    return {"quotas": {"storage": {"check_interval": "500ms", **settings}}, "upstream": upstream()}


def create(bootstrap: str, topic: str, brokers: list[list[int]]) -> None:
    """Partition n has replicas on `brokers[n]`."""
    admin = AdminClient(access(bootstrap, log_level=0))
    admin.create_topics([NewTopic(topic, len(brokers), replica_assignment=brokers, config={"min.insync.replicas": "1"})])[
        topic
    ].result(90)


def delete(bootstrap: str, topic: str) -> None:
    admin = AdminClient(access(bootstrap, log_level=0))
    admin.delete_topics([topic])[topic].result(90)


class Flood:
    """An idempotent producer of librdkafka at full speed: so many records, to partitions in turn."""

    def __init__(self, bootstrap: str, topic: str, name: str, records: int, **settings: Any) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []
        self._topic, self._name, self._records = topic, name, records
        self._producer = Producer(
            {
                **access(bootstrap),
                "enable.idempotence": True,
                "queue.buffering.max.kbytes": 16 * 1024,
                "error_cb": lambda _: None,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def join(self, limit: float = QUICK) -> None:
        self._thread.join(limit)
        assert not self._thread.is_alive(), f"{self._name} does not finish: {self.acknowledged} of {self._records}"

    def _run(self) -> None:
        for number in range(self._records):
            value = f"{self._name} {number}".ljust(RECORD).encode()
            while True:
                try:
                    self._producer.produce(self._topic, value, partition=number % PARTITIONS, on_delivery=self._told)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        while len(self._producer):
            self._producer.poll(0.1)

    def _told(self, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.failed.append(str(error))


class AioFlood:
    """The same with aiokafka, which says a line for every batch that is refused."""

    def __init__(self, bootstrap: str, topic: str, name: str, records: int) -> None:
        self.acknowledged = 0
        self.failed: list[str] = []
        logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(bootstrap, topic, name, records)), daemon=True)
        self._thread.start()

    def join(self, limit: float = QUICK) -> None:
        self._thread.join(limit)
        assert not self._thread.is_alive(), f"aiokafka does not finish: {self.acknowledged}"

    async def _run(self, bootstrap: str, topic: str, name: str, records: int) -> None:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=100_000, **PYTHON
        ) as producer:
            for number in range(records):
                value = f"{name} {number}".ljust(RECORD).encode()
                (await producer.send(topic, value, partition=number % PARTITIONS)).add_done_callback(self._told)
            await producer.flush()

    def _told(self, future: asyncio.Future[Any]) -> None:
        if future.exception() is None:
            self.acknowledged += 1
        else:
            self.failed.append(repr(future.exception()))


class JavaFlood:
    """The same with Java."""

    def __init__(self, bootstrap: str, topic: str, records: int) -> None:
        self.acknowledged = self.failed = -1
        self.errors = ""
        source = Path(__file__).parent / "java" / "Flood.java"
        arguments = (bootstrap, topic, str(records), str(RECORD - 10), USER, USERS[USER])

        def work() -> None:
            ended = run_java(source, *arguments, timeout=170)
            self.errors = ended.stderr
            if ended.stdout:
                self.acknowledged, self.failed = map(int, ended.stdout.split())

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def join(self, limit: float = QUICK) -> None:
        self._thread.join(limit)
        assert not self._thread.is_alive(), "Java does not finish"


def read_in_order(bootstrap: str, topic: str, partitions: int = PARTITIONS) -> dict[tuple[str, int], list[int]]:
    """(producer, partition) to the numbers of its records as they stand there."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for partition, values in enumerate(steady.read_in_order(bootstrap, topic, partitions, "read_committed", **LOGIN)):
        for name, number in map(str.split, values):
            found[name, partition].append(int(number))
    return found


def whole(name: str, records: int) -> dict[tuple[str, int], list[int]]:
    """What a producer of so many records leaves where nothing is lost, doubled or out of order."""
    return {(name, partition): list(range(partition, records, PARTITIONS)) for partition in range(PARTITIONS)}


def test_no_volume_fills_and_everybody_goes_on_by_themselves(
    small: tuple[LocalCluster, Volumes], tmp_path: Path, name: str
) -> None:
    cluster, volumes = small
    direct = cluster.bootstrap_servers
    everywhere = [[(n + i) % 3 for i in range(3)] for n in range(PARTITIONS)]
    for topic in (f"{name}-old", name):
        create(direct, topic, everywhere)
    Flood(direct, f"{name}-old", "old", 10_000).join()
    records = {"rdkafka": 8000, "aiokafka": 3000, "java": 3000}  # 140 MB, of which some 60 fit; fewer are written between two looks
    with (
        ProxyProcess(tmp_path, direct, storage(min_available_bytes=volumes.limit(LEFT), release_margin=0.0)) as proxy,
        Gauge(volumes) as gauge,
    ):
        rdkafka = Flood(proxy.bootstrap, name, "rdkafka", records["rdkafka"])
        aio = AioFlood(proxy.bootstrap, name, "aiokafka", records["aiokafka"])
        java = JavaFlood(proxy.bootstrap, name, records["java"])
        proxy.wait_for("volume at its limit")
        wait_until(lambda: proxy.metric("refused_items_total", quota="storage") > 50, "clients to be refused again and again")
        wait_until(lambda: '"producer-1"' in proxy.get("/throttles")[1], "Java, which takes longest to start, to be refused too")
        assert proxy.metric("storage_throttle_factor") == 0
        both = records["rdkafka"] + records["aiokafka"]  # where a look comes late, one of the two may be done by then
        assert rdkafka.acknowledged + aio.acknowledged < both
        delete(proxy.bootstrap, f"{name}-old")
        proxy.wait_for("volume within its limits")
        for flood in (rdkafka, aio, java):
            flood.join()
    assert (rdkafka.failed, aio.failed, java.failed) == ([], [], 0)
    assert "is at its limit" in java.errors, "a client that shows messages shows why"
    assert (rdkafka.acknowledged, aio.acknowledged, java.acknowledged) == tuple(records.values())
    assert gauge.least > LEFT / 4
    assert all(node.running for node in cluster.brokers)
    assert read_in_order(direct, name) == {place: numbers for it in records.items() for place, numbers in whole(*it).items()}


# scope volume


def test_only_partitions_with_a_replica_on_the_full_volume_wait(
    small: tuple[LocalCluster, Volumes], tmp_path: Path, name: str
) -> None:
    """Partition 0 is led by the full broker, 1 has a follower there, 2 is elsewhere; 1 and 3 are led by the same broker, so that
    one request has to be taken apart."""
    cluster, volumes = small
    if not volumes.mounted:
        pytest.skip("needs file systems of their own for the brokers, and mounting is not permitted here")
    direct = cluster.bootstrap_servers
    create(direct, name, [[0, 1], [1, 0], [2, 1], [1, 2]])
    create(direct, f"{name}-t", [[0, 1], [2, 1]])
    settings = storage(min_available_bytes=32 * MIB, scope="volume") | {
        "exempt": {"clients": [{"user": USER, "client_id": "operator"}]}
    }
    with ProxyProcess(tmp_path, direct, settings) as proxy:
        ballast = volumes.fill(0, 16 * MIB)
        proxy.wait_for("volume at its limit", broker=0)
        try:
            producer = Partitions(proxy.bootstrap, name)
            producer.send(50)
            wait_until(lambda: producer.done(2) == 50 and producer.done(3) == 50, "partitions elsewhere to be written")
            wait_until(lambda: proxy.metric("refused_items_total", quota="storage") >= 4, "the others to be refused")
            assert (producer.done(0), producer.done(1)) == (0, 0)
            assert proxy.metric("storage_throttle_factor") == 0

            exempt = Partitions(proxy.bootstrap, f"{name}-t", 2, **{"client.id": "operator"})
            exempt.send(1)
            wait_until(lambda: (exempt.done(0), exempt.done(1)) == (1, 1), "who is exempt to write to the full volume")
            transaction = Transaction(proxy.bootstrap, f"{name}-t")
            wait_until(lambda: transaction.written == {1}, "a transaction to write where there is space")

            reassign(direct, tmp_path, name, {1: [1, 2]})
            wait_until(lambda: producer.done(1) == 50, "a partition that left the full broker to be written", QUICK)
            assert producer.done(0) == 0
        finally:
            assert transaction.committing(), "it cannot end without what is refused"
            ballast.unlink()
        wait_until(lambda: producer.done(0) == 50, "everything to be written", QUICK)
        assert transaction.end() is None
        assert sorted(read_committed(direct, f"{name}-t", 4)) == [(0, "p 0"), (0, "t 0"), (1, "p 0"), (1, "t 0")]
        assert producer.failed == []
        proxy.wait_for("volume within its limits", broker=0)
        kept = read_in_order(direct, name, 4)
        assert kept == {("p", partition): list(range(50)) for partition in range(4)}
        decided = [line for line in proxy.usage() if line["type"] == "decision" and line["quota"] == "storage"]
        assert storage_actions(proxy) == {"refuse"}
        assert "of broker 0 is at its limit: 1" in decided[0]["message"]
        told = [line for line in proxy.usage() if line["type"] == "volume" and line["broker_id"] == 2]
        assert name in told[-1]["topic_bytes"]


class Partitions:
    """An idempotent producer that writes the same to each of some partitions; how many of each were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int = 4, **settings: str) -> None:
        self.failed: list[str] = []
        self._done = [0] * partitions
        self._topic = topic
        more = {"enable.idempotence": True, "linger.ms": 50, "error_cb": lambda _: None, "log_level": 0, **settings}
        self._producer = Producer(access(bootstrap, **more))

    def send(self, records: int, size: int = 0) -> None:
        for number in range(records):
            for partition in range(len(self._done)):
                self._producer.produce(self._topic, f"p {number}".ljust(size).encode(), partition=partition, on_delivery=self._told)

    def done(self, partition: int) -> int:
        self._producer.poll(0)
        return self._done[partition]

    def _told(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._done[message.partition()] += 1
        else:
            self.failed.append(str(error))


def storage_actions(proxy: ProxyProcess) -> set[str]:
    """What the quota has done so far, by the usage log."""
    return {line["action"] for line in proxy.usage() if line["type"] == "decision" and line["quota"] == "storage"}


class Transaction:
    """One with a record for each of two partitions; it commits in a thread of its own. `written`: the partitions that have it."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: set[int] = set()
        self._problem: Exception | None = None
        more = {"transactional.id": topic, "error_cb": lambda _: None, "log_level": 0}
        self._producer = Producer(access(bootstrap, **more))
        self._producer.init_transactions(90)
        self._producer.begin_transaction()
        for partition in range(2):
            self._producer.produce(topic, b"t 0", partition=partition, on_delivery=self._told)
        self._thread = threading.Thread(target=self._commit, daemon=True)
        self._thread.start()

    def committing(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> Exception | None:
        """What the commit has failed with."""
        self._thread.join(QUICK)
        assert not self._thread.is_alive()
        return self._problem

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction(2 * QUICK)
        except Exception as e:
            self._problem = e

    def _told(self, error: KafkaError | None, message: Any) -> None:
        assert error is None
        self.written.add(message.partition())


def read_committed(bootstrap: str, topic: str, records: int) -> list[tuple[int, str]]:
    """(partition, value) of so many records of a topic with two partitions."""
    consumer = Consumer(access(bootstrap, **{"group.id": "nobody", "enable.auto.commit": False, "log_level": 0}))
    consumer.assign([TopicPartition(topic, n, 0) for n in range(2)])
    found: list[tuple[int, str]] = []
    deadline = time.monotonic() + 90
    while len(found) < records:
        assert time.monotonic() < deadline, f"only {found} can be read"
        found += [(message.partition() or 0, (message.value() or b"").decode()) for message in consumer.consume(records, 0.2)]
    consumer.close()
    return found


def test_below_a_soft_limit_producers_are_slowed_and_at_a_limit_that_holds_they_wait_without_an_error(
    small: tuple[LocalCluster, Volumes], tmp_path: Path, name: str
) -> None:
    cluster, volumes = small
    direct = cluster.bootstrap_servers
    create(direct, name, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    limits = {"soft": {"min_available_bytes": volumes.limit(96 * MIB)}, "hard": {"min_available_bytes": volumes.limit(32 * MIB)}}
    settings = storage(**limits, when_full="hold", release_margin=0.0)
    settings["quotas"]["entities"] = [{"user": USER, "cluster_producer_byte_rate": 200 * RECORD}]
    with ProxyProcess(tmp_path, direct, settings) as proxy:
        ballast = volumes.fill(0, 40 * MIB)
        try:
            wait_until(lambda: 0 < proxy.metric("storage_throttle_factor") < 0.5, "the volume to be below its soft limit")
            told: list[float] = []
            slowed = Flood(proxy.bootstrap, name, "slowed", 1500, throttle_cb=lambda event: told.append(event.throttle_time))
            wait_until(lambda: told and slowed.acknowledged, "a producer to be slowed, and to get on")
            ballast.unlink()
            ballast = volumes.fill(0, 16 * MIB)
            proxy.wait_for("volume at its limit", broker=0)
            held = Flood(proxy.bootstrap, name, "held", 30)
            wait_until(lambda: "hold" in storage_actions(proxy), "requests to be held")
            assert held.acknowledged == 0
        finally:
            ballast.unlink()
        for each in (slowed, held):
            each.join(2 * QUICK)
            assert each.failed == []
        assert storage_actions(proxy) == {"throttle", "hold"}
    kept = whole("slowed", 1500) | whole("held", 30)
    assert read_in_order(direct, name) == kept


def reassign(bootstrap: str, folder: Path, topic: str, where: dict[int, list[int]]) -> None:
    """Move partitions with Kafka's own tool."""
    partitions = [{"topic": topic, "partition": partition, "replicas": brokers} for partition, brokers in where.items()]
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    login = java_properties(folder, "operator")
    arguments = ("--bootstrap-server", bootstrap, "--command-config", login, "--reassignment-json-file", str(plan))
    tool("reassign-partitions", *arguments, "--execute", check=True)


@pytest.mark.nightly
def test_brokers_are_killed_while_a_volume_is_full(small: tuple[LocalCluster, Volumes], tmp_path: Path, name: str) -> None:
    """The broker with the full volume dies: it stays in trouble; and what was refused is written when it is back and there is
    space. Before every push, tests/quota/test_storage.py has a full broker that vanishes, and the tests above how
    clients go on."""
    cluster, volumes = small
    direct = cluster.bootstrap_servers
    create(direct, name, [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    settings = storage(min_available_bytes=volumes.limit(32 * MIB), check_timeout="1s")
    with ProxyProcess(tmp_path, direct, settings) as proxy:
        flood = Flood(proxy.bootstrap, name, "flood", 300, **{"linger.ms": 5})
        wait_until(lambda: flood.acknowledged, "records to be written")
        ballast = volumes.fill(0, 16 * MIB)
        try:
            proxy.wait_for("volume at its limit")
            late = Flood(proxy.bootstrap, name, "late", 300)
            wait_until(lambda: proxy.metric("refused_items_total", quota="storage") > 3, "producers to be refused")
            cluster.kill_broker(0)
            wait_until(lambda: proxy.metric("storage_active_brokers") == 2, "the cluster to notice", QUICK)
            seen = volume_lines(proxy, 1)
            wait_until(lambda: volume_lines(proxy, 1) > seen + 1, "further checks")
            assert proxy.metric("storage_throttle_factor") == 0
            assert late.acknowledged == 0
        finally:
            ballast.unlink()
        cluster.start_broker(0)
        proxy.wait_for("volume within its limits", broker=0)
        for each in (flood, late):
            each.join()
            assert each.failed == []
        kept = read_in_order(direct, name)
        assert kept == whole("flood", 300) | whole("late", 300)


def volume_lines(proxy: ProxyProcess, broker: int) -> int:
    return sum(line["type"] == "volume" and line["broker_id"] == broker for line in proxy.usage())


def test_a_log_dir_goes_offline(tmp_path: Path, name: str) -> None:
    """A disk that cannot be written to, as something else has filled it, is not known to be well: the fallback holds. Its broker
    goes on with the other."""
    if not can_mount(tmp_path / "probe"):
        pytest.skip("needs file systems of their own for log dirs, and mounting is not permitted here")
    with small_cluster(tmp_path / "kafka", 64 * MIB, brokers=1, log_dirs=2) as (cluster, volumes):
        settings = storage(min_available_bytes=0, throttle_factor_validity="0s", fallback_throttle_factor=0.75)
        with ProxyProcess(tmp_path / "proxy", cluster.bootstrap_servers, settings) as proxy:
            wait_until(lambda: proxy.metric("storage_active_log_dirs") == 2, "both log dirs to be known")
            create(cluster.bootstrap_servers, name, [[0], [0]])
            volumes.fill(0, MIB // 2, 1)
            flood = Partitions(proxy.bootstrap, name, 2)
            flood.send(20, 100_000)
            line = proxy.wait_for("volumes not known")
            assert (line["reason"], line["throttle_factor"]) == ("volume_unknown", 0.75)
            assert str(volumes.dirs[0, 1]) in line["detail"]
            assert proxy.metric("storage_fallback_applied_total", reason="volume_unknown") >= 1
            wait_until(lambda: sorted(map(flood.done, range(2))) >= [0, 20], "the other log dir to be written")
