"""A cluster of simulated brokers. In: requests. Out: answers as Kafka gives them, and logs that a checker can read.

What it keeps outlives its brokers, as with enough replicas: acknowledged records are never lost. A partition has one leader, a log
and what brokers know of idempotent producers (KIP-98): the last five batches of each. A broker without state of a producer takes
any sequence (KAFKA-15591). Where it has itself refused a producer's batch before, it wants that one first: what Kafka loses is not
the proxy's. Connections have to log in (SASL PLAIN, any password)."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final
from uuid import UUID

from tests.simulation import messages as m
from tests.simulation.network import Network, Node

NONE, UNKNOWN_TOPIC, NOT_LEADER, DISK, EXISTS, OUT_OF_ORDER, DUPLICATE, OLD_EPOCH, FAILED_LOGIN = 0, 3, 6, 56, 36, 45, 46, 47, 58
PORT: Final = 9092
REMEMBERED: Final = 5
VERSIONS: Final = {
    m.PRODUCE: (3, 12),
    m.FETCH: (4, 11),
    m.METADATA: (0, 12),
    m.HANDSHAKE: (0, 1),
    m.API_VERSIONS: (0, 3),
    m.CREATE: (2, 6),
    m.DELETE: (1, 5),
    m.INIT: (0, 4),
    m.CONFIGS: (1, 4),
    m.LOG_DIRS: (1, 4),
    m.AUTHENTICATE: (0, 2),
    m.CLUSTER: (0, 1),
}


@dataclass(slots=True)
class Entry:
    """A batch in a log."""

    batch: m.RecordBatch
    user: str
    at: float


@dataclass(slots=True)
class ProducerState:
    epoch: int
    next: int
    last: list[tuple[int, int]] = field(default_factory=list)
    """(first sequence, offset in the log)"""


class Partition:
    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.log: list[Entry] = []
        self._ends: list[int] = []
        """offset behind each batch of the log"""
        self.producers: dict[int, ProducerState] = {}
        self.wanted: dict[tuple[int, int], int] = {}
        """(producer id, epoch) to the sequence that this cluster refused first, where nothing of it was written yet"""

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return self._ends[-1] if self._ends else 0

    def at(self, offset: int) -> m.RecordBatch | None:
        """The batch that begins there."""
        i = bisect_right(self._ends, offset)
        found = self.log[i].batch if i < len(self.log) else None
        return found if found is not None and self._ends[i] - len(found.numbers) == offset else None

    def read(self, offset: int, most: int) -> bytes:
        """Whole batches from there on: one, and more as long as all are within `most` bytes."""
        found, i, size = [], bisect_right(self._ends, offset), 0
        while i < len(self.log) and (not found or size + self.log[i].batch.size <= most):
            batch, first = self.log[i].batch, self._ends[i] - len(self.log[i].batch.numbers)
            found.append(m.record_batch(batch.producer_id, batch.epoch, batch.sequence, batch.numbers, batch.size, first))
            size += batch.size
            i += 1
        return b"".join(found)

    def _write(self, batch: m.RecordBatch, user: str, now: float) -> None:
        self.log.append(Entry(batch, user, now))
        self._ends.append(self.end + len(batch.numbers))

    def append(self, batch: m.RecordBatch, user: str, now: float) -> int:
        """The error code."""
        if batch.producer_id < 0:
            self._write(batch, user, now)
            return NONE
        state = self.producers.get(batch.producer_id)
        key = batch.producer_id, batch.epoch
        if state is not None and batch.epoch < state.epoch:
            return OLD_EPOCH
        if state is None or batch.epoch > state.epoch:
            if batch.sequence != self.wanted.get(key, batch.sequence) or (state is not None and batch.sequence):
                return OUT_OF_ORDER
            state = self.producers[batch.producer_id] = ProducerState(batch.epoch, batch.sequence)
        elif any(first == batch.sequence for first, _ in state.last):
            return NONE
        elif batch.sequence != state.next:
            return DUPLICATE if batch.sequence < state.next else OUT_OF_ORDER
        self.wanted.pop(key, None)
        state.next = batch.sequence + len(batch.numbers)
        state.last = [*state.last, (batch.sequence, len(self.log))][-REMEMBERED:]
        self._write(batch, user, now)
        return NONE

    def refuse(self, batch: m.RecordBatch) -> None:
        """The broker does not write it for reasons of its own."""
        if batch.producer_id >= 0 and batch.producer_id not in self.producers:
            key = batch.producer_id, batch.epoch
            self.wanted[key] = min(batch.sequence, self.wanted.get(key, batch.sequence))


class Topic:
    def __init__(self, name: str, number: int, leaders: list[int]) -> None:
        self.name, self.id = name, UUID(int=0x4000_0000_0000_0000 + number)
        self.partitions = [Partition(leader) for leader in leaders]


class Cluster:
    """Brokers and all that they keep. `volume`: bytes of each broker's log dir."""

    def __init__(self, network: Network, chance: Random, brokers: int, volume: int = 1 << 40) -> None:
        self.network, self.chance = network, chance
        self.brokers = {number: Broker(self, number) for number in range(1, brokers + 1)}
        self.topics: dict[str, Topic] = {}
        self.past: list[Topic] = []
        """those that were deleted"""
        self.volume = volume
        self.filled = dict.fromkeys(self.brokers, 0)
        """bytes on each broker's disk that are none of its topics'"""
        self.written = dict.fromkeys(self.brokers, 0)
        self.next_producer_id = 1000
        self.logged_in: dict[str, int] = {}
        self.service = 0.001
        self.refused_by_disk = 0
        self.fetched: list[tuple[float, int, str]] = []
        """(time, bytes, user) of answers to Fetch"""
        self.mutations: list[tuple[float, str, int]] = []
        """(time, user, partitions) of what was created and deleted on request"""
        for broker in self.brokers.values():
            broker.start()

    def now(self) -> float:
        return self.network.loop.time()

    def create(self, name: str, partitions: int) -> bool:
        if name in self.topics:
            return False
        nodes = list(self.brokers)
        first = self.chance.randrange(len(nodes))
        leaders = [nodes[(first + i) % len(nodes)] for i in range(partitions)]
        self.topics[name] = Topic(name, len(self.past) * 1000 + len(self.topics) + 1, leaders)
        return True

    def delete(self, name: str) -> bool:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.past.append(topic)
        return topic is not None

    def all_topics(self) -> list[Topic]:
        return [*self.past, *self.topics.values()]

    def live(self) -> list[Broker]:
        return [broker for broker in self.brokers.values() if broker.node.alive]

    def leader(self, partition: Partition) -> int:
        """The broker that leads; -1 while none does."""
        return partition.leader if self.brokers[partition.leader].node.alive else -1

    def move_leader(self, partition: Partition) -> None:
        others = [broker.number for broker in self.live() if broker.number != partition.leader]
        if others:
            partition.leader = self.chance.choice(others)

    def kill(self, number: int) -> None:
        broker = self.brokers[number]
        if broker.node.alive and len(self.live()) > 1:
            self.network.kill(broker.node)
            for topic in self.topics.values():
                for partition in topic.partitions:
                    if partition.leader == number:
                        self.move_leader(partition)

    def start(self, number: int) -> None:
        if not self.brokers[number].node.alive:
            self.brokers[number].start()

    def full(self, number: int) -> bool:
        return self.filled[number] >= self.volume


