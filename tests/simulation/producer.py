"""A producer as client libraries are: what is in flight, what is sent again, in which order. In: a `Kind`. Out: requests through a
proxy, and what was acknowledged, in the history.

All kinds keep the order of batches of a partition. An idempotent one gives each a sequence once, and sends it again with that.
After an error that may pass, a batch comes again after a pause, before those behind it. A batch is only sent to a new leader when
nothing is under way to the old one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any, Final

from tests.simulation import messages as m
from tests.simulation.clients import Connection, History
from tests.simulation.network import Network
from tests.simulation.routed import Part, Routed

AGAIN: Final = frozenset({3, 5, 6, 7, 13, 15, 19, 20, 56})
"""Errors that pass (UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, ...)."""
OUT_OF_ORDER, DUPLICATE = 45, 46
SLOWEST: Final = 1.0
"""Seconds between two attempts at most (retry.backoff.max.ms)."""


@dataclass(frozen=True)
class Kind:
    """`in_flight`: requests of a connection; `head_first`: what is sent again goes alone, until it is written; `obeys`: waits for
    as long as it is told; `attempts`: after so many a batch has failed; `patience`: seconds for an answer."""

    name: str
    version: int
    idempotent: bool = True
    in_flight: int = 5
    head_first: bool = False
    obeys: bool = False
    attempts: int = 1 << 30
    backoff: float = 0.1
    patience: float = 60.0
    acks: int = -1


LIBRDKAFKA: Final = Kind("librdkafka", 7, patience=60.0)
JAVA: Final = Kind("java", 12, head_first=True, obeys=True, patience=45.0)
SARAMA: Final = Kind("sarama", 9, in_flight=1, attempts=4, obeys=True, patience=45.0)
SIMPLE: Final = Kind("simple", 8, idempotent=False, in_flight=1, attempts=1, acks=1)
"""Never sends anything again."""
KINDS: Final = (LIBRDKAFKA, JAVA, SARAMA, SIMPLE)
UNANSWERED: Final = Kind("unanswered", 7, idempotent=False, attempts=1, acks=0)
"""Wants no answers: what it has handed to a connection is done. Like the others it sends to a new connection only when the one
before is over."""


class Batch:
    __slots__ = ("attempts", "came", "not_before", "numbers", "producer_id", "sequence", "size", "under_way")

    def __init__(self, numbers: tuple[int, ...], size: int, came: float) -> None:
        self.numbers, self.size, self.came = numbers, size, came
        self.attempts, self.not_before = 0, 0.0
        self.producer_id = self.sequence = -1
        self.under_way: Connection | None = None


class WrittenPart(Part):
    """A partition as a producer sees it."""

    def __init__(self, topic: str, index: int) -> None:
        super().__init__(topic, index)
        self.batches: deque[Batch] = deque()
        self.next = 0


class Producer(Routed[WrittenPart]):
    """One producer. `pace`: batches per second; `size`: bytes of a batch, about; `most`: bytes
    that wait, after which no more are made."""

    def __init__(
        self, network: Network, history: History, chance: Random, number: int, kind: Kind, user: str, parts: list[tuple[str, int]],
        bootstrap: tuple[str, int], pace: float, size: int, most: int,
    ) -> None:  # fmt: skip
        super().__init__(
            network, history, chance, f"{kind.name}-{number}", user, [WrittenPart(*it) for it in parts], bootstrap,
            kind.backoff, kind.patience,
        )  # fmt: skip
        self.kind, self.number = kind, number
        self._pace, self._size, self._most = pace, size, most
        self._wait_until: dict[int, float] = {}
        self._producer_id, self._asking_id = -1, False
        self._made = self.written = self.failed = 0
        self._renewing = False
        self._again: Any = None
        self.handed: dict[int, int] = {}
        """with acks=0: numbers of records to the connection that they were handed to, in the order of connections"""
        self.renews = chance.choice((0.0, 0.3))
        """how often in a second it begins a new session, without any fault"""

    def start(self) -> None:
        self._context.run(self._loop.call_later, self.chance.random(), self._make)
        super().start()

    def renew(self) -> None:
        """It begins a new session, as after a restart or an error that it cannot get over, once nothing is under way."""
        self._renewing = self.kind.idempotent

    @property
    def largest(self) -> int:
        """Bytes of a batch."""
        return self._size * 3 // 2

    @property
    def left(self) -> int:
        return sum(len(part.batches) for part in self.parts)

    # ------------------------------------------------------------------ records

    def _make(self) -> None:
        """Another batch, unless too much waits."""
        if self.stopped:
            return
        self._loop.call_later(self.chance.expovariate(self._pace), self._make)
        part = self.chance.choice(self.parts)
        if len(part.batches) < 50 and sum(batch.size for part in self.parts for batch in part.batches) < self._most:
            count = self.chance.randint(1, 4)
            numbers = tuple((self.number << 32) + self._made + i for i in range(count))
            self._made += count
            part.batches.append(Batch(numbers, self.chance.randint(self._size // 2, self._size * 3 // 2), self._loop.time()))
            self._send()

    def _tick(self) -> None:
        if not self.closed and self.chance.random() < self.renews:
            self.renew()
        super()._tick()

    def _dropped(self, broker: int, connection: Connection) -> None:
        if broker < 0:
            self._asking_id = False
        for part in self.parts:
            for batch in list(part.batches):
                if batch.under_way is connection:
                    batch.under_way = None
                    self._failed(part, batch)

    def _ask_id(self) -> None:
        connection = self._connection(-1)
        if connection is None or self._asking_id:
            return
        self._asking_id = True
        connection.ask(
            m.INIT, 4, self._got_id, transactional_id=None, transaction_timeout=timedelta(seconds=60),
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip

    def _got_id(self, body: Any, _: float) -> None:
        self._asking_id = False
        if int(body.error_code) == 0 and self._producer_id < 0:
            self._producer_id = int(body.producer_id)
            for part in self.parts:
                part.next = 0
                for batch in part.batches:
                    batch.producer_id = batch.sequence = -1
        self._send()

    # ------------------------------------------------------------------ sending

    def _send(self) -> None:
        """Send what may go now."""
        if self.closed or not self.left:
            return
        if self._renewing:
            if any(batch.under_way is not None for part in self.parts for batch in part.batches):
                return
            self._renewing, self._producer_id = False, -1
        if self.kind.idempotent and self._producer_id < 0:
            self._ask_id()
            return
        now = self._loop.time()
        for leader, parts in self._by_leader([part for part in self.parts if part.batches]).items():
            connection = self._connection(leader)
            while connection is not None and self._may_send(connection, leader, now):
                chosen = [(part, batch) for part in parts if (batch := self._next(part, connection, now)) is not None]
                if not chosen:
                    break
                self._produce(connection, leader, chosen[: self.chance.choice((1, 1, 2, 5))])

    def _may_send(self, connection: Connection, leader: int, now: float) -> bool:
        if len(connection.asked) >= self.kind.in_flight or connection.over or connection.full:
            return False
        until = self._wait_until.get(leader, 0.0) if self.kind.obeys else 0.0
        if now < until:
            self._look_again(until)
        return now >= until

    def _look_again(self, when: float) -> None:
        if self._again is None or self._again.when() > when or self._again.cancelled() or self._again.when() <= self._loop.time():
            self._again = self._context.run(self._loop.call_at, when, self._send)

    def _next(self, part: WrittenPart, connection: Connection, now: float) -> Batch | None:
        """The batch of a partition that is next, if it may go."""
        for i, batch in enumerate(part.batches):
            if batch.under_way is connection:
                if not self.kind.idempotent:
                    return None
                continue
            if batch.under_way is not None:
                return None
            if now < batch.not_before:
                self._look_again(batch.not_before)
                return None
            if self.kind.head_first and batch.attempts and i:
                return None
            return batch
        return None

    def _produce(self, connection: Connection, leader: int, chosen: list[tuple[WrittenPart, Batch]]) -> None:
        kind, by_topic = self.kind, dict[str, list[Any]]()
        for part, batch in chosen:
            if kind.idempotent and batch.sequence < 0:
                batch.producer_id, batch.sequence = self._producer_id, part.next
                part.next += len(batch.numbers)
            batch.under_way = connection if kind.acks else None
            data = m.record_batch(batch.producer_id, 0 if kind.idempotent else -1, batch.sequence, batch.numbers, batch.size)
            by_topic.setdefault(part.topic, []).append(
                m.part(m.PRODUCE, kind.version, "PartitionProduceData", index=part.index, records=data)
            )
        topics = tuple(
            m.part(m.PRODUCE, kind.version, "TopicProduceData", name=name, partition_data=tuple(data))
            for name, data in by_topic.items()
        )

        def answered(body: Any, throttle: float) -> None:
            self._wait_until[leader] = self._loop.time() + throttle
            self._answered(chosen, body)

        connection.ask(
            m.PRODUCE,
            kind.version,
            answered if kind.acks else None,
            transactional_id=None,
            acks=kind.acks,
            timeout=timedelta(seconds=30),
            topic_data=topics,
        )

        for part, batch in () if kind.acks else chosen:
            part.batches.remove(batch)
            self.written += 1
            self.handed.update(dict.fromkeys(batch.numbers, connection.number_of))

    def _answered(self, chosen: list[tuple[WrittenPart, Batch]], body: Any) -> None:
        codes = {(str(t.name), int(p.index)): int(p.error_code) for t in body.responses for p in t.partition_responses}
        if len(codes) != len(chosen):
            self.history.fail(f"{self.client_id} asked about {len(chosen)} partitions and was answered about {len(codes)}")
        for part, batch in chosen:
            batch.under_way = None
            code = codes.get((part.topic, part.index))
            if batch not in part.batches or code is None:
                continue
            if code in (0, DUPLICATE):
                part.batches.remove(batch)
                self.written += 1
                for number in batch.numbers:
                    self.history.acknowledged[number] = f"{part.topic}-{part.index}"
                continue
            self.history.errors[code] = self.history.errors.get(code, 0) + 1
            if self.history.calm(self.user) and code == 19:
                self.history.fail(f"{self.user} is within its limits and was refused")
            if code == OUT_OF_ORDER and batch is part.batches[0]:
                self.history.fail(f"{self.client_id}: sequence {batch.sequence} of {part.topic}-{part.index} can never be written")
                part.batches.remove(batch)
                continue
            if code not in AGAIN and code != OUT_OF_ORDER:
                self.history.fail(f"{self.client_id} got error {code}")
            if code in (3, 5, 6, 56):
                self._metadata_at = -100.0
            self._failed(part, batch)
        self._send()

    def _failed(self, part: WrittenPart, batch: Batch) -> None:
        """It was not written, as far as is known."""
        batch.attempts += 1
        pause = min(self.kind.backoff * 2.0 ** min(batch.attempts - 1, 10), SLOWEST)
        batch.not_before = self._loop.time() + pause * self.chance.uniform(0.8, 1.2)
        if batch.attempts >= self.kind.attempts:
            part.batches.remove(batch)
            self.failed += 1
            self.renew()  # there is a gap
        else:
            self._look_again(batch.not_before)
