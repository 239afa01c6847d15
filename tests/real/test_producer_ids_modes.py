"""What a user at the limit of producer ids sees with real clients that log in: in `reject`, with and without `hold_new`, and in
`throttle`; known ids, transactions and epochs, other connections, a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from localkafka import LocalCluster, run_java
from tests.real.proxies import wait_until
from tests.real.raw import Connection
from tests.real.records import record_batch
from tests.real.tenancy import PYTHON, USER, USERS, access, logged_in, upstream
from tests.real.test_reload import Settings, applied, send_hup

pytestmark = pytest.mark.kafka
RECORDS = 10
REFUSED = 19
LIMIT = 300.0
"""Seconds for clients that wait for a quota until the test raises it."""


def settings_of(folder: Path, limit: int, max_throttle: str = "1s", **more: Any) -> Settings:
    ids = {"state_file": str(folder / "ids"), **more}
    quotas = {"entities": [{"user": USER, "producer_ids_rate": limit}], "producer_ids": ids}
    more_settings = {"reload": {"interval": "0s"}, "upstream": upstream()}
    return Settings(folder, limits={"max_throttle": max_throttle}, quotas=quotas, **more_settings)


def raised(settings: Settings, limit: int) -> str:
    quotas = {**settings.first["quotas"], "entities": [{"user": USER, "producer_ids_rate": limit}]}
    return settings.text(quotas=quotas)


class Known:
    """A librdkafka producer. `told` are throttle times, `written` counts what was acknowledged."""

    def __init__(self, bootstrap: str, **more: Any) -> None:
        self.told: list[float] = []
        self.errors: list[object] = []
        self.written = 0
        self.producer = Producer(
            {
                **access(bootstrap, USER),
                "enable.idempotence": True,
                "linger.ms": 0,
                "log_level": 0,
                "throttle_cb": lambda event: self.told.append(event.throttle_time),
                "error_cb": self.errors.append,
                **more,
            }
        )

    def send(self, topic: str, *values: str) -> None:
        for value in values:
            self.producer.produce(topic, value.encode(), on_delivery=self._done)

    def flush(self) -> None:
        assert self.producer.flush(LIMIT) == 0
        self.producer.poll(0)

    def _done(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.written += 1
        else:
            self.errors.append(error)


def librdkafka(bootstrap: str, topic: str) -> str:
    """What it shows of `RECORDS` records, each in a batch of its own, sent before the first is acknowledged."""
    client = Known(bootstrap, **{"batch.num.messages": 1})
    client.send(topic, *map(str, range(RECORDS)))
    client.flush()
    return f"{client.written} {client.errors}"


def java(bootstrap: str, topic: str) -> str:
    ran = run_java(
        Path(__file__).parent / "java" / "Late.java", bootstrap, topic, str(RECORDS), USER, USERS[USER], check=True, timeout=LIMIT
    )
    return ran.stdout.strip().rpartition(" ")[0]


def aio(bootstrap: str, topic: str) -> str:
    async def send() -> str:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=1, **PYTHON)
        await producer.start()
        try:
            results: list[Any] = []
            for i in range(RECORDS):
                results += await asyncio.gather(producer.send_and_wait(topic, str(i).encode()), return_exceptions=True)
        finally:
            await producer.stop()
        failed = [it for it in results if isinstance(it, BaseException)]
        return f"{len(results) - len(failed)} {failed}"

    return asyncio.run(send())


def kafka_python(bootstrap: str, topic: str) -> str:
    producer = KafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, batch_size=0, **PYTHON)
    try:
        sent = [producer.send(topic, str(i).encode()) for i in range(RECORDS)]
        producer.flush(LIMIT)
        failed = [it.exception for it in sent if it.failed()]
        return f"{sum(it.succeeded() for it in sent)} {failed}"
    finally:
        producer.close()


CLIENTS: list[Callable[[str, str], str]] = [librdkafka, java, aio, kafka_python]
DONE = f"{RECORDS} []"


@contextmanager
def newcomers(bootstrap: str, name: str) -> Iterator[list[Future[str]]]:
    """All clients at once, each as a new producer."""
    pool = ThreadPoolExecutor(len(CLIENTS))
    yield [pool.submit(client, bootstrap, f"{name}-{client.__name__}") for client in CLIENTS]
    pool.shutdown()


def written(kafka: LocalCluster, topic: str) -> list[str]:
    """The records of a topic with one partition, as the broker has them."""
    consumer = Consumer(access(kafka.bootstrap_servers, **{"group.id": "nobody", "log_level": 0}))
    try:
        place = TopicPartition(topic, 0, 0)
        consumer.assign([place])
        end = consumer.get_watermark_offsets(place, timeout=90)[1]
        found: list[str] = []

        def read() -> bool:
            for message in consumer.consume(100, 0.1):
                found.append((message.value() or b"").decode())
            (at,) = consumer.position([place])
            return end == 0 or at.offset >= end

        wait_until(read, f"all records of {topic}")
        return found
    finally:
        consumer.close()


def create(kafka: LocalCluster, *topics: str) -> None:
    admin = AdminClient(access(kafka.bootstrap_servers))
    for made in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        made.result(90)


def test_known_producers_go_on_and_new_ones_wait_for_room_and_lose_nothing(
    tenants1: LocalCluster, name: str, tmp_path: Path
) -> None:
    """Two ids are there, of an idempotent and of a transactional producer. Four clients come, each with several batches under way:
    all are refused, until the limit is raised. What each sent is then written once, and in order."""
    create(tenants1, name, *(f"{name}-{client.__name__}" for client in CLIENTS))
    settings = settings_of(tmp_path, 2, mode="reject")
    with settings.proxy(tenants1.bootstrap_servers) as proxy:
        steady, transactional = Known(proxy.bootstrap), Known(proxy.bootstrap, **{"transactional.id": name})
        steady.send(name, "steady")
        steady.flush()
        transactional.producer.init_transactions(30)
        commit(transactional, name)
        with newcomers(proxy.bootstrap, name) as late:
            wait_until(lambda: proxy.metric("sequence_fences") == len(CLIENTS), "a refusal of each", 60)
            steady.send(name, *(["steady"] * 5))
            steady.flush()
            commit(transactional, name)
            transactional.producer.begin_transaction()
            transactional.send(name, "aborted")
            transactional.flush()
            transactional.producer.abort_transaction(30)
            again = Known(proxy.bootstrap, **{"transactional.id": name})
            again.producer.init_transactions(30)  # another epoch of the same id
            commit(again, name)
            assert not any(one.done() for one in late)
            assert [written(tenants1, f"{name}-{client.__name__}") for client in CLIENTS] == [[]] * len(CLIENTS)
            assert proxy.metric("producer_ids_tokens", user=USER) == 0
            for one in (steady, again):
                assert (one.errors, one.told) == ([], [])
            assert (steady.written, transactional.written, again.written) == (6, 3, 1)
            settings.write(raised(settings, 100))
            send_hup(proxy)
            applied(proxy)
            assert [one.result(LIMIT) for one in late] == [DONE] * len(CLIENTS)
        assert proxy.metric("producer_ids_tokens", user=USER) == 100 - 2 - len(CLIENTS)
    for client in CLIENTS:
        assert written(tenants1, f"{name}-{client.__name__}") == [str(i) for i in range(RECORDS)], client.__name__


def commit(client: Known, topic: str) -> None:
    client.producer.begin_transaction()
    client.send(topic, "committed")
    client.producer.commit_transaction(90)


def test_throttled_newcomers_are_late_and_see_no_error(tenants1: LocalCluster, name: str, tmp_path: Path) -> None:
    """With `hold_new` besides, so that each waits for its id first, ten seconds."""
    create(tenants1, *(f"{name}-{client.__name__}" for client in CLIENTS))
    settings = settings_of(tmp_path, 1, "200ms", mode="throttle", hold_new=True)
    with settings.proxy(tenants1.bootstrap_servers) as proxy:
        first = Known(proxy.bootstrap)
        first.send(f"{name}-first", "first")
        first.flush()
        with newcomers(proxy.bootstrap, name) as late:
            assert [one.result(120) for one in late] == [DONE] * len(CLIENTS)
        assert proxy.metric("held_requests_total", quota="producer_ids") >= len(CLIENTS)
        assert proxy.metric("throttled_requests_total", quota="producer_ids") >= len(CLIENTS)
    for client in CLIENTS:
        assert written(tenants1, f"{name}-{client.__name__}") == [str(i) for i in range(RECORDS)], client.__name__


def test_an_id_that_is_known_moves_between_connections_and_epochs_and_over_a_restart(
    tenants1: LocalCluster, name: str, tmp_path: Path
) -> None:
    create(tenants1, name)
    settings = settings_of(tmp_path, 1, mode="reject")
    with settings.proxy(tenants1.bootstrap_servers) as proxy:
        with logged_in(proxy.bootstrap, USER) as first, logged_in(proxy.bootstrap, USER) as second:
            id, other = new_id(first), new_id(second)
            assert write(first, name, id, 0, 0) == 0
            assert write(second, name, id, 0, 1) == 0, "on another connection"
            assert write(second, name, id, 1, 0) == 0, "in another epoch"
            assert write(first, name, other, 0, 0) == REFUSED
        with logged_in(proxy.bootstrap, USER) as third:
            assert write(third, name, other, 0, 1) == REFUSED, "behind the one that was refused"
        assert proxy.metric("producer_ids_tokens", user=USER) == 0
    with (
        settings.proxy(tenants1.bootstrap_servers) as proxy,
        logged_in(proxy.bootstrap, USER) as first,
        logged_in(proxy.bootstrap, USER) as second,
    ):
        assert write(first, name, id, 1, 1) == 0, "a restart does not forget who is known"
        assert write(second, name, other, 0, 0) == REFUSED, "nor that there is no room"


def new_id(connection: Connection) -> int:
    """A producer id; the broker's coordinator may need a moment."""
    fields = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}

    def ask() -> Any:
        answer = connection.decoded(22, 4, **fields)
        return answer if answer.error_code == 0 else None

    return int(wait_until(ask, "a producer id").producer_id)


def write(connection: Connection, topic: str, id: int, epoch: int, sequence: int) -> int:
    """The error code of one batch."""
    batch = record_batch(b"raw", producer_id=id, epoch=epoch, sequence=sequence)
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    answer = connection.decoded(0, 9, transactional_id=None, acks=-1, topic_data=data)
    return int(answer.responses[0].partition_responses[0].error_code)
