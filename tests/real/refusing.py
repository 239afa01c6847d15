"""Producers under refusals that come and go. In: bootstrap servers, a topic, for how long. Out: what each producer was told is
written, per partition in the order of its sends; or what it committed.

A producer lives for a short while and another one takes its place, so most begin while something is refused: to them brokers
have no state, which is where a gap in the sequence is dangerous."""

from __future__ import annotations

import random
import re
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from localkafka import run_java
from tests.real.proxies import ProxyProcess, put
from tests.real.records import record_batch
from tests.real.tenancy import USERS, access, logged_in
from tests.real.twins import ms, until

PARTITIONS = 4
PER_PRODUCER = 150
"""Records of an idempotent producer's life."""
PER_TRANSACTION = 20
TRANSACTIONS = 4
"""of a transactional producer's life"""
RETRIED = {6, 7, 14, 19}
"""Error codes after which a batch is sent again."""
MANY, FEW, NONE = 1 << 30, 300_000, 1
"""Bytes per second of all topics: nothing is refused; about every other batch; each one, as long as anything was written lately."""

Log = dict[int, list[str]]
"""Partition to values."""


@dataclass
class Outcome:
    """What producers of one sort were told. `written`: values of each producer that were acknowledged, in the order in which they
    were sent; `committed` and `aborted`: of each transaction; by (name, partition)."""

    written: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    committed: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    aborted: dict[tuple[str, int], list[str]] = field(default_factory=lambda: defaultdict(list))
    sent: Counter[str] = field(default_factory=Counter)
    """records of each producer that it tried to write"""
    errors: list[str] = field(default_factory=list)
    given_up: int = 0
    """transactions that their client had to abort"""
    retries: int = 0
    """requests that were answered with an error and sent again, where the client tells"""


class Flicker:
    """Changes the total threshold of a running proxy at random moments."""

    def __init__(self, proxy: ProxyProcess, seed: int) -> None:
        self.changes = 0
        self._proxy, self._random = proxy, random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.wait(self._random.uniform(0.05, 0.4)):
            set_total(self._proxy, self._random.choice((MANY, FEW, NONE)))
            self.changes += 1


def make_topic(bootstrap: str, topic: str, partitions: int = PARTITIONS, user: str | None = None) -> None:
    """A topic that takes records, and keeps those of raw producers too, whose timestamps are long ago."""
    admin = AdminClient({**access(bootstrap, user), "log_level": 0})
    admin.create_topics([NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})])[topic].result(90)
    asked = [{"name": topic, "partitions": [{"partition_index": n, "timestamp": -1} for n in range(partitions)]}]
    with logged_in(bootstrap, user) as connection:
        until(
            lambda: connection.decoded(2, 6, replica_id=-1, topics=asked).topics[0].partitions,
            lambda answers: all(answer.error_code == 0 for answer in answers),
        )


def thresholds(total: int, mode: str = "transient", meter: str = "window") -> dict[str, Any]:
    """The settings of a proxy that refuses what is above."""
    return {"topics": {"total_bytes_in_per_sec": total, "meter": meter, "mode": mode}}


def set_total(proxy: ProxyProcess, total: int) -> None:
    """Another threshold holds soon, or at once if it is waited for."""
    file = proxy.folder / "settings.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["quotas"]["topics"]["total_bytes_in_per_sec"] = total
    put(file, yaml.safe_dump(settings))
    proxy.process.send_signal(signal.SIGHUP)


class Batch:
    """One batch of a raw producer: a part of its records of one partition."""

    def __init__(self, sequence: int, values: list[str]) -> None:
        self.sequence, self.values = sequence, values
        self.code: int | None = None
        """the answer to the last try; None: not answered"""


