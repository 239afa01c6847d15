"""What alice does while others misbehave: an ordinary workload for each quota kind, within her limits, with answers that are known.

In: where to connect. Out: for each quota kind what she noticed: errors, throttle times, answers that are not what they should be,
how long answers took. Each workload has a thread and connections of its own, and goes on until it is told to end; then it does
one more round, so that what an attack leaves behind is noticed too."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kio.serial.errors import DecodeError

from benchmarks.isolation import apis
from benchmarks.isolation.tenants import ALICE, ALICES_ADDRESS, fetch_of, login
from benchmarks.isolation.wire import PATIENCE, Connection, WrongCorrelationId
from loadtest.entities import milliseconds as ms
from loadtest.entities import record_batch
from loadtest.login import LoginFailed

STORAGE_ERROR, LOADING = 56, 14
MAX_NOTED: Final = 20
LONGEST: Final = 4 * PATIENCE
"""Seconds that rounds may take in which nothing is answered in time."""
WITHIN: Final = ms(round(1000 * PATIENCE))
"""Time that a broker is given for a request: as long as alice waits for the answer."""
KIB: Final = 1 << 10
_runs = itertools.count()


@dataclass(slots=True)
class Noticed:
    """What became of one workload. `took`: how long each answer took, in seconds."""

    steps: int = 0
    errors: list[str] = field(default_factory=list)
    throttled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """answers that came in another order, or say something else than they should"""
    took: list[float] = field(default_factory=list)

    @property
    def hurt(self) -> list[str]:
        """All that should not be, in words."""
        return [*self.errors, *self.throttled, *self.wrong] + ["nothing was done"] * (not self.steps)


class Workload(ABC):
    """One workload. `step` is a round of it."""

    quota: ClassVar[str]
    of_tenant: ClassVar[tuple[str, ...]] = ()
    """Kinds of her tenants' quotas that it is for as well."""
    source: ClassVar[str | None] = None
    """the address that it comes from; None for the one that attackers have too"""
    every: ClassVar[float] = 0.05
    """Seconds from the beginning of a round to that of the next, if it does not take longer."""

    def __init__(self, address: str, written: bytes) -> None:
        """`written`: what a Fetch of alice-read brings."""
        self.address, self.written = address, written
        self.noticed = Noticed()
        self.name = f"alice-{next(_runs)}-{time.time_ns() & 0xFFFFFF:x}"
        self._connection: Connection | None = None
        self._producers: dict[str, Idempotent] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._stop = threading.Event()
        self._ready = threading.Event()

    @abstractmethod
    def step(self) -> None:
        """One round."""

    def start(self) -> None:
        self._thread.start()

    def wait_ready(self, deadline: float) -> None:
        """Until one round is done, whatever became of it."""
        self._ready.wait(max(deadline - time.monotonic(), 0))

    def finish(self) -> None:
        """One more round, and the end."""
        self._stop.set()

    def join(self, deadline: float) -> Noticed:
        self._thread.join(max(deadline - time.monotonic(), 0))
        if self._thread.is_alive():
            self.note(self.noticed.errors, "does not end")
        return self.noticed

    def note(self, where: list[str], what: str) -> None:
        if len(where) < MAX_NOTED:
            where.append(what)

    def expect(self, got: object, wanted: object, what: str) -> None:
        if got != wanted:
            self.note(self.noticed.wrong, f"{what}: {got!r} instead of {wanted!r}")

    def no_error(self, code: int, what: str) -> None:
        if code:
            self.note(self.noticed.errors, f"{what}: error {int(code)}")

    def connect(self) -> Connection:
        """A new connection that is logged in."""
        return Connection(self.address, "alice-app", login(ALICE), self.source)

    def ask(self, what: tuple[int, int], connection: Connection | None = None, /, **fields: Any) -> Any:
        """The answer; its throttle time is noted."""
        if connection is None:
            if self._connection is None:
                self._connection = self.connect()
            connection = self._connection
        began = time.monotonic()
        answer = connection.ask(what, **fields)
        self.noticed.took.append(time.monotonic() - began)
        throttle = getattr(answer, "throttle_time", None)
        if throttle:
            self.note(self.noticed.throttled, f"API {what[0]}: throttled by {throttle.total_seconds():g} s")
        return answer

    def producer(self, topic: str, *, alone: bool) -> Idempotent:
        """The workload's own producer for this topic."""
        if topic not in self._producers:
            self._producers[topic] = Idempotent(self, topic, alone=alone)
        return self._producers[topic]

    def produce(self, topic: str, records: bytes, what: str = "Produce") -> tuple[int, int]:
        """(error code, base offset) of one batch."""
        data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
        answer = self.ask(apis.PRODUCE, acks=-1, timeout=WITHIN, topic_data=data)
        (responses,) = answer.responses
        (partition,) = responses.partition_responses
        self.expect((responses.name, partition.index), (topic, 0), f"{what}, whom the answer is about")
        return int(partition.error_code), int(partition.base_offset)

    def _run(self) -> None:
        while True:
            last = self._stop.is_set()
            began = time.monotonic()
            try:
                self.step()
                self.noticed.steps += 1
            except (OSError, LoginFailed) as e:
                waited = f" after {time.monotonic() - began:.1f} s" if isinstance(e, TimeoutError) else ""
                self.note(self.noticed.errors, f"{type(e).__name__}: {e}{waited}")
                self._disconnect()
            except (WrongCorrelationId, ValueError, DecodeError, IndexError, KeyError) as e:
                self.note(self.noticed.wrong, f"{type(e).__name__}: {e}")
                self._disconnect()
            self._ready.set()
            if last:
                break
            self._stop.wait(max(began + self.every - time.monotonic(), 0))
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Idempotent:
    """An idempotent producer of one partition with no other producer: every batch has to follow the one before it."""

    def __init__(self, workload: Workload, topic: str, *, alone: bool) -> None:
        """`alone`: this topic has no other producer, so offsets have to follow each other too."""
        self._workload, self._topic, self._alone = workload, topic, alone
        self._id = self._epoch = -1
        self._sequence = 0
        self._next: int | None = None

    def write(self, value: bytes) -> None:
        work = self._workload
        if self._id < 0:
            self._id, self._epoch = new_id(work)
            self._sequence = 0
        batch = record_batch(value, producer_id=self._id, epoch=self._epoch, sequence=self._sequence)
        code, offset = work.produce(self._topic, batch, f"batch {self._sequence} of producer {self._id}")
        work.no_error(code, f"{self._topic}, batch {self._sequence} of producer {self._id}")
        if code == 0:
            if self._alone and self._next is not None:
                work.expect(offset, self._next, f"offset in {self._topic}")
            self._next = offset + 1
            self._sequence += 1


