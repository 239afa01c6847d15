"""Brokers that hang, lose the controller, close in the middle of an answer, or get very large requests: clients behind the proxy
recover as they would directly, and the proxy stays up."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema

from localkafka import LocalCluster
from proxy.wire.kio_bridge import encode_request
from tests.clients.proxied import Broker, Here, Visit, answer, answers, frame, proxied
from tests.conftest import QUICK_START
from tests.fleet.meeting import run
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import connect, make
from tests.real.steady import SteadyProducer, create, read_all
from tests.real.twins import ms

LIMIT = 120.0
HUNG = 0
"""The broker that hangs: the one that the proxy asks first."""
QUICK = {"upstream": {"connect_timeout": "3s"}}
RECORDS = 20


class Counted:
    """A producer for one partition; how many records were delivered, and which failed."""

    def __init__(self, bootstrap: str, topic: str, partition: int, **settings: Any) -> None:
        self.delivered: list[str] = []
        self.failed: list[str] = []
        self._topic, self._partition = topic, partition
        more = {"enable.idempotence": True, "log_level": 0, "error_cb": lambda _: None, **settings}
        self._producer = Producer({"bootstrap.servers": bootstrap, **more})

    def send(self, *values: str) -> None:
        for value in values:
            self._producer.produce(self._topic, value.encode(), partition=self._partition, on_delivery=self._told)

    def wait(self, count: int) -> None:
        """Until so many are delivered."""
        wait_until(lambda: self._producer.poll(0) or len(self.delivered) + len(self.failed) >= count, "deliveries", LIMIT)

    def _told(self, error: KafkaError | None, message: Any) -> None:
        (self.delivered if error is None else self.failed).append(message.value().decode())


class AioProducer:
    """The same with aiokafka, in a thread of its own: one record before `hang`, one after."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.first, self.hang, self.sent = threading.Event(), threading.Event(), threading.Event()
        self.delivered: list[str] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(bootstrap, topic)), daemon=True)
        self._thread.start()

    def join(self) -> None:
        self._thread.join(LIMIT)

    async def _run(self, bootstrap: str, topic: str) -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            await producer.send_and_wait(topic, b"aio before", partition=HUNG)
            self.delivered.append("aio before")
            self.first.set()
            await asyncio.to_thread(self.hang.wait, LIMIT)
            pending = await producer.send(topic, b"aio pending", partition=HUNG)
            self.sent.set()
            await pending
            self.delivered.append("aio pending")


def one_partition_each(bootstrap: str, topic: str) -> None:
    """Partition n is on broker n, and nowhere else."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 3, replica_assignment=[[0], [1], [2]])])[topic].result(90)


def live(address: str) -> set[int]:
    """The brokers that this one says are alive."""
    with connect(address) as connection:
        return {broker.node_id for broker in connection.decoded(3, 12, topics=[]).brokers}


def stopped(pid: int | None) -> bool:
    """True if no thread of the process runs any more: on a busy machine they go on for a while after the signal."""
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def all_back(kafka: LocalCluster) -> None:
    wait_until(lambda: all(live(node.address) == {0, 1, 2} for node in kafka.brokers), "all brokers to be back", LIMIT)


@pytest.fixture
def hanging(kafka3: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster, none of whose processes is stopped afterwards."""
    yield kafka3
    kafka3.brokers[HUNG].signal(signal.SIGCONT)
    all_back(kafka3)


