"""Load that goes on while something happens to a proxy or a broker. In: bootstrap servers, a topic. Out: which records were
acknowledged, what was read, and every error that a client showed."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

PAUSE = 0.01
"""Seconds between two records of a producer."""
Record = tuple[str, int, int | None]
"""A value, its partition, and the leader epoch in which it was written (KIP-101)."""


class SteadyProducer:
    """Sends `<name> <number>`, one after the other, in a thread of its own. `acknowledged` are their values."""

    def __init__(self, bootstrap: str, topic: str, name: str, **settings: Any) -> None:
        self.acknowledged: list[str] = []
        self.failed: list[str] = []
        self.unsent = 0
        self.noticed: Counter[str] = Counter()
        """what librdkafka says about its connections, by error; it mends that by itself"""
        self._topic, self._name = topic, name
        self._stop = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 20, "error_cb": self._notice, "log_level": 0, **settings}
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(180)
        del self._producer  # it refers to this object and so would live on, and connect again and again

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                break
            value = f"{self._name} {number}"
            self._producer.produce(self._topic, value.encode(), on_delivery=self._delivered)
            self._producer.poll(0)
            self._stop.wait(PAUSE)  # a poll for so long would end with the first delivery
        self.unsent = self._producer.flush(90)

    def _delivered(self, error: KafkaError | None, message: Any) -> None:
        value = message.value().decode()
        if error is None:
            self.acknowledged.append(value)
        else:
            self.failed.append(f"{value}: {error}")

    def _notice(self, error: KafkaError) -> None:
        self.noticed[error.name()] += 1


class SteadyConsumer:
    """A member of a group that reads all the time and commits. `read` are values, `errors` what it was told in their place."""

    def __init__(self, bootstrap: str, topic: str, group: str, **settings: Any) -> None:
        self.read: list[str] = []
        self.errors: list[str] = []
        self.noticed: Counter[str] = Counter()
        self._stop = threading.Event()
        more = {"group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 500, "log_level": 0, **settings}
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "error_cb": self._notice, **more})
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(180)

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
            else:
                self.read.append((message.value() or b"").decode())
        self._consumer.close()

    def _notice(self, error: KafkaError) -> None:
        self.noticed[error.name()] += 1


def create(bootstrap: str, topic: str, partitions: int = 6) -> None:
    """A topic that survives the loss of a broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {"min.insync.replicas": "2"}
    admin.create_topics([NewTopic(topic, partitions, 3, config=settings)])[topic].result(90)


def read_all(bootstrap: str, topic: str, partitions: int = 6, expected: Iterable[str] = ()) -> Counter[str]:
    """How often each value stands in a topic. `expected`: as of `read_in_order`."""
    return count_values(bootstrap, topic, partitions, expected)[0]


def count_values(
    bootstrap: str, topic: str, partitions: int = 6, expected: Iterable[str] = ()
) -> tuple[Counter[str], Counter[str]]:
    """How often each value stands in a topic, and how often it was written under the same leader. A leader that is replaced answers
    what waits for replicas with an error although the records may survive; a producer without idempotence then writes them to the
    next leader, with or without a proxy."""
    return count_records(read_records(bootstrap, topic, partitions, expected))


def count_records(records: Sequence[Record]) -> tuple[Counter[str], Counter[str]]:
    """The same of what was read."""
    by_leader: Counter[str] = Counter()
    for (value, _, _), count in Counter(records).items():
        by_leader[value] = max(count, by_leader[value])
    return Counter(value for value, _, _ in records), by_leader


def watermarks(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """The first offset and the end of a partition. Leaders may move still: so it asks again, for 90 s."""
    deadline = time.monotonic() + 90
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=90)
        except KafkaException as e:
            moving = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
            if e.args[0].code() not in moving or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return low, high


def read_in_order(
    bootstrap: str,
    topic: str,
    partitions: int = 6,
    isolation: str = "read_uncommitted",
    expected: Iterable[str] = (),
    **more: Any,
) -> list[list[str]]:
    """The values of each partition, up to its present end. There must be no open transaction. `more`: settings, such as a login.

    A leader that stood still until it was replaced may tell an end that is not the end any more. So the topic is read again, for
    90 s, until the `expected` values are there."""
    found: list[list[str]] = [[] for _ in range(partitions)]
    for value, partition, _ in read_records(bootstrap, topic, partitions, expected, isolation, **more):
        found[partition].append(value)
    return found


def read_records(
    bootstrap: str,
    topic: str,
    partitions: int = 6,
    expected: Iterable[str] = (),
    isolation: str = "read_uncommitted",
    **more: Any,
) -> list[Record]:
    """The records of all partitions, those of each in order. Parameters are those of `read_in_order`."""
    wanted, deadline = set(expected), time.monotonic() + 90
    while True:
        found = list(_read_once(bootstrap, topic, partitions, isolation, **more))
        if wanted <= {value for value, _, _ in found} or time.monotonic() > deadline:
            return found


def _read_once(bootstrap: str, topic: str, partitions: int, isolation: str, **more: Any) -> Iterator[Record]:
    settings = {"group.id": "nobody", "enable.auto.commit": False, "isolation.level": isolation, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, "log_level": 0, "auto.offset.reset": "error", **settings, **more})
    try:
        ends = [watermarks(consumer, topic, n)[1] for n in range(partitions)]
        consumer.assign([TopicPartition(topic, n, 0) for n in range(partitions)])
        left = set(range(partitions))
        deadline = time.monotonic() + 180
        while left:
            assert time.monotonic() < deadline, f"partitions {left} cannot be read to their ends"
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    yield (message.value() or b"").decode(), message.partition(), message.leader_epoch()
                else:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    if message.offset() >= ends[message.partition()]:
                        left.discard(message.partition())
    finally:
        consumer.close()