def new_id(work: Workload) -> tuple[int, int]:
    """(producer id, epoch)"""
    deadline = time.monotonic() + PATIENCE
    while True:
        answer = work.ask(
            apis.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=ms(60_000), producer_id=-1, producer_epoch=-1
        )
        if answer.error_code != LOADING or time.monotonic() > deadline:
            break
        time.sleep(0.05)  # the broker fetches a block of ids
    work.no_error(answer.error_code, "InitProducerId")
    return int(answer.producer_id), int(answer.producer_epoch)


class Mutations(Workload):
    """Creates, grows and deletes a topic."""

    quota = "controller_mutations"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_admin_request_rate",)
    every = 0.2
    number = 0

    def step(self) -> None:
        self.number += 1
        name = f"{self.name}-{self.number}"
        made = self.ask(
            apis.CREATE_TOPICS, topics=[{"name": name, "num_partitions": 2, "replication_factor": 1}], timeout=WITHIN
        ).topics[0]
        self.no_error(made.error_code, "CreateTopics")
        self.expect((made.name, made.num_partitions), (name, 2), "what was created")
        more = {"name": name, "count": 3, "assignments": None}
        grown = self.ask(apis.CREATE_PARTITIONS, topics=[more], timeout=WITHIN).results[0]
        self.no_error(grown.error_code, "CreatePartitions")
        gone = self.ask(apis.DELETE_TOPICS, topics=[{"name": name}], timeout=WITHIN).responses[0]
        self.no_error(gone.error_code, "DeleteTopics")
        self.expect((grown.name, gone.name), (name, name), "what was grown and deleted")