@pytest.mark.kafka
@pytest.mark.parametrize("through_proxy", [False, True], ids=["direct", "proxy"])
@pytest.mark.parametrize(
    "settings", [{}, {"socket.timeout.ms": 1000, "request.timeout.ms": 1000}], ids=["a client that waits", "one that comes again"]
)
def test_a_broker_that_hangs_holds_up_its_own_clients_only_and_no_record_is_lost(
    hanging: LocalCluster, tmp_path: Path, name: str, through_proxy: bool, settings: dict[str, Any]
) -> None:
    direct = hanging.bootstrap_servers
    with ProxyProcess(tmp_path, direct, QUICK) as proxy:
        bootstrap = proxy.bootstrap if through_proxy else direct
        one_partition_each(direct, name)
        wait_until(lambda: proxy.metric("brokers") == 3, "all brokers to be known")
        held_up, other = (Counted(bootstrap, name, partition, **settings) for partition in (HUNG, 1))
        aio = AioProducer(bootstrap, name)
        for producer, prefix in ((held_up, "hung"), (other, "other")):
            producer.send(*(f"{prefix} {i}" for i in range(RECORDS)))
            producer.wait(RECORDS)
        assert aio.first.wait(LIMIT)

        hanging.brokers[HUNG].signal(signal.SIGSTOP)
        wait_until(lambda: stopped(hanging.brokers[HUNG].pid), "all threads of the broker to stop")
        aio.hang.set()
        held_up.send(*(f"hung {i}" for i in range(RECORDS, 2 * RECORDS)))
        other.send(*(f"other {i}" for i in range(RECORDS, 2 * RECORDS)))
        other.wait(2 * RECORDS)
        newcomer = Counted(bootstrap, name, 2, **{"socket.timeout.ms": 1000, "api.version.request.timeout.ms": 1000})
        newcomer.send("new")
        newcomer.wait(1)
        assert aio.sent.wait(LIMIT)
        wait_until(lambda: live(hanging.brokers[1].address) == {1, 2}, "the others to notice", LIMIT)
        if through_proxy:
            assert proxy.get("/readyz")[0] == 200
            assert proxy.metric("upstream_up") == 1
        held_up.wait(0)
        assert len(held_up.delivered) == RECORDS
        assert aio.delivered == ["aio before"]

        hanging.brokers[HUNG].signal(signal.SIGCONT)
        held_up.wait(2 * RECORDS)
        aio.join()
        all_back(hanging)
        assert [held_up.failed, other.failed, newcomer.failed] == [[], [], []]
        assert aio.delivered == ["aio before", "aio pending"]
        sent = [f"{prefix} {i}" for prefix in ("hung", "other") for i in range(2 * RECORDS)]
        assert read_all(direct, name, 3) == dict.fromkeys([*sent, "new", "aio before", "aio pending"], 1)
        if through_proxy:
            assert proxy.get("/readyz")[0] == 200
            assert not [line for line in proxy.events if line["level"] in ("error", "critical")]


def active_controller(address: str) -> int:
    """Who leads the quorum, by DescribeQuorum (KIP-595)."""
    with connect(address) as connection:
        asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        return int(connection.decoded(55, 0, topics=asked).topics[0].partitions[0].leader_id)


@pytest.mark.kafka
def test_admins_and_producers_go_on_when_the_controller_changes(kafka3: LocalCluster, proxy: ProxyProcess, name: str) -> None:
    create(kafka3.bootstrap_servers, name)
    admin = AdminClient({"bootstrap.servers": proxy.bootstrap, "log_level": 0})
    before = active_controller(proxy.bootstrap)
    with SteadyProducer(proxy.bootstrap, name, "steady", **{"enable.idempotence": True}) as producer:
        wait_until(lambda: len(producer.acknowledged) > 100, "the producer to be under way")
        kafka3.kill_broker(before)
        try:
            survivor = kafka3.brokers[(before + 1) % 3].address
            wait_until(lambda: active_controller(survivor) not in (before, -1), "another controller", LIMIT)
            # librdkafka may wait for the old one, directly too, until it asks for metadata again.
            wait_until(lambda: admin.list_topics(timeout=90).controller_id != before, "the admin to notice", LIMIT)
            admin.create_topics([NewTopic(f"{name}-after", 1, 2)], request_timeout=90)[f"{name}-after"].result(60)
            seen = len(producer.acknowledged)
            wait_until(lambda: len(producer.acknowledged) > seen + 200, "the producer to go on", LIMIT)
            assert active_controller(proxy.bootstrap) != before
            assert proxy.get("/readyz")[0] == 200
        finally:
            kafka3.start_broker(before)
    assert not producer.failed
    assert not producer.unsent
    found = read_all(kafka3.bootstrap_servers, name, expected=producer.acknowledged)
    assert {value: found[value] for value in producer.acknowledged if found[value] != 1} == {}, "each is there once"
    assert f"{name}-after" in admin.list_topics(timeout=90).topics


def connections_to(pid: int, ports: set[int]) -> int:
    """How many established connections a process has to these ports."""
    own = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(fd))
        except FileNotFoundError:
            continue
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(1 for row in rows if row[3] == "01" and int(row[2].split(":")[1], 16) in ports and f"socket:[{row[9]}]" in own)


@pytest.mark.kafka
def test_a_client_that_says_nothing_has_no_connection_at_any_broker(kafka3: LocalCluster, tmp_path: Path) -> None:
    ports = {int(node.address.rpartition(":")[2]) for node in kafka3.brokers}
    # So that the proxy's own question is not among what is counted.
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"upstream": {"metadata_refresh": "1h"}}) as proxy:
        pid = proxy.process.pid
        wait_until(lambda: proxy.metric("brokers") == 3 and connections_to(pid, ports) == 0, "the proxy to know its brokers")
        host, _, port = proxy.bootstrap.rpartition(":")
        silent = [socket.create_connection((host, int(port)), 10) for _ in range(30)]
        try:
            wait_until(lambda: proxy.metric("client_connections") == 30, "all to be accepted")
            with connect(proxy.bootstrap) as speaking:
                speaking.ask(18, 0)  # what came before it has been seen to
                assert connections_to(pid, ports) == 1
            wait_until(lambda: connections_to(pid, ports) == 0, "the connection to go with its client")
            assert proxy.metric("client_connections") == 30
        finally:
            for sock in silent:
                sock.close()