class RawProducer:
    """An idempotent producer with several requests in flight, from its first one on, that goes back to the first failed batch once
    all in flight are answered and sends in order from there: what franz-go does, and less careful than it."""

    VERSION = 11
    IN_FLIGHT = 5

    def __init__(self, bootstrap: str, topic: str, user: str | None = None) -> None:
        self._topic = topic
        self._connected = logged_in(bootstrap, user)
        self.connection = self._connected.__enter__()
        asked = {"transactional_id": None, "transaction_timeout": ms(60_000), "producer_id": -1, "producer_epoch": -1}
        made = until(lambda: self.connection.decoded(22, 4, **asked), lambda answer: answer.error_code == 0)
        self._id, self._epoch = int(made.producer_id), int(made.producer_epoch)
        self.retries = 0

    def close(self) -> None:
        self._connected.__exit__(None, None, None)

    def send(self, partition: int, batch: Batch) -> None:
        """The request is written, and its answer is not waited for."""
        values = [value.encode() for value in batch.values]
        records = record_batch(*values, producer_id=self._id, epoch=self._epoch, sequence=batch.sequence)
        data = [{"name": self._topic, "partition_data": [{"index": partition, "records": records}]}]
        self.connection.send(0, self.VERSION, acks=-1, timeout=ms(10_000), topic_data=data)

    def answer(self, batch: Batch) -> int:
        """The error code of the oldest request that was not answered yet, which was about this batch."""
        (topic,) = self.connection.receive(0, self.VERSION).responses
        batch.code = int(topic.partition_responses[0].error_code)
        return batch.code

    def deliver(self, partition: int, batches: list[Batch], pause: Callable[[], None] = lambda: None) -> None:
        """Try until each batch is written, or refused for good: then its code stands in it."""
        left = batches
        while left:
            waiting: list[Batch] = []
            failed = False
            for batch in left:
                if len(waiting) == self.IN_FLIGHT:
                    failed |= self.answer(waiting.pop(0)) in RETRIED
                if failed:
                    break
                self.send(partition, batch)
                waiting.append(batch)
            for batch in waiting:
                self.answer(batch)
            left = [batch for batch in batches if batch.code is None or batch.code in RETRIED]
            if any(batch.code is not None for batch in left):
                self.retries += 1
                pause()


def raw(bootstrap: str, topic: str, seconds: float, name: str, found: Outcome, user: str | None = None) -> None:
    """Raw producers, one after the other."""
    chance = random.Random(name)
    for who in lives(name, seconds):
        producer = RawProducer(bootstrap, topic, user)
        try:
            values = [f"{who} {i}" for i in range(PER_PRODUCER)]
            partition = chance.randrange(PARTITIONS)
            batches, at = [], 0
            while at < len(values):
                size = chance.randint(1, 8)
                batches.append(Batch(at, values[at : at + size]))
                at += size
            producer.deliver(partition, batches, lambda: time.sleep(chance.uniform(0, 0.03)))
            found.sent[who] = len(values)
            found.retries += producer.retries
            for batch in batches:
                if batch.code == 0:
                    found.written[who, partition] += batch.values
                else:
                    found.errors.append(f"{who}, sequence {batch.sequence}: error {batch.code}")
        finally:
            producer.close()


def librdkafka(bootstrap: str, topic: str, seconds: float, name: str, found: Outcome, user: str | None = None) -> None:
    """Idempotent producers of librdkafka, one after the other."""
    for who in lives(name, seconds):
        acknowledged: Log = defaultdict(list)

        def done(error: object, message: Any, acknowledged: Log = acknowledged) -> None:
            if error is None:
                acknowledged[message.partition()].append(message.value().decode())
            else:
                found.errors.append(f"{message.value().decode()}: {error}")

        producer = Producer({**quick(bootstrap, user), "enable.idempotence": True})
        for i in range(PER_PRODUCER):
            producer.produce(topic, f"{who} {i}".encode(), partition=i % PARTITIONS, on_delivery=done)
            producer.poll(0)
        left = producer.flush(60)
        found.sent[who] = PER_PRODUCER
        found.errors += [f"{who}: {left} not delivered"] * (left > 0)
        for partition, values in acknowledged.items():
            found.written[who, partition] += values