class Storage(Workload):
    """Writes to a volume that is well, which passes, and to one that is full, which is refused to new producers too."""

    quota = "storage"
    _barred = (-1, -1)

    def step(self) -> None:
        self.producer("alice-data", alone=False).write(b"well".ljust(200))
        if self.noticed.steps % 10 == 0:
            self._barred = new_id(self)
        id, epoch = self._barred
        code, _ = self.produce("alice-full", record_batch(b"full", producer_id=id, epoch=epoch, sequence=0))
        self.expect(code, STORAGE_ERROR, "an idempotent batch to the full volume")
        code, _ = self.produce("alice-full", record_batch(b"full"))
        self.expect(code, STORAGE_ERROR, "a batch to the full volume")


class ProducerIds(Workload):
    """Becomes a new producer now and then, and writes as such."""

    quota = "producer_ids"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_transaction_request_rate",)
    every = 0.3

    def step(self) -> None:
        producer = Idempotent(self, "alice-ids", alone=True)
        for _ in range(3):
            producer.write(b"of a new producer")


class BytesIn(Workload):
    """Writes to a topic with a threshold of its own, and to one that lives on what thresholds leave."""

    quota = "bytes_in"
    every = 0.1

    def step(self) -> None:
        self.producer("alice-metered", alone=True).write(b"m" * KIB)
        self.producer("alice-share", alone=True).write(b"s" * 200)


class ProducerByteRate(Workload):
    """Writes at a steady pace as an idempotent producer."""

    quota = "producer_byte_rate"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_producer_byte_rate", "tenant_produce_request_rate")

    def step(self) -> None:
        self.producer("alice-data", alone=False).write(b"p" * 8 * KIB)


class ConsumerByteRate(Workload):
    """Reads the same records again and again."""

    quota = "consumer_byte_rate"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_consumer_byte_rate", "tenant_fetch_request_rate")

    def step(self) -> None:
        answer = self.ask(apis.FETCH, **fetch_of("alice-read"))
        (topic,) = answer.responses
        self.no_error(answer.error_code or topic.partitions[0].error_code, "Fetch")
        self.expect(topic.topic, "alice-read", "what was fetched")
        if bytes(topic.partitions[0].records or b"") != self.written:
            self.note(self.noticed.wrong, "Fetch: other records than were written")


class TopicProducerByteRate(Workload):
    """Writes to a topic with a rate of its own."""

    quota = "topic_producer_byte_rate"

    def step(self) -> None:
        self.producer("alice-paced", alone=True).write(b"r" * KIB)


class TopicConsumerByteRate(ConsumerByteRate):
    """Reads from a topic with a rate of its own."""

    quota = "topic_consumer_byte_rate"
    of_tenant: ClassVar[tuple[str, ...]] = ()


class ColdReadRate(ConsumerByteRate):
    """Reads what is far behind the end of the log."""

    quota = "cold_read_rate"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_cold_read_rate",)


class TenantTopicCount(Workload):
    """Creates and deletes a topic, with no more topics and partitions than her tenant may have."""

    quota = "tenant_topic_count"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_partition_count",)
    every = 0.3

    def step(self) -> None:
        name = f"{self.name}-{self.noticed.steps}-owned"
        new = {"name": name, "num_partitions": 3, "replication_factor": 1}
        self.no_error(self.ask(apis.CREATE_TOPICS, topics=[new], timeout=WITHIN).topics[0].error_code, "CreateTopics")
        gone = self.ask(apis.DELETE_TOPICS, topics=[{"name": name}], timeout=WITHIN).responses[0]
        self.no_error(gone.error_code, "DeleteTopics")


class TopicStoredBytes(Workload):
    """Writes to a topic that may not have much more stored than she writes, and neither may the tenant that owns it."""

    quota = "topic_stored_bytes"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_stored_bytes",)

    def step(self) -> None:
        self.producer("alice-stored", alone=True).write(b"kept".ljust(200))


