"""Reading and writing with the real client, confluent-kafka. In: a `Job`. Out: what each client counted.

A client has a thread of its own, which waits in librdkafka and lets others run meanwhile. Its queue is bounded: what is due and
does not fit waits here, and its latency counts from when it was due."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from importlib.metadata import version
from itertools import count
from typing import Any, Final

import confluent_kafka
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from loadtest.drive.job import Job
from loadtest.drive.pace import Pace
from loadtest.drive.pythons import producer_of
from loadtest.drive.tally import LATE, Tally
from loadtest.endpoint import CHANGED, bounds, librdkafka_settings, said
from loadtest.payload import Writer, header_of, run_bytes
from loadtest.scenario import Consume, EndToEnd, NewTopics, Produce, Writing

CLOSE: Final = 30.0
"""Seconds to connect, to end a transaction, to close a client."""
MIB: Final = 1 << 20
LEAVE: Final = 3.0
QUEUE: Final = 64 * MIB
"""Bytes that all clients of a process may have queued together."""
TRANSACTION: Final = 300_000
"""Milliseconds; brokers allow at most 900,000 by default."""
PURGED: Final = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
READ: Final = 1000
"""Records at once."""
ENDS: Final = 120.0
"""Seconds in which a transaction has to be committed or aborted, whatever happens to brokers meanwhile."""
LAST: Final = 5.0
"""Seconds after a phase in which writers may be silent and write again."""
QUIET: Final = {"group": 10.0, "share": 20.0}
"""Seconds without a record after which a verified reader has read everything. A share group is given a record whose acknowledgement
was lost again once its lock is over (30 s by default, at least 15 s)."""
DRAINED: Final = 50.0
"""Seconds after a phase after which a verified reader stops."""
_OWN: Final = f"confluent-kafka {confluent_kafka.version()} (librdkafka {confluent_kafka.libversion()[0]})"


class DriverError(Exception):
    """The load cannot be made; the message says why."""


def one_record(job: Job) -> str:
    """A new idempotent producer writes one record and closes. Returns the name of the error, or nothing."""
    errors: list[str] = []
    settings = {"client.id": job.client_id, "enable.idempotence": True, "message.timeout.ms": 5000, "linger.ms": 0, "log_level": 0}
    producer = Producer({**librdkafka_settings(job.bootstrap, job.access), **settings, **job.settings})
    producer.produce(job.topic, b"new", on_delivery=lambda error, _: errors.append(error.name()) if error else None)
    return "_TIMED_OUT" if producer.flush(CLOSE) else "".join(errors)


class Client:
    """One client in one thread."""

    def __init__(self, job: Job, number: int, pace: Pace) -> None:
        self.job, self.number, self.pace = job, number, pace
        self.tally = Tally(pace, by_end=job.load.limited)
        self.told: list[str] = []
        """the first errors of its connections"""

    def connect(self) -> None:
        """Raises KafkaException, DriverError."""

    def leave(self) -> None:
        """End at once. Called from another thread when the run is stopped."""

    def run(self) -> None:
        """From the beginning of the phase to its end."""

    def close(self) -> None:
        """End what is in flight, then close."""

    def settings(self, **more: Any) -> dict[str, Any]:
        return {
            **librdkafka_settings(self.job.bootstrap, self.job.access),
            "client.id": self.job.client_id,
            "error_cb": lambda error: self.told.append(error.str()) if len(self.told) < 3 else None,
            "throttle_cb": lambda event: self.tally.throttled(event.throttle_time, time.monotonic()),
            "log_level": 0,
            **more,
            **self.job.settings,
        }


class Writes(Client):
    """A producer whose records say to which run, producer and sequence they belong. Each partition has sequences of its own."""

    def __init__(self, job: Job, number: int, pace: Pace) -> None:
        super().__init__(job, number, pace)
        assert isinstance(job.load, Writing)
        self.load: Writing = job.load
        self._id = job.first_producer + number
        self._sequences = [0] * job.partitions
        self._partition = number % job.partitions
        self._pending: list[Callable[[float], None]] = []
        """what was delivered and is acknowledged with its transaction"""
        self._before = list(self._sequences)
        """the sequences at which its transaction began"""
        self._counts = isinstance(job.load, Produce)
        self._held = job.load.limited or pace.rate is None
        """whether records that are left at the end do not count as failed"""

    def connect(self) -> None:
        self._writer = Writer(run_bytes(self.job.run_id), self.load.size)
        self._producer = self._made()
        self._producer.list_topics(self.job.topic, timeout=CLOSE)
        if self.load.transaction:
            self._producer.init_transactions(CLOSE)

    def _made(self) -> Producer:
        load, more = self.load, dict[str, Any]()
        longest = max(300_000, round((self.job.warm_up + self.job.duration) * 1000))
        if load.transaction:
            more |= {"transactional.id": f"{self.job.prefix}-{self._id}", "transaction.timeout.ms": TRANSACTION}
        depth = max(QUEUE // self.job.clients, 2 * load.size, MIB)
        settings = self.settings(
            **{
                "acks": load.acks,
                "enable.idempotence": load.idempotent and load.acks == "all",
                "linger.ms": load.linger * 1000,
                "message.max.bytes": max(load.size + 4096, MIB),
                "queue.buffering.max.kbytes": depth >> 10,
                "queue.buffering.max.messages": 10_000 if self.pace.rate is None else 100_000,
                "message.timeout.ms": min(longest, TRANSACTION) if load.transaction else longest,
            },
            **more,
        )
        return producer_of(load.client, self.job, settings)

    def run(self) -> None:
        pace, tally = self.pace, self.tally
        last = pace.end if self._held else pace.end + LATE
        blocked, since = False, 0
        if self.load.transaction:
            self._begin()
        for n in count():
            now = time.monotonic()
            due = now if pace.rate is None else pace.due(n)
            if due >= pace.end:
                break
            while due > now:
                if due - now < 0.001:
                    time.sleep(due - now)
                self._producer.poll(due - now if due - now >= 0.001 else 0)
                blocked, now = False, time.monotonic()
            while now < last and not self._send(due, now):
                self._producer.poll(0.01)
                blocked, now = True, time.monotonic()
            if now >= last:
                break
            tally.begun(due, now, lag=not blocked)
            since += 1
            if self.load.transaction and since == self.load.transaction:
                self._commit()
                self._begin()
                since, blocked = 0, True
            elif pace.rate is not None or n % 16 == 0:
                self._producer.poll(0)

    def close(self) -> None:
        left = self._producer.flush(self.job.grace)
        if left:
            self._producer.purge()
            self._producer.flush(CLOSE)
        if self.load.transaction and left:
            self._abort()
        elif self.load.transaction:
            self._commit()

    def _send(self, due: float, now: float) -> bool:
        """False if the queue is full."""
        partition = self._partition
        sequence = self._sequences[partition]
        value = self._writer.record(self._id, sequence, round(due * 1e9))
        try:
            self._producer.produce(
                self.job.topic, value, partition=partition, on_delivery=self._told(partition, sequence, due, now)
            )
        except BufferError:
            return False
        except KafkaException:
            if not self.load.transaction:
                raise
            self._commit()  # an earlier record failed, and so does the commit: the transaction is aborted
            self._begin()
            return False
        self._sequences[partition] = sequence + 1
        self._partition = (partition + 1) % self.job.partitions
        return True

    def _told(self, partition: int, sequence: int, due: float, sent: float) -> Callable[[KafkaError | None, Any], None]:
        tally, size = self.tally, self.load.size

        def acknowledged(now: float) -> None:
            if self._counts:
                tally.done(due, sent, now, size)
            if self.load.acks != 0:
                tally.record(self._id, partition, sequence)

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                if not (self._held and error.code() in PURGED):
                    tally.failed(error.name(), due, time.monotonic())
            elif self.load.transaction:
                self._pending.append(acknowledged)
            else:
                acknowledged(time.monotonic())

        return delivered

    def _begin(self) -> None:
        self._before = list(self._sequences)
        self._pending.clear()
        self._producer.begin_transaction()

    def _commit(self) -> None:
        """Commits, or aborts what cannot be committed. Raises DriverError if neither is possible."""
        error = self._tried(self._producer.commit_transaction)
        if error is None:
            now = time.monotonic()
            for acknowledged in self._pending:
                acknowledged(now)
            self._pending.clear()
        elif error.txn_requires_abort():
            self._abort()
        else:
            self._renew(error)

    def _abort(self) -> None:
        """Raises DriverError."""
        failed = len(self._pending)
        error = self._tried(self._producer.abort_transaction)
        if error is not None:
            self._renew(error)
            return
        now = time.monotonic()
        self.tally.failed("TRANSACTION_ABORTED", now, now, failed)
        self._pending.clear()
        for n, (first, last) in enumerate(zip(self._before, self._sequences, strict=True)):
            for sequence in range(first, last):
                self.tally.aborted(self._id, n, sequence)

    def _renew(self, error: KafkaError) -> None:
        """Another producer goes on, where this one never can. Whether the transaction was committed is not known."""
        if not error.fatal():
            raise DriverError(f"a transaction cannot be ended: {error.str()}")
        now = time.monotonic()
        self.tally.failed(error.name(), now, now, len(self._pending))
        self._pending.clear()
        self._producer = self._made()
        again = self._tried(self._producer.init_transactions)
        if again is not None:
            raise DriverError(f"a producer cannot go on: {again.str()}")

    def _tried(self, how: Callable[[float], None]) -> KafkaError | None:
        """The error that it ends with when it makes no sense to try again, or no more."""
        deadline = time.monotonic() + ENDS
        while True:
            try:
                how(CLOSE)
            except KafkaException as e:
                error: KafkaError = e.args[0]
                if not error.retriable() or time.monotonic() > deadline:
                    return error
            else:
                return None


class Reads(Client):
    """A consumer of a share of the partitions, or a member of a group. At the end of the topic it starts again."""

    def connect(self) -> None:
        job, load = self.job, self.job.load
        assert isinstance(load, Consume)
        self._group = load.group
        self._over, self._left = threading.Event(), threading.Event()
        self._consumer = Consumer(
            self.settings(
                **{
                    "group.id": f"{job.prefix}-{job.load.tenant}",
                    "enable.auto.commit": load.group,
                    "auto.offset.reset": "earliest",
                    "enable.partition.eof": not load.group,
                    **({"auto.commit.interval.ms": 1000} if load.verified else {}),
                    "queued.max.messages.kbytes": max(QUEUE // job.clients, MIB) >> 10,
                }
            )
        )
        self._consumer.list_topics(job.topic, timeout=CLOSE)
        if load.group:
            self._consumer.subscribe([job.topic])
            return
        share = [n for n in range(job.partitions) if n % job.clients == self.number] or [self.number % job.partitions]
        self._consumer.assign([TopicPartition(job.topic, n, OFFSET_BEGINNING) for n in share])

    def run(self) -> None:
        pace, tally, done = self.pace, self.tally, 0
        load, run, last = self.job.load, run_bytes(self.job.run_id), 0.0
        assert isinstance(load, Consume)
        while ((now := time.monotonic()) < pace.end or (load.verified and self._more(now, last))) and not self._over.is_set():
            free = READ if pace.rate is None else pace.count(pace.start, now) - done
            if free <= 0:
                time.sleep(max(min(pace.due(done), pace.end) - now, 0))
                continue
            size, read = 0, 0
            for message in self._consumed(min(free, READ), min(max(pace.end - now, 0.05), 0.1)):
                error = message.error()
                if error is None:
                    header = header_of(message.value(), run) if load.verified else None
                    if header is not None:
                        tally.read(header.producer, message.partition() or 0, header.sequence)
                    read += 1
                    size += len(message.value() or b"") + len(message.key() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._consumer.seek(TopicPartition(self.job.topic, message.partition() or 0, OFFSET_BEGINNING))
                else:
                    tally.failed(error.name(), now, time.monotonic())
            if read:
                done += read
                last = now = time.monotonic()
                tally.begun(now, now, read, lag=False)
                tally.done(now, now, now, size, read, latency=False)
        if self._over.is_set():
            self.close()

    def close(self) -> None:
        self._consumer.close()
        self._left.set()

    def _more(self, now: float, last: float) -> bool:
        """Whether a verified reader goes on after the phase: writers may still be at it, and then it comes to the end."""
        end, quiet = self.pace.end, QUIET["group" if self._group else "share"]
        return now < min(max(end + LAST, last) + quiet, end + DRAINED)

    def _consumed(self, most: int, seconds: float) -> list[Message]:
        return list(self._consumer.consume(most, seconds))

    def leave(self) -> None:
        """Leave the group: it would wait for a member that vanished, and could not be removed."""
        self._over.set()
        self._left.wait(LEAVE)


class Shares(Reads):
    """A member of a share group. What it was given is acknowledged with its next poll."""

    def connect(self) -> None:
        job, self._group = self.job, False
        self._over, self._left = threading.Event(), threading.Event()
        group = f"{job.prefix}-{job.load.tenant}"
        _from_the_beginning(job, group)
        settings = self.settings(**{"group.id": group})
        settings.pop("throttle_cb")
        self._members = ShareConsumer(settings)
        self._members.subscribe([job.topic])

    def close(self) -> None:
        self._members.close()
        self._left.set()

    def _consumed(self, most: int, seconds: float) -> list[Message]:  # noqa: ARG002 - a poll gives as many as it has
        return list(self._members.poll(seconds))


def _from_the_beginning(job: Job, group: str) -> None:
    """By default a share group begins at the end. Raises KafkaException."""
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({**librdkafka_settings(job.bootstrap, job.access), "client.id": job.client_id, "log_level": 0})
    for done in admin.incremental_alter_configs([resource], request_timeout=CLOSE).values():
        done.result(CLOSE)


class WritesAndReads(Writes):
    """A producer, and a consumer of all that it writes, in a thread of its own, which alone counts what succeeds."""

    def connect(self) -> None:
        super().connect()
        job = self.job
        self._consumer = Consumer(
            self.settings(
                **{
                    "group.id": f"{job.prefix}-reads",
                    "enable.auto.commit": False,
                    "fetch.wait.max.ms": 100,
                    "isolation.level": "read_committed" if self.load.transaction else "read_uncommitted",
                }
            )
        )
        places = []
        for n in range(job.partitions):
            places.append(TopicPartition(job.topic, n, bounds(self._consumer, job.topic, n)[1]))
        self._consumer.assign(places)
        self._over = threading.Event()
        self._read = threading.Thread(target=self._reads, daemon=True)
        self._read.start()

    def close(self) -> None:
        super().close()
        deadline = time.monotonic() + self.job.grace
        while (
            self.tally.sums.acknowledged < sum(map(len, self.tally.acknowledged_records.values())) and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        self._over.set()
        self._read.join(CLOSE)
        self._consumer.close()

    def _reads(self) -> None:
        run = run_bytes(self.job.run_id)
        while not self._over.is_set():
            for message in self._consumer.consume(READ, 0.05):
                header = header_of(message.value(), run) if message.error() is None else None
                if header is not None and header.producer == self._id:
                    due = header.due_ns / 1e9
                    self.tally.done(due, due, time.monotonic(), self.load.size)


class FirstRecords(Client):
    """Makes topics, and writes a record to each as soon as it is there."""

    def connect(self) -> None:
        longest = round(longest_of(self.job) * 1000)
        # By default librdkafka gives a topic up that is unknown after 30 s, and asks for it with growing pauses.
        patience = {
            "linger.ms": 0,
            "message.timeout.ms": longest,
            "topic.metadata.propagation.max.ms": longest,
            "topic.metadata.refresh.sparse": True,
            "topic.metadata.refresh.fast.interval.ms": 100,
            "retry.backoff.ms": 50,
            "retry.backoff.max.ms": 100,
        }
        self._producer, self._admin = Producer(self.settings(**patience)), AdminClient(self.settings())
        self._producer.list_topics(timeout=CLOSE)
        self._admin.list_topics(timeout=CLOSE)
        self._asked: list[tuple[str, float, float, Future[None]]] = []
        self._under_way = 0

    def run(self) -> None:
        load = self.job.load
        assert isinstance(load, NewTopics)
        for n in count():
            due = time.monotonic() if self.pace.rate is None else self.pace.due(n)
            if due >= self.pace.end:
                break
            self._poll(until=due)
            name, now = f"{self.job.prefix}-{self.number}-{n}", time.monotonic()
            self.tally.begun(due, now)
            made = self._admin.create_topics([NewTopic(name, 1, load.replicas)], request_timeout=longest_of(self.job))[name]
            self._asked.append((name, due, now, made))
            self._under_way += 1
            while self.pace.rate is None and self._under_way and time.monotonic() < self.pace.end:
                self._poll(until=time.monotonic() + 0.01)
        self._poll(until=self.pace.end)

    def close(self) -> None:
        deadline = time.monotonic() + self.job.grace
        while self._under_way and time.monotonic() < deadline:
            self._poll(until=time.monotonic() + 0.05)
        for _, due, sent, _ in self._asked:
            self._ended(due, sent, "NOT_ANSWERED")
        self._producer.purge()
        self._producer.flush(CLOSE)

    def _poll(self, until: float) -> None:
        """Writes to the topics that are there by now; what the producer has to tell."""
        while True:
            asked, self._asked = self._asked, []
            for name, due, sent, made in asked:
                if not made.done():
                    self._asked.append((name, due, sent, made))
                elif (error := made.exception()) is not None:
                    self._ended(due, sent, said(error) if isinstance(error, KafkaException) else type(error).__name__)
                else:
                    self._producer.produce(name, b"first", on_delivery=self._told(due, sent))
            left = until - time.monotonic()
            if left <= 0:
                self._producer.poll(0)
                return
            self._producer.poll(min(left, 0.02))

    def _told(self, due: float, sent: float) -> Callable[[KafkaError | None, Any], None]:
        def told(error: KafkaError | None, _: object) -> None:
            self._ended(due, sent, "" if error is None else "NOT_ANSWERED" if error.code() in PURGED else error.name())

        return told

    def _ended(self, due: float, sent: float, error: str) -> None:
        self._under_way -= 1
        now = time.monotonic()
        if not error:
            self.tally.done(due, sent, now)
        elif error != "NOT_ANSWERED" or not self.job.load.limited:
            self.tally.failed(error, due, now)


def longest_of(job: Job) -> float:
    """Seconds in which a request of a phase has to be answered: all of the phase, and some more."""
    return job.warm_up + job.duration + CHANGED


KINDS: Final[dict[type, type[Client]]] = {Produce: Writes, EndToEnd: WritesAndReads, Consume: Reads, NewTopics: FirstRecords}


def library_of(job: Job) -> str:
    """Name and version."""
    client = job.load.client if isinstance(job.load, Writing) else "librdkafka"
    return _OWN if client == "librdkafka" else f"{client} {version(client)}"


def clients_of(job: Job, start: Callable[[int], Pace]) -> list[Client]:
    kind = Shares if isinstance(job.load, Consume) and job.load.share else KINDS[type(job.load)]
    return [kind(job, number, start(number)) for number in range(job.clients)]
