"""A broker with an authorizer: whoever has no right to a topic can have nobody refused who keeps within its threshold, whatever it
sends; and the threshold holds for those who have the right, though the proxy's own identity may not see a single topic."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kio.index import load_request_schema

from localkafka import LocalCluster
from tests.conftest import QUICK_START
from tests.messages import part_of
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection, connect
from tests.real.records import record_batch

pytestmark = pytest.mark.kafka

USERS = {"admin": "admin-secret", "alice": "alice-secret", "mallory": "mallory-secret", "proxy": "proxy-secret"}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:admin",
}
ORDERS = 100_000
"""bytes per second: the threshold of the topic"""
SECONDS = 14
"""of which two ticks of the one-minute average are a part"""
NOT_AUTHORIZED, NOT_ENOUGH_REPLICAS = 29, 19
PAUSE = 0.2
"""Seconds between two attacks of a thread, of which one is worth 10 MB or thousands of partitions."""


def login(user: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": USERS[user],
        "log_level": 0,
    }


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalCluster]:
    with LocalCluster(1, sasl=USERS, properties=AUTHORIZER, jvm_flags=QUICK_START) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **login("admin")})
        for made in admin.create_topics([NewTopic(name, 2, 1) for name in ("orders", "others")]).values():
            made.result(90)
        right = AclBinding(
            *(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.WRITE),
            AclPermissionType.ALLOW,
        )
        for done in admin.create_acls([right]).values():
            done.result(90)
        yield cluster


@pytest.fixture
def proxy(kafka: LocalCluster, tmp_path: Any) -> Iterator[ProxyProcess]:
    """Its identity has no rights: it sees no topic."""
    settings = {
        "upstream": {"sasl": {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password": USERS["proxy"]}},
        "quotas": {"topics": {"total_bytes_in_per_sec": 2 * ORDERS, "bytes_in_per_sec": {"orders": ORDERS}}},
    }
    with ProxyProcess(tmp_path, kafka.bootstrap_servers, settings) as running:
        yield running


def write(connection: Connection, *topics: str, size: int, acks: int) -> None:
    schema = load_request_schema(0, 9)
    data = part_of(schema, "topic_data")
    part = part_of(data, "partition_data")
    listed = tuple(data(name=name, partition_data=(part(index=0, records=record_batch(bytes(size))),)) for name in topics)
    connection.send(0, 9, acks=acks, transactional_id=None, topic_data=listed)


@contextlib.contextmanager
def logged_in(proxy: ProxyProcess) -> Iterator[Connection]:
    with connect(proxy.bootstrap) as connection:
        assert connection.decoded(17, 1, mechanism="PLAIN").error_code == 0
        answer = connection.decoded(36, 2, auth_bytes=f"\0mallory\0{USERS['mallory']}".encode())
        assert int(answer.error_code) == 0
        yield connection


def writes_without_rights(connection: Connection) -> None:
    for _ in range(20):
        write(connection, "orders", size=500_000, acks=1)
    codes = {int(connection.receive(0, 9).responses[0].partition_responses[0].error_code) for _ in range(20)}
    assert codes <= {NOT_AUTHORIZED, NOT_ENOUGH_REPLICAS}, "what is under way may be too much for that user"


def writes_without_rights_and_answers(connection: Connection) -> None:
    with contextlib.suppress(ConnectionError):
        for _ in range(5):
            write(connection, "orders", size=500_000, acks=0)
        connection.decoded(18, 0)


def goes_away_before_the_answer(connection: Connection) -> None:
    write(connection, "orders", size=900_000, acks=1)


def makes_up_names(connection: Connection) -> None:
    write(connection, *(f"zz{i}" for i in range(300)), size=3000, acks=1)
    codes = {int(topic.partition_responses[0].error_code) for topic in connection.receive(0, 9).responses}
    assert codes <= {NOT_AUTHORIZED, NOT_ENOUGH_REPLICAS}, "what is under way may be too much for that user"


def asks_for_what_it_may_not_see(connection: Connection) -> None:
    schema = part_of(load_request_schema(3, 12), "topics")
    wanted = (schema(topic_id=None, name="orders"),)
    answer = connection.decoded(3, 12, topics=wanted, allow_auto_topic_creation=False)
    assert int(answer.topics[0].error_code) == NOT_AUTHORIZED


def attack(proxy: ProxyProcess, once: Callable[[Connection], None], stop: threading.Event, failures: list[BaseException]) -> None:
    """On one connection after the other, with pauses: more than many times the threshold would only keep processors busy."""
    try:
        while not stop.wait(PAUSE):
            with logged_in(proxy) as connection:
                once(connection)
    except (AssertionError, OSError) as e:
        failures.append(e)


def produce(proxy: ProxyProcess, rate: int, seconds: float, **settings: Any) -> tuple[int, int]:
    """(records written, records not written) of alice, at so many bytes per second."""
    failed: list[bool] = []
    producer = Producer({"bootstrap.servers": proxy.bootstrap, **login("alice"), "linger.ms": 0, "retries": 0, **settings})
    begin, sent = time.monotonic(), 0
    while time.monotonic() < begin + seconds:
        producer.produce("orders", bytes(rate // 20), partition=0, on_delivery=lambda error, _: failed.append(error is not None))
        sent += 1
        time.sleep(max(begin + sent / 20 - time.monotonic(), 0))
        producer.poll(0)
    assert producer.flush(90) == 0
    return failed.count(False), failed.count(True)


# tests/apis/test_produce_confirmed.py has all of them without a broker.
@pytest.mark.parametrize(
    "attackers",
    [
        [writes_without_rights, makes_up_names],
        pytest.param([writes_without_rights_and_answers] * 3, marks=pytest.mark.nightly),
        pytest.param([goes_away_before_the_answer] * 3, marks=pytest.mark.nightly),
        pytest.param([asks_for_what_it_may_not_see] * 3, marks=pytest.mark.nightly),
    ],
    ids=lambda attackers: attackers[0].__name__,
)
def test_whoever_has_no_rights_has_nobody_refused(proxy: ProxyProcess, attackers: list[Callable[[Connection], None]]) -> None:
    stop, failures = threading.Event(), []
    at_work = [threading.Thread(target=attack, args=(proxy, once, stop, failures)) for once in attackers]
    for each in at_work:
        each.start()
    try:
        _, failed = produce(proxy, ORDERS // 2, SECONDS)
    finally:
        stop.set()
        for each in at_work:
            each.join()
    assert failures == []
    assert failed == 0
    assert not [line for line in proxy.usage() if line["type"] == "decision" and line["principal"] == "User:alice"]
    assert not [line for line in proxy.usage() if line.get("topic", "") and line["topic"].startswith("zz")]


@pytest.mark.parametrize("acks", ["1", "0"])
def test_the_threshold_holds_for_the_owner(proxy: ProxyProcess, acks: str) -> None:
    """Also while somebody asks for the topic who may not see it, as does the proxy itself every second. It is so far above the
    threshold that the average is too after two more ticks, wherever in the first interval it began."""
    stop, failures = threading.Event(), []
    asking = threading.Thread(target=attack, args=(proxy, asks_for_what_it_may_not_see, stop, failures))
    asking.start()
    try:
        produce(proxy, 20 * ORDERS, SECONDS, acks=acks)
    finally:
        stop.set()
        asking.join()
    assert failures == []

    def refused() -> list[dict[str, Any]]:
        return [line for line in proxy.usage() if line["type"] == "decision" and line["quota"] == "bytes_in"]

    lines = wait_until(refused, "refusals")
    assert {line["principal"] for line in lines} == {"User:alice"}
    assert proxy.metric("bytes_in_refused_bytes_total") > ORDERS