def librdkafka_transactions(bootstrap: str, topic: str, seconds: float, name: str, found: Outcome, user: str | None = None) -> None:
    """Transactional producers of librdkafka, one after the other. Some transactions are aborted with records on their way, and
    those of which it says so: it gives up a transaction now and then that is begun right behind one that was aborted so."""
    chance = random.Random(name)
    for who in lives(name, seconds):
        producer = Producer({**quick(bootstrap, user), "transactional.id": who})
        try:
            producer.init_transactions(30)
            for number in range(TRANSACTIONS):
                values: dict[tuple[str, int], list[str]] = defaultdict(list)
                commit = chance.random() < 0.6
                try:
                    transaction(producer, topic, f"{who}/{number}", values)
                    if commit:
                        producer.commit_transaction(60)
                except KafkaException as e:
                    if e.args[0].fatal():
                        raise
                    found.given_up += 1
                    commit = False
                if not commit:
                    time.sleep(chance.uniform(0, 0.05))
                    abort(producer)
                (found.committed if commit else found.aborted).update(values)
        except (KafkaException, TimeoutError) as e:
            found.errors.append(f"{who}: {e}")


def transaction(producer: Producer, topic: str, name: str, values: dict[tuple[str, int], list[str]]) -> None:
    """Begin a transaction and send its records; `values` takes them. The first ones have arrived in the end: librdkafka that has
    to abort before it has added any partition may show a fatal error, with brokers alone as well."""
    producer.begin_transaction()
    for i in range(PER_TRANSACTION):
        value = f"{name} {i}"
        producer.produce(topic, value.encode(), partition=i % 2)
        values[name, i % 2].append(value)
        producer.poll(0)
        if i == 1:
            producer.flush(30)


def abort(producer: Producer) -> None:
    """Abort the transaction. A batch that is refused while librdkafka clears its queues stays in them; that takes the whole time,
    ends with an error of which it says that one may try again, and then works."""
    for _ in range(5):
        try:
            producer.abort_transaction(3)
        except KafkaException as e:
            if not e.args[0].retriable():
                raise
        else:
            return
    raise TimeoutError("a transaction could not be aborted")


def java(bootstrap: str, topic: str, seconds: float, name: str, found: Outcome, user: str | None = None) -> None:
    """A Java program with both sorts of producers."""
    source = Path(__file__).parent / "java" / "Refusing.java"
    counts = [str(PARTITIONS), str(PER_PRODUCER), str(PER_TRANSACTION), str(TRANSACTIONS)]
    login = [] if user is None else [user, USERS[user]]
    ran = run_java(source, bootstrap, topic, str(seconds), name, *counts, *login, timeout=seconds + 120)
    if ran.returncode:
        found.errors.append(ran.stderr)
    for line in ran.stdout.splitlines():
        what, who, partition, values = line.split("\t")
        if what == "retries":
            found.retries += int(values)
        elif what == "failed":
            found.errors.append(f"{who}: {values}")
        elif what == "sent":
            found.sent[who] = int(values)
        else:
            getattr(found, what)[who, int(partition)] += [f"{who} {i}" for i in values.split(",")]


def lives(name: str, seconds: float) -> Iterator[str]:
    """Names of producers, until the time is over."""
    end = time.monotonic() + seconds
    for number in count():
        if time.monotonic() >= end:
            return
        yield f"{name}-{number}"


def quick(bootstrap: str, user: str | None = None) -> dict[str, Any]:
    """Settings with which librdkafka makes many small batches, has several in flight, and does not wait long before it retries."""
    sizes = {"linger.ms": 0, "batch.num.messages": 5, "max.in.flight.requests.per.connection": 5}
    return {**access(bootstrap, user), "log_level": 0, "retry.backoff.ms": 10, "retry.backoff.max.ms": 50, **sizes}


def by_producer(logs: list[list[str]]) -> dict[tuple[str, int], list[str]]:
    """What stands in a topic, by (name of the producer or its transaction, partition), in order."""
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    for partition, values in enumerate(logs):
        for value in values:
            found[re.sub(r" \d+$", "", value), partition].append(value)
    return found