def half_of(response: bytes) -> Callable[[Visit, bytes], None]:
    """A broker that answers the second request with this, and closes."""

    def does(visit: Visit, request: bytes) -> None:
        if visit.requests == 1:
            answers(visit, request)
        else:
            visit.transport.write(response)
            visit.transport.close()

    return does


@pytest.mark.parametrize("cut", [0, 1, 3, 4, 7, 8, 9, 600, 300_000, 999_999])
def test_a_broker_that_closes_in_the_middle_of_an_answer_ends_the_client_the_same_way_as_directly(cut: int) -> None:
    """But for the first eight bytes of an answer, by which the proxy knows which one it is: they come together."""
    response = answer(1_000_000, 2)[:cut]
    broker = Broker()
    broker.does = half_of(response)

    async def ask(at: Broker | Here) -> bytes:
        reader, writer = await asyncio.open_connection(at.host, at.port)
        writer.write(frame(50) + frame(50, 2))
        got = await reader.read()
        writer.close()
        return got

    async def scene() -> None:
        async with proxied(broker) as here:
            other = await here.client()
            await other.ask(frame(50))
            direct, through = await ask(broker), await ask(here)
            assert direct == answer(20) + response
            assert through == (direct if cut >= 8 else answer(20))
            assert here.held == 0
            broker.does = answers
            assert await other.ask(frame(50, 3)) == answer(20, 3)
            other.close()
            await here.alone()

    run(scene())


LARGE = 100_000_000
RESPONSES = 2 * LARGE


@pytest.fixture(scope="module")
def roomy() -> Iterator[LocalCluster]:
    """A broker that takes records of 100 MB and hands out several at once."""
    properties = {"message.max.bytes": 150_000_000, "fetch.max.bytes": 400_000_000}
    with LocalCluster(1, properties=properties, jvm_flags=[*QUICK_START, "-Xmx1500m"]) as cluster:
        yield cluster


def digest(address: str, request: bytes) -> tuple[int, str]:
    """(size, hash) of the answer to a request."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 30) as sock, sock.makefile("rb", 1 << 20) as stream:
        sock.sendall(request)
        left = size = int.from_bytes(stream.read(4), "big")
        found = hashlib.sha256()
        while left:
            part = stream.read(min(left, 1 << 20))
            assert part, f"closed {left} bytes before the end"
            found.update(part)
            left -= len(part)
    return size, found.hexdigest()


def peak(pid: int) -> int:
    """The most memory that a process had, in bytes."""
    rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(row.split()[1]) * 1024 for row in rows if row.startswith("VmHWM"))


@pytest.mark.kafka
@pytest.mark.nightly  # tests/session/test_budget.py holds what is read to `memory_total`, with small figures
def test_requests_of_100_mb_and_answers_larger_than_the_memory_of_all(roomy: LocalCluster, tmp_path: Path, name: str) -> None:
    limits = {"memory_total": LARGE + 5_000_000, "max_frame": LARGE + 5_000_000}
    direct = roomy.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": direct})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(90)
    values = [os.urandom(LARGE) for _ in range(2)]
    with ProxyProcess(tmp_path, direct, {"limits": limits}) as proxy:
        errors: list[bool] = []
        producer = Producer({"bootstrap.servers": proxy.bootstrap, "message.max.bytes": 150_000_000, "linger.ms": 0})
        for value in values:
            producer.produce(name, value, partition=0, on_delivery=lambda error, _: errors.append(error is not None))
            assert producer.flush(90) == 0
        assert errors == [False, False]
        assert proxy.metric("request_bytes_total", api="Produce") > RESPONSES
        wait_until(lambda: proxy.metric("memory_held_bytes") == 0, "nothing to be held")

        before = peak(proxy.process.pid)
        asked = [{"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 400_000_000}]}]
        body: Any = make(
            load_request_schema(1, 4), replica_id=-1, max_wait=ms(100), min_bytes=1, max_bytes=400_000_000, topics=asked
        )
        request = encode_request(7, "raw", body)
        through = digest(proxy.bootstrap, request)
        assert through == digest(direct, request)
        assert through[0] > RESPONSES > limits["memory_total"]
        assert peak(proxy.process.pid) < before + 50_000_000, "it streams"
        assert proxy.metric("limit_hits_total", limit="memory_total") == 0

        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap,
                "group.id": name,
                "fetch.message.max.bytes": 150_000_000,
                "fetch.max.bytes": 400_000_000,
                "receive.message.max.bytes": 450_000_000,
                "message.max.bytes": 150_000_000,
            }
        )
        consumer.assign([TopicPartition(name, 0, 0)])
        for value in values:
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            assert message.value() == value
        consumer.close()
        assert not proxy.lines("client connection closed")
        assert not proxy.lines("broker connection closed")
