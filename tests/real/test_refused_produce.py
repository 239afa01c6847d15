"""What users of each client library see of a topic over its threshold, in each mode: the table of docs/byte-quotas.md."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer

from localkafka import LocalCluster, run_java
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection
from tests.real.records import record_batch
from tests.real.refusing import MANY, NONE, make_topic, set_total, thresholds
from tests.real.steady import read_in_order
from tests.real.tenancy import LOGIN, PYTHON, USER, USERS, access, logged_in, upstream
from tests.real.twins import ms

pytestmark = pytest.mark.kafka

FILLER = b"x" * 100_000
"""Keeps the rate of its topic above any threshold here: by samples until it is 11 s old, in the one-minute average for minutes."""
Between = Callable[[], None]
"""What a client calls between its two sends, when it knows what became of the first."""
WRITTEN = ["written"] * 3
REFUSED_FOR_GOOD = {
    "java": ["PolicyViolationException, with the reason"] * 3 + WRITTEN,
    "librdkafka": ["POLICY_VIOLATION"] * 3 + WRITTEN,
    "kafka-python": ["PolicyViolationError"] * 6,
    "aiokafka": ["PolicyViolationError"] * 3 + WRITTEN,
    "aiokafka idempotent": ["PolicyViolationError"] * 6,
}
"""What each of CLIENTS sees of three batches that are refused with error 44, and of three that are written."""
ALL = list("012345")
TOLD = [*WRITTEN, *WRITTEN, "told true"]


def java(proxy: ProxyProcess, topic: str, acks: str, between: Between, folder: Path) -> list[str]:
    folder.mkdir()
    source = Path(__file__).parent / "java" / "Refused.java"
    with ThreadPoolExecutor() as threads:
        running = threads.submit(run_java, source, proxy.bootstrap, topic, acks, str(folder), USER, USERS[USER])
        wait_until(lambda: running.done() or (folder / "asked").exists(), "the first records to be written or refused", 60)
        between()
        (folder / "go").touch()
        ran = running.result()
    assert ran.returncode == 0, ran.stderr
    return [line for line in ran.stdout.splitlines() if line != "told false"]


def librdkafka(proxy: ProxyProcess, topic: str, acks: str, between: Between, _: Path) -> list[str]:
    seen: list[str] = []
    told: list[float] = []
    settings = access(proxy.bootstrap, **{"acks": acks, "enable.idempotence": acks == "all", "log_level": 0})
    producer = Producer({**settings, "throttle_cb": lambda event: told.append(event.throttle_time)})
    for first in (0, 3):
        for i in range(first, first + 3):
            producer.produce(
                topic, str(i).encode(), partition=0, on_delivery=lambda e, _: seen.append(e.name() if e else "written")
            )
        assert producer.flush(90) == 0
        if first == 0:
            between()
    producer.poll(0)
    return seen + ["told true"] * (max(told, default=0) > 0)


def kafka_python(proxy: ProxyProcess, topic: str, acks: str, between: Between, _: Path) -> list[str]:
    producer = KafkaProducer(bootstrap_servers=proxy.bootstrap, acks="all" if acks == "all" else 0, **PYTHON)
    seen = []
    for first in (0, 3):
        sent = [producer.send(topic, str(i).encode(), partition=0) for i in range(first, first + 3)]
        for one in sent:
            try:
                one.get(60)
                seen.append("written")
            except Exception as e:
                seen.append(type(e).__name__)
        if first == 0:
            between()
    producer.close()
    return seen


def aiokafka_(proxy: ProxyProcess, topic: str, acks: str, between: Between, _: Path, *, idempotent: bool = False) -> list[str]:
    async def both() -> list[str]:
        seen = []
        settings = {"acks": "all" if acks == "all" else 0, "enable_idempotence": idempotent}
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=proxy.bootstrap, **settings, **PYTHON) as producer:
            for first in (0, 3):
                sent = [await producer.send(topic, str(i).encode(), partition=0) for i in range(first, first + 3)]
                for answer in await asyncio.gather(*sent, return_exceptions=True):
                    seen.append(type(answer).__name__ if isinstance(answer, Exception) else "written")
                if first == 0:
                    await asyncio.to_thread(between)
        return seen

    return asyncio.run(both())


def aiokafka_idempotent(proxy: ProxyProcess, topic: str, acks: str, between: Between, folder: Path) -> list[str]:
    return aiokafka_(proxy, topic, acks, between, folder, idempotent=True)


CLIENTS = {
    "java": java,
    "librdkafka": librdkafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka_,
    "aiokafka idempotent": aiokafka_idempotent,
}


class Stage:
    """A proxy before a broker, and a topic for each client that is over its threshold, however long the client takes to begin."""

    def __init__(self, proxy: ProxyProcess, kafka: LocalCluster, name: str) -> None:
        self.proxy, self._kafka, self._name = proxy, kafka, name
        self._changes = 0

    def total(self, total: int) -> None:
        self._changes += 1
        set_total(self.proxy, total)
        wait_until(lambda: len(self.proxy.lines("settings applied")) == self._changes, "the threshold to hold")

    def topic(self, what: str) -> str:
        topic = f"{self._name}-{what.replace(' ', '-')}"
        make_topic(self._kafka.bootstrap_servers, topic, 2, USER)
        with logged_in(self.proxy.bootstrap) as connection:
            write(connection, topic, 1, FILLER)
        return topic

    def topics(self, names: Sequence[str]) -> list[str]:
        """Those of several clients, all over their thresholds by now: the average moves every 5 s."""
        made = [self.topic(what) for what in names]
        wait_until(lambda: all(self.proxy.metric("topic_bytes_in_rate", topic=it) > NONE for it in made), "the average to move")
        return made

    def refused(self) -> float:
        return self.proxy.metric("refused_items_total", quota="bytes_in")

    def written(self, what: str) -> list[str]:
        return read_in_order(self._kafka.bootstrap_servers, f"{self._name}-{what.replace(' ', '-')}", 2, **LOGIN)[0]


def write(connection: Connection, topic: str, partition: int, value: bytes) -> None:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": record_batch(value)}]}]
    answer = connection.decoded(0, 9, acks=-1, timeout=ms(10_000), topic_data=data)
    assert answer.responses[0].partition_responses[0].error_code == 0


@contextmanager
def stage(kafka: LocalCluster, name: str, folder: Path, mode: str) -> Iterator[Stage]:
    settings = {
        "quotas": thresholds(MANY, mode, meter="ewma"),
        "reload": {"interval": "0s"},
        "limits": {"max_throttle": "1s" if mode == "throttle" else "300ms"},  # of which clients are told what is left
        "upstream": upstream(),
    }
    with ProxyProcess(folder / "proxy", kafka.bootstrap_servers, settings) as proxy:
        yield Stage(proxy, kafka, name)


def seen_by_each(
    at: Stage, folder: Path, between: Callable[[], None], acks: str = "all", while_on: Any = None
) -> dict[str, list[str]]:
    seen = {}
    clients = {what: client for what, client in CLIENTS.items() if acks != "0" or what != "aiokafka idempotent"}
    for (what, client), topic in zip(clients.items(), at.topics([*clients]), strict=True):
        at.total(NONE)
        side = threading.Thread(target=while_on, args=(at.refused(),)) if while_on else None
        if side:
            side.start()
        seen[what] = client(at.proxy, topic, acks, between, folder / what)
        if side:
            side.join()
        at.total(MANY)
    return seen


def test_transient_nobody_sees_more_than_a_delay(tenants1: LocalCluster, name: str, tmp_path: Path) -> None:
    with stage(tenants1, name, tmp_path, "transient") as at:

        def relent(before: float) -> None:
            wait_until(lambda: at.refused() > before, "a refusal", 60)
            at.total(MANY)

        seen = seen_by_each(at, tmp_path, lambda: None, while_on=relent)
    assert seen == dict.fromkeys(CLIENTS, WRITTEN * 2)
    assert {what: at.written(what) for what in CLIENTS} == dict.fromkeys(CLIENTS, ALL)


def test_fail_everybody_sees_a_policy_violation(tenants1: LocalCluster, name: str, tmp_path: Path) -> None:
    """And goes on with the same producer, but for two idempotent ones: kafka-python gives up its producer, aiokafka has skipped
    sequences for good."""
    with stage(tenants1, name, tmp_path, "fail") as at:
        seen = seen_by_each(at, tmp_path, lambda: at.total(MANY))
    assert seen == REFUSED_FOR_GOOD
    assert {what: at.written(what) for what in CLIENTS} == {
        **dict.fromkeys(CLIENTS, ALL[3:]),
        "kafka-python": [],
        "aiokafka idempotent": [],
    }


def test_throttle_everything_is_taken_late(tenants1: LocalCluster, name: str, tmp_path: Path) -> None:
    """Those that look at throttle_time_ms can tell."""
    with stage(tenants1, name, tmp_path, "throttle") as at:
        seen = seen_by_each(at, tmp_path, lambda: None)
        assert at.proxy.metric("throttled_requests_total", quota="bytes_in") >= 2 * len(CLIENTS)
        assert at.refused() == 0
    assert seen == dict.fromkeys(CLIENTS, WRITTEN * 2) | {"java": TOLD, "librdkafka": TOLD}
    assert {what: at.written(what) for what in CLIENTS} == dict.fromkeys(CLIENTS, ALL)


def test_no_answers_wanted_nobody_sees_anything_and_refused_records_are_lost(
    tenants1: LocalCluster, name: str, tmp_path: Path
) -> None:
    with stage(tenants1, name, tmp_path, "transient") as at:
        before = at.refused()

        def after_a_refusal() -> None:
            wait_until(lambda: at.refused() > before, "a refusal")

        seen = seen_by_each(at, tmp_path, after_a_refusal, acks="0")
    clients = CLIENTS.keys() - {"aiokafka idempotent"}
    assert seen == dict.fromkeys(clients, WRITTEN * 2)
    assert not any(at.written(what) for what in clients)


def test_no_answers_wanted_the_connection_is_closed_behind_what_goes_on(tenants1: LocalCluster, name: str, tmp_path: Path) -> None:
    """The batch is dropped, the rest of its request and what was sent before it are written, and a new connection serves."""
    free = f"{name}-free"
    settings = {
        "quotas": {"topics": {"total_bytes_in_per_sec": 1000, "bytes_in_per_sec": {free: 999}, "meter": "window"}},
        "upstream": upstream(),
    }
    with ProxyProcess(tmp_path, tenants1.bootstrap_servers, settings) as proxy:
        at = Stage(proxy, tenants1, name)
        make_topic(tenants1.bootstrap_servers, free, 2, USER)
        full = at.topic("full")  # for eleven seconds

        def part(topic: str, value: bytes) -> dict[str, Any]:
            return {"name": topic, "partition_data": [{"index": 0, "records": record_batch(value)}]}

        with logged_in(proxy.bootstrap) as connection:
            connection.send(0, 9, acks=0, topic_data=[part(free, b"before")])
            connection.send(0, 9, acks=0, topic_data=[part(full, b"dropped"), part(free, b"beside")])
            with pytest.raises(ConnectionError):
                connection.receive(0, 9)
        with logged_in(proxy.bootstrap) as connection:
            write(connection, free, 0, b"after")
        assert at.refused() == 1
        wait_until(lambda: len(at.written("free")) == 3, "everything else to be written")
    assert at.written("free")[0] == "before"
    assert set(at.written("free")[1:]) == {"beside", "after"}, "of two connections"
    assert at.written("full") == []