class RequestRate(Workload):
    """Asks for metadata and offsets, and commits some."""

    quota = "request_rate"
    of_tenant: ClassVar[tuple[str, ...]] = (
        "tenant_request_rate",
        *(f"tenant_{group}_request_rate" for group in ("metadata", "group", "commit", "describe")),
    )
    _number = 0
    _coordinator = False

    def step(self) -> None:
        self._number += 1
        names = ["alice-read", "alice-data"]
        answer = self.ask(apis.METADATA, topics=[{"name": name} for name in names], allow_auto_topic_creation=False)
        seen = sorted((topic.name, int(topic.error_code), len(topic.partitions)) for topic in answer.topics)
        self.expect(seen, [("alice-data", 0, 1), ("alice-read", 0, 1)], "Metadata")
        self.expect([f"{b.host}:{b.port}" == self.address for b in answer.brokers], [False], "the broker's own port in Metadata")
        (end,) = self.ask(apis.LIST_OFFSETS, replica_id=-1, topics=[_latest("alice-read")]).topics
        self.expect((end.name, int(end.partitions[0].offset)), ("alice-read", 50), "ListOffsets")
        if self._committed():
            self.no_error(
                self.ask(apis.API_VERSIONS_3, client_software_name="alice", client_software_version="1").error_code,
                "ApiVersions",
            )

    def _committed(self) -> bool:
        if not self._coordinator:
            found = self.ask(apis.FIND_COORDINATOR, key=self.name, key_type=0)
            self._coordinator = found.error_code == 0
            return True  # the coordinator starts
        offset = {"partition_index": 0, "committed_offset": self._number, "committed_leader_epoch": -1}
        topics = [{"name": "alice-read", "partitions": [offset]}]
        done = self.ask(apis.OFFSET_COMMIT, group_id=self.name, generation_id_or_member_epoch=-1, topics=topics)
        code = int(done.topics[0].partitions[0].error_code)
        if code in (14, 15, 16):  # the coordinator starts
            return True
        self.no_error(code, "OffsetCommit")
        read = self.ask(apis.OFFSET_FETCH, group_id=self.name, topics=[{"name": "alice-read", "partition_indexes": [0]}])
        self.expect(int(read.topics[0].partitions[0].committed_offset), self._number, "OffsetFetch")
        return True


class MaxConnections(Workload):
    """Comes anew for every request."""

    quota = "max_connections"

    def step(self) -> None:
        began = time.monotonic()
        with self.connect() as connection:
            answer = self.ask(apis.METADATA, connection, topics=[{"name": "alice-read"}])
        self.noticed.took[-1] = time.monotonic() - began
        self.expect([topic.name for topic in answer.topics], ["alice-read"], "Metadata")


class ConnectionRate(MaxConnections):
    """Logs in anew for every request, below her rate of connections."""

    quota = "connection_rate"
    of_tenant: ClassVar[tuple[str, ...]] = ("tenant_connection_rate",)


class AddressConnectionRate(MaxConnections):
    """The same from an address that nobody else has, below the rate of that address."""

    quota = "address_connection_rate"
    source = ALICES_ADDRESS


class Memory(Workload):
    """Writes and reads what is large."""

    quota = "memory"
    every = 0.3

    def step(self) -> None:
        self.producer("alice-data", alone=False).write(b"l" * 200 * KIB)
        answer = self.ask(apis.FETCH, **fetch_of("alice-data"))
        self.no_error(answer.responses[0].partitions[0].error_code, "Fetch")


WORKLOADS: Final[tuple[type[Workload], ...]] = (
    Mutations,
    Storage,
    ProducerIds,
    BytesIn,
    ProducerByteRate,
    ConsumerByteRate,
    TopicProducerByteRate,
    TopicConsumerByteRate,
    ColdReadRate,
    TenantTopicCount,
    TopicStoredBytes,
    RequestRate,
    MaxConnections,
    ConnectionRate,
    AddressConnectionRate,
    Memory,
)
KINDS: Final = tuple(workload.quota for workload in WORKLOADS)


class Victims:
    """All workloads side by side."""

    def __init__(self, address: str, written: bytes, kinds: Iterable[str] = KINDS) -> None:
        self._workloads = [workload(address, written) for workload in WORKLOADS if workload.quota in kinds]

    def start(self) -> None:
        """Returns when each has done a round."""
        for workload in self._workloads:
            workload.start()
        deadline = time.monotonic() + LONGEST
        for workload in self._workloads:
            workload.wait_ready(deadline)

    def forget(self) -> None:
        """What was noticed so far does not count."""
        for workload in self._workloads:
            workload.noticed = Noticed()

    def finish(self) -> dict[str, Noticed]:
        """One more round of each, and what was noticed, by quota kind."""
        for workload in self._workloads:
            workload.finish()
        deadline = time.monotonic() + LONGEST
        return {workload.quota: workload.join(deadline) for workload in self._workloads}


def _latest(topic: str) -> dict[str, Any]:
    return {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}
