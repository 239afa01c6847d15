"""No client can tell, in what takes more than one request: the same directly and through the proxy, on three brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localkafka import LocalCluster, run_java, tool
from tests.real.every_api import MEMBER, decode
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection, connect
from tests.real.records import record_batch
from tests.real.twins import ms, shows, until

pytestmark = [pytest.mark.kafka, pytest.mark.every_kafka]

JAVA = Path(__file__).parent / "java"
HELD = 4 << 20
NO_SESSION, INVALID_EPOCH = 70, 71
CONSUMER = {"replica_id": -1, "max_wait": ms(100), "min_bytes": 1, "max_bytes": 1 << 20}


def leaders(address: str, topic: str) -> tuple[uuid.UUID, dict[int, int], dict[int, str]]:
    """(topic id, leader of each partition, address of each broker as it is shown here)."""
    with connect(address) as connection:
        answer = until(
            lambda: connection.decoded(3, 12, topics=[{"name": topic}]),
            lambda answer: answer.topics[0].partitions and all(p.leader_id >= 0 for p in answer.topics[0].partitions),
        )
    shown = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
    (found,) = answer.topics
    return found.topic_id, {part.partition_index: part.leader_id for part in found.partitions}, shown


def create(address: str, topic: str, partitions: int = 1) -> None:
    with connect(address) as connection:
        for_ever = [{"name": "retention.ms", "value": "-1"}]  # the timestamps of records are long ago
        wanted = [{"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": for_ever}]
        assert connection.decoded(19, 7, topics=wanted, timeout=ms(30_000)).topics[0].error_code == 0


@contextmanager
def to_leader(address: str, topic: str, partition: int = 0) -> Iterator[tuple[Connection, uuid.UUID]]:
    """A connection to the leader of a partition, as seen from this address, and the topic's id."""
    topic_id, leading, shown = leaders(address, topic)
    with connect(shown[leading[partition]]) as connection:
        yield connection, topic_id


def produce(connection: Connection, topic: str, *values: bytes) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": record_batch(*values)}]}]
    until(
        lambda: connection.decoded(0, 9, acks=-1, timeout=ms(5000), topic_data=data).responses[0].partition_responses[0],
        lambda answer: answer.error_code == 0,
    )


@pytest.mark.since("4.2", "share groups (KIP-932)")
def test_java_transactions_groups_of_all_protocols_and_pages(proxy: ProxyProcess, kafka3: LocalCluster, name: str) -> None:
    """The same program, at the same time, directly and through the proxy: it prints the same."""
    with ThreadPoolExecutor(2) as pool:
        runs = [
            pool.submit(run_java, JAVA / "Flows.java", address, f"{name}-{letter}", timeout=300.0)
            for letter, address in (("d", kafka3.bootstrap_servers), ("p", proxy.bootstrap))
        ]
        direct, through = (run.result() for run in runs)
    assert direct.returncode == through.returncode == 0, direct.stderr + through.stderr
    assert through.stdout == direct.stdout
    for line in (
        "transactions: CompleteCommit, offset 3",
        "classic group: [4, 2, 4]",
        "consumer group: [4, 2, 4]",
        "released 3",
        "pages: [4, 3]",
        "groups: {-classic=Classic, -consumer=Consumer, -offsets=Classic, -share=Share}",
    ):
        assert line in through.stdout


@pytest.mark.api(1)
@pytest.mark.parametrize("version", [7, 12, 13, 18], ids="v{}".format)
def test_fetch_sessions(proxy: ProxyProcess, kafka3: LocalCluster, name: str, version: int) -> None:
    """All, then only what is new, then from the start again, with a wrong epoch, and without what is forgotten: the end."""
    create(kafka3.bootstrap_servers.split(",")[0], name)
    told = []
    with to_leader(kafka3.brokers[0].address, name) as (connection, _):
        produce(connection, name, b"1", b"2")
    for address in (kafka3.brokers[0].address, proxy.bootstrap):
        with to_leader(address, name) as (connection, topic_id):
            told.append(fetch_session(connection, version, name, topic_id))
    assert told[0] == told[1]
    assert told[1] == [
        (0, True, [2]),
        (0, True, []),
        (0, True, [2]),
        (INVALID_EPOCH, False, []),
        (0, False, []),
        (NO_SESSION, False, []),
    ]