_VERSIONS_TOLD: dict[int, bytes] = {}
"""by version, the body of an answer to ApiVersions"""


class Broker:
    """One broker: it listens, and answers one request of a connection at a time."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster, self.number, self.host = cluster, number, f"broker-{number}"
        self.node = Node(self.host)

    def start(self) -> None:
        self.node = Node(self.host)
        self.cluster.network.serve(self.host, PORT, self.node, lambda: Served(self))


class Served(asyncio.Protocol):
    """A connection to a broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker, self.cluster = broker, broker.cluster
        self._frames, self._busy = m.Frames(), False
        self._waiting: list[bytes] = []
        self.user: str | None = None
        self._handlers: dict[int, Callable[[m.Request], bytes | None]] = {
            m.PRODUCE: self._produce,
            m.FETCH: self._fetch,
            m.METADATA: self._metadata,
            m.HANDSHAKE: self._handshake,
            m.AUTHENTICATE: self._authenticate,
            m.API_VERSIONS: self._api_versions,
            m.CREATE: self._create,
            m.DELETE: self._delete,
            m.INIT: self._init,
            m.CONFIGS: self._configs,
            m.LOG_DIRS: self._log_dirs,
            m.CLUSTER: self._cluster,
        }

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._waiting += self._frames.feed(data)
        except ValueError:
            self.transport.abort()
        self._next()

    def _next(self) -> None:
        if self._waiting and not self._busy and not self.transport.is_closing():
            self._busy = True
            cluster = self.cluster
            cluster.network.loop.call_later(cluster.service * cluster.chance.random(), self._serve)

    def _serve(self) -> None:
        self._busy = False
        if not self.broker.node.alive or self.transport.lost:
            return
        try:
            asked = m.read_request(self._waiting.pop(0))
        except Exception:
            self.transport.abort()
            return
        if self.user is None and asked.key not in (m.API_VERSIONS, m.HANDSHAKE, m.AUTHENTICATE):
            self.transport.abort()
            return
        handler, versions = self._handlers.get(asked.key), VERSIONS.get(asked.key, (0, -1))
        if handler is None or not versions[0] <= asked.version <= versions[1]:
            self.transport.abort()
            return
        try:
            answer = handler(asked)
        except ValueError:  # it is no request that makes sense
            self.transport.abort()
            return
        if answer is not None:
            self.transport.write(answer)
        self._next()

    def _answer(self, asked: m.Request, /, **given: Any) -> bytes:
        return m.response(asked.key, asked.version, asked.correlation_id, throttle_time=m.ZERO, **given)

    def _part(self, asked: m.Request, kind: str, /, **given: Any) -> Any:
        return m.answer_part(asked.key, asked.version, kind, **given)

    def _api_versions(self, asked: m.Request) -> bytes:
        body = _VERSIONS_TOLD.get(asked.version)
        if body is None:
            body = _VERSIONS_TOLD[asked.version] = self._ranges(asked)[8:]
        return (4 + len(body)).to_bytes(4, "big") + asked.correlation_id.to_bytes(4, "big") + body

    def _ranges(self, asked: m.Request) -> bytes:
        keys = tuple(self._part(asked, "ApiVersion", api_key=k, min_version=a, max_version=b) for k, (a, b) in VERSIONS.items())
        return self._answer(asked, error_code=_code(0), api_keys=keys)

    def _handshake(self, asked: m.Request) -> bytes:
        return self._answer(asked, error_code=_code(0), mechanisms=("PLAIN",))

    def _authenticate(self, asked: m.Request) -> bytes:
        _, user, password = asked.body.auth_bytes.split(b"\0")
        right = password == b"right"
        if right:
            self.user = user.decode()
            self.cluster.logged_in[self.user] = self.cluster.logged_in.get(self.user, 0) + 1
        return self._answer(
            asked, error_code=_code(0 if right else FAILED_LOGIN), error_message=None, auth_bytes=b"", session_lifetime=m.ZERO
        )

    def _metadata(self, asked: m.Request) -> bytes:
        cluster = self.cluster
        brokers = tuple(
            self._part(asked, "MetadataResponseBroker", node_id=it.number, host=it.host, port=PORT, rack=None)
            for it in cluster.live()
        )
        wanted = list(cluster.topics) if asked.body.topics is None else [str(topic.name) for topic in asked.body.topics]
        topics = tuple(self._topic(asked, name) for name in wanted)
        return self._answer(asked, brokers=brokers, cluster_id="simulated", controller_id=cluster.live()[0].number, topics=topics)

    def _topic(self, asked: m.Request, name: str) -> Any:
        topic = self.cluster.topics.get(name)
        partitions = (
            ()
            if topic is None
            else tuple(
                self._part(
                    asked,
                    "MetadataResponsePartition",
                    error_code=_code(0 if (leader := self.cluster.leader(it)) >= 0 else 5),
                    partition_index=i,
                    leader_id=leader,
                    leader_epoch=0,
                    replica_nodes=(it.leader,),
                    isr_nodes=(it.leader,),
                    offline_replicas=(),
                )
                for i, it in enumerate(topic.partitions)
            )
        )
        return self._part(
            asked,
            "MetadataResponseTopic",
            error_code=_code(UNKNOWN_TOPIC if topic is None else 0),
            name=name,
            topic_id=None if topic is None else topic.id,
            is_internal=False,
            partitions=partitions,
        )

    def _init(self, asked: m.Request) -> bytes:
        self.cluster.next_producer_id += 1
        return self._answer(asked, error_code=_code(0), producer_id=self.cluster.next_producer_id, producer_epoch=0)

    def _produce(self, asked: m.Request) -> bytes | None:
        responses, refused = [], False
        for topic in asked.body.topic_data:
            parts = []
            for it in topic.partition_data:
                code = self._write(str(topic.name), int(it.index), bytes(it.records or b""))
                refused = refused or bool(code)
                parts.append(
                    self._part(
                        asked,
                        "PartitionProduceResponse",
                        index=it.index,
                        error_code=_code(code),
                        base_offset=0,
                        log_append_time=None,
                        log_start_offset=0,
                        record_errors=(),
                        error_message=None,
                    )
                )
            responses.append(self._part(asked, "TopicProduceResponse", name=topic.name, partition_responses=tuple(parts)))
        if asked.body.acks:
            return self._answer(asked, responses=tuple(responses))
        if refused:  # so its client asks for metadata
            self.transport.close()
        return None

    def _write(self, name: str, index: int, records: bytes) -> int:
        cluster, batch = self.cluster, m.read_batch(records)
        code, led = self._leads(name, index)
        if code == UNKNOWN_TOPIC:
            return code
        partition = cluster.topics[name].partitions[index]
        code = code or (DISK if cluster.full(self.broker.number) else NONE)
        if code or led is None:
            cluster.refused_by_disk += code == DISK
            partition.refuse(batch)
            return code
        assert self.user is not None
        before = len(partition.log)
        code = partition.append(batch, self.user, cluster.now())
        if len(partition.log) > before:
            cluster.written[self.broker.number] += batch.size
        return code

    def _fetch(self, asked: m.Request) -> bytes | None:
        """Without records or an error an answer comes when the time of a long poll is over; its connection's others wait."""
        found = self._found(asked)
        if not any(code or records for _, parts in found for _, code, records in parts):
            self._busy = True
            wait = asked.body.max_wait.total_seconds()
            self.cluster.network.loop.call_later(wait, self._fetched, asked)
            return None
        return self._read_out(asked, found)

    def _fetched(self, asked: m.Request) -> None:
        self._busy = False
        if self.broker.node.alive and not self.transport.lost:
            self.transport.write(self._read_out(asked, self._found(asked)))
            self._next()

    def _found(self, asked: m.Request) -> list[tuple[str, list[tuple[int, int, bytes]]]]:
        """By topic (partition, error code, records)."""
        found, left = [], int(asked.body.max_bytes)
        for topic in asked.body.topics:
            parts = []
            for it in topic.partitions:
                code, partition = self._leads(str(topic.topic), int(it.partition))
                most = min(int(it.partition_max_bytes), left)
                records = partition.read(int(it.fetch_offset), most) if partition is not None and left > 0 else b""
                left -= len(records)
                parts.append((int(it.partition), code, records))
            found.append((str(topic.topic), parts))
        return found

    def _leads(self, name: str, index: int) -> tuple[int, Partition | None]:
        """(error code, the partition), if this broker leads it."""
        topic = self.cluster.topics.get(name)
        if topic is None or index >= len(topic.partitions):
            return UNKNOWN_TOPIC, None
        partition = topic.partitions[index]
        return (NONE, partition) if partition.leader == self.broker.number else (NOT_LEADER, None)

    def _read_out(self, asked: m.Request, found: list[tuple[str, list[tuple[int, int, bytes]]]]) -> bytes:
        def part(index: int, code: int, records: bytes) -> Any:
            return self._part(
                asked,
                "PartitionData",
                partition_index=index,
                error_code=_code(code),
                high_watermark=0,
                last_stable_offset=0,
                log_start_offset=0,
                aborted_transactions=None,
                preferred_read_replica=-1,
                records=records,
            )

        responses = tuple(
            self._part(asked, "FetchableTopicResponse", topic=name, partitions=tuple(part(*it) for it in parts))
            for name, parts in found
        )
        answer = self._answer(asked, error_code=_code(0), session_id=0, responses=responses)
        assert self.user is not None
        self.cluster.fetched.append((self.cluster.now(), len(answer), self.user))
        return answer

    def _create(self, asked: m.Request) -> bytes:
        made = []
        for topic in asked.body.topics:
            partitions = max(int(topic.num_partitions), 1)
            new = asked.body.validate_only or self.cluster.create(str(topic.name), partitions)
            if new and not asked.body.validate_only:
                self._mutated(partitions)
            made.append(
                self._part(
                    asked,
                    "CreatableTopicResult",
                    name=topic.name,
                    error_code=_code(0 if new else EXISTS),
                    error_message=None,
                    topic_config_error_code=0,
                    num_partitions=topic.num_partitions,
                    replication_factor=1,
                    configs=(),
                )
            )
        return self._answer(asked, topics=tuple(made))

    def _delete(self, asked: m.Request) -> bytes:
        gone = []
        for name in asked.body.topic_names:
            topic = self.cluster.topics.get(str(name))
            if topic is not None:
                self.cluster.delete(topic.name)
                self._mutated(len(topic.partitions))
            code = _code(UNKNOWN_TOPIC if topic is None else 0)
            gone.append(self._part(asked, "DeletableTopicResult", name=name, error_code=code, error_message=None))
        return self._answer(asked, responses=tuple(gone))

    def _mutated(self, partitions: int) -> None:
        assert self.user is not None
        self.cluster.mutations.append((self.cluster.now(), self.user, partitions))

    def _configs(self, asked: m.Request) -> bytes:
        return self._answer(asked, results=())

    def _log_dirs(self, asked: m.Request) -> bytes:
        cluster, number = self.cluster, self.broker.number
        left = max(cluster.volume - cluster.filled[number], 0)
        found = self._part(
            asked,
            "DescribeLogDirsResult",
            error_code=_code(0),
            log_dir="/data",
            topics=(),
            total_bytes=cluster.volume,
            usable_bytes=left,
        )
        return self._answer(asked, error_code=_code(0), results=(found,))

    def _cluster(self, asked: m.Request) -> bytes:
        brokers = tuple(
            self._part(asked, "DescribeClusterBroker", broker_id=it.number, host=it.host, port=PORT, rack=None)
            for it in self.cluster.live()
        )
        return self._answer(
            asked,
            error_code=_code(0),
            error_message=None,
            endpoint_type=1,
            cluster_id="simulated",
            controller_id=1,
            brokers=brokers,
            cluster_authorized_operations=0,
        )


def _code(number: int) -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode(number)