def fetch_session(connection: Connection, version: int, topic: str, topic_id: uuid.UUID) -> list[tuple[int, bool, list[int]]]:
    """(error, whether it has a session, high watermarks) of each answer of one session."""
    named = {"topic": topic, "topic_id": topic_id}

    def ask(session: int, epoch: int, offset: int | None, *forgotten: int) -> Any:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "log_start_offset": -1,
            "partition_max_bytes": 9999,
        }
        topics = [] if offset is None else [{**named, "partitions": [partition]}]
        forget = [{**named, "partitions": list(forgotten)}] if forgotten else []
        who = {"session_id": session, "session_epoch": epoch}
        return connection.decoded(1, version, **CONSUMER, **who, topics=topics, forgotten_topics_data=forget)

    full = ask(0, 0, 0)
    session = full.session_id
    answers = [
        full,
        ask(session, 1, 2),
        ask(session, 2, 0),
        ask(session, 77, None),
        ask(session, 3, None, 0),
        ask(session, 4, None),
    ]
    return [
        (
            int(answer.error_code),
            answer.session_id == session != 0,
            [p.high_watermark for t in answer.responses for p in t.partitions],
        )
        for answer in answers
    ]


@pytest.mark.api(75, 0)
def test_topics_are_described_page_by_page(proxy: ProxyProcess, kafka3: LocalCluster, name: str) -> None:
    topics = [f"{name}-{i}" for i in range(3)]
    for topic in topics:
        create(kafka3.brokers[0].address, topic, 3)
    pages = []
    for address in (kafka3.brokers[0].address, proxy.bootstrap):
        for topic in topics:
            leaders(address, topic)
        with connect(address) as connection:
            pages.append(list(described(connection, topics)))
    assert pages[0] == pages[1]
    assert [sum(len(topic.partitions) for topic in page.topics) for page in pages[1]] == [2, 2, 2, 2, 1]


def described(connection: Connection, topics: list[str]) -> Iterator[Any]:
    cursor: dict[str, object] | None = None
    while True:
        asked: dict[str, Any] = {"topics": [{"name": topic} for topic in topics], "response_partition_limit": 2}
        page = connection.decoded(75, 0, **asked, **({"cursor": cursor} if cursor else {}))
        yield page
        if page.next_cursor is None:
            return
        cursor = {"topic_name": page.next_cursor.topic_name, "partition_index": page.next_cursor.partition_index}


@pytest.mark.api(78)
@pytest.mark.parametrize("version", [1, 2], ids="v{}".format)
def test_a_share_consumer_at_the_wrong_broker_is_shown_the_right_one(
    proxy: ProxyProcess, kafka3: LocalCluster, name: str, version: int
) -> None:
    create(kafka3.brokers[0].address, name)
    *_, direct = (leaders(node.address, name) for node in kafka3.brokers)  # all of them know the topic then
    through = leaders(proxy.bootstrap, name)
    assert direct[:2] == through[:2]
    topic_id, leading, _ = direct
    wrong = next(node_id for node_id in range(3) if node_id != leading[0])
    ports = {port for node in kafka3.brokers for port in (node.listeners.client, node.listeners.internal)}
    topics = [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]
    who = {"group_id": f"{name}-group", "member_id": MEMBER, "share_session_epoch": 0, "topics": topics}
    wanted = {"max_wait": ms(100), "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 10, "batch_size": 10}
    answers = []
    for side in (direct, through):
        with connect(side[2][wrong]) as connection:
            frame = connection.ask(78, version, **who, **wanted)
        assert bool(shows(frame, ports, host=False)) == (side is direct)
        answers.append(decode(78, version, frame))
    (endpoint,) = answers[1].node_endpoints
    assert endpoint.node_id == leading[0]
    assert f"{endpoint.host}:{endpoint.port}" == through[2][leading[0]]
    assert answers[0].responses == answers[1].responses


def fetches(proxy: ProxyProcess) -> list[dict[str, Any]]:
    """What the usage log has of ShareFetch."""
    return [line for line in proxy.usage() if line["type"] == "usage" and line["api"] == "ShareFetch"]


@pytest.mark.api(78, 1)
def test_a_share_group_reads_more_than_the_proxy_holds(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """Answers above the 4 MiB that the proxy holds: they come whole, and are counted by topic."""
    count, size = 16, 700_000
    assert count * size > 2 * HELD
    create(kafka3.brokers[0].address, name)
    earliest = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    group = {"resource_type": 32, "resource_name": name, "configs": [earliest]}
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers) as proxy:
        with to_leader(proxy.bootstrap, name) as (connection, _):
            assert connection.decoded(44, 1, resources=[group]).responses[0].error_code == 0
            for i in range(count):
                produce(connection, name, bytes([65 + i]) * size)
        asked = ("--bootstrap-server", proxy.bootstrap, "--topic", name, "--group", name, "--max-messages", str(count))
        got = tool("console-share-consumer", *asked, check=True).stdout.split()
        assert sorted(got) == [chr(65 + i) * size for i in range(count)]
        wait_until(lambda: [line for line in fetches(proxy) if line["topic"]], "usage")
    lines = fetches(proxy)  # all of them, now that the proxy has ended
    assert {line["topic"] for line in lines} == {name, None}
    assert sum(line["record_bytes"] for line in lines) == count * len(record_batch(b"A" * size))
    assert max(line["response_bytes"] for line in lines) > HELD
