"""What became of every record. In: what was acknowledged, topics and where they ended before the run. Out: `Verification` by
tenant.

All records of the run are read once, after it: memory grows with gaps, not with records. Records of others in the same topics
do not count."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from loadtest.drive.job import Acknowledged
from loadtest.endpoint import CLIENT_ID, Cluster, EndpointError, bounds, librdkafka_settings, said
from loadtest.payload import Runs, header_of, run_bytes, size_of
from loadtest.results.model import Delivery, Verification

STALL: Final = 60.0
"""Seconds without a record until reading is given up: a quota may hold this client too."""
EXAMPLES: Final = 20
Offsets = dict[tuple[str, int], int]
"""Offsets by topic and partition."""


@dataclass(slots=True)
class Written:
    """One tenant's records in one topic: those of producers `first` to `last`, both included."""

    tenant: str
    library: str
    topic: str
    first: int
    last: int
    acknowledged: list[Acknowledged] = field(default_factory=list)
    aborted: list[Acknowledged] = field(default_factory=list)


@dataclass(slots=True)
class Given:
    """What a verified reader's members were given of a topic."""

    tenant: str
    library: str
    topic: str
    read: list[Acknowledged]
    again: int


@dataclass(slots=True)
class PartitionRecords:
    """One producer's records in one partition."""

    there: Runs = field(default_factory=Runs)
    highest: int = -1
    duplicated: int = 0
    out_of_order: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, sequence: int, where: str) -> None:
        if not self.there.add(sequence):
            self.duplicated += 1
            self._example(f"{where}: sequence {sequence} again")
        elif sequence < self.highest:
            self.out_of_order += 1
            self._example(f"{where}: sequence {sequence} behind {self.highest}")
        self.highest = max(self.highest, sequence)

    def _example(self, text: str) -> None:
        if len(self.examples) < EXAMPLES:
            self.examples.append(text)


RecordsRead = dict[tuple[str, int, int], PartitionRecords]
"""By topic, producer and partition."""


def ends(cluster: Cluster, topics: Mapping[str, int]) -> Offsets:
    """The end offsets now. `topics`: number of partitions by topic."""
    consumer = _consumer(cluster)
    try:
        found: Offsets = {}
        for topic, partitions in topics.items():
            for n in range(partitions):
                found[topic, n] = bounds(consumer, topic, n)[1]
        return found
    except KafkaException as e:
        raise EndpointError(f"the ends of topics cannot be asked for: {said(e)}") from None
    finally:
        consumer.close()


def read(cluster: Cluster, starts: Offsets, run_id: str, told: Callable[[int], None] = lambda _: None) -> RecordsRead:
    """All records of the run behind these places. `told` hears how many were read.

    Raises EndpointError when something cannot be read to its end."""
    consumer, run, records = _consumer(cluster), run_bytes(run_id), RecordsRead()
    try:
        left = _written_partitions(consumer, starts)
        consumer.assign([TopicPartition(topic, n, starts[topic, n]) for topic, n in left])
        count, deadline = 0, time.monotonic() + STALL
        while left:
            for message in consumer.consume(10_000, 0.5):
                place, error = (message.topic() or "", message.partition() or 0), message.error()
                deadline = time.monotonic() + STALL
                if error is None:
                    count += 1
                    _note(records, message.value(), run, place, message.offset() or 0)
                elif error.code() in (KafkaError._PARTITION_EOF, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    left.discard(place)
            told(count)
            if time.monotonic() > deadline:
                names = ", ".join(f"{topic}-{n}" for topic, n in sorted(left))
                raise EndpointError(f"what was written cannot be read back: {names} gave nothing for {STALL:g} s")
    finally:
        consumer.close()
    return records


def _written_partitions(consumer: Consumer, starts: Offsets) -> set[tuple[str, int]]:
    """Without topics that are gone, whose records are lost, and partitions that were not written to."""
    topics = consumer.list_topics(timeout=STALL).topics
    there = set()
    for (topic, n), start in starts.items():
        if topic in topics and n in topics[topic].partitions:
            low, high = bounds(consumer, topic, n)
            if high > max(low, start):
                there.add((topic, n))
    return there


def _note(records: RecordsRead, value: bytes | None, run: bytes, place: tuple[str, int], offset: int) -> None:
    header = header_of(value, run)
    if header is None:
        return
    key = (place[0], header.producer, place[1])
    found = records.get(key)
    if found is None:
        found = records[key] = PartitionRecords()
    found.add(header.sequence, f"{place[0]}-{place[1]} offset {offset}, producer {header.producer}")


def judge(written: Iterable[Written], records: RecordsRead) -> list[Verification]:
    """By tenant and client library."""
    results: dict[tuple[str, str], Verification] = {}
    for one in written:
        result = results.setdefault((one.library, one.tenant), Verification(client=one.library, tenant=one.tenant))
        acknowledged = {(part.producer, part.partition): Runs(part.runs) for part in one.acknowledged}
        aborted = {(part.producer, part.partition): Runs(part.runs) for part in one.aborted}
        keys = {(producer, n) for topic, producer, n in records if topic == one.topic and one.first <= producer <= one.last}
        for producer, n in sorted(keys | acknowledged.keys()):
            sure, found = acknowledged.get((producer, n), Runs()), records.get((one.topic, producer, n), PartitionRecords())
            gone = sure.without(found.there)
            result.acknowledged += len(sure)
            result.consumed += len(found.there)
            result.lost += size_of(gone)
            result.unacknowledged += size_of(found.there.without(sure))
            result.duplicated += found.duplicated
            result.out_of_order += found.out_of_order
            never = aborted.get((producer, n), Runs())
            result.aborted += len(never) - size_of(never.without(found.there))
            lost = [f"{one.topic}-{n}, producer {producer}: sequences {first} to {last - 1} lost" for first, last in gone]
            result.examples = [*result.examples, *lost, *found.examples][:EXAMPLES]
    return list(results.values())


def delivered(readers: Iterable[Given], records: RecordsRead) -> list[Delivery]:
    """By tenant."""
    results = []
    for one in readers:
        result, given = Delivery(tenant=one.tenant, client=one.library, again=one.again), dict[tuple[int, int], Runs]()
        for part in one.read:  # members were given parts of it, some of them the same
            union = given.setdefault((part.producer, part.partition), Runs())
            result.again += sum(not union.add(sequence) for first, last in part.runs for sequence in range(first, last))
        for (topic, producer, n), found in sorted(records.items()):
            if topic == one.topic:
                missed = found.there.without(given.get((producer, n), Runs()))
                result.there += len(found.there)
                result.missed += size_of(missed)
                texts = [f"{topic}-{n}, producer {producer}: sequences {first} to {last - 1} missed" for first, last in missed]
                result.examples = [*result.examples, *texts][:EXAMPLES]
        result.read = result.there - result.missed
        results.append(result)
    return results


def _consumer(cluster: Cluster) -> Consumer:
    return Consumer(
        {
            **librdkafka_settings(cluster.bootstrap, cluster.access),
            "client.id": CLIENT_ID,
            "group.id": CLIENT_ID,  # none is joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # where records were deleted, go on behind them: they are lost
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 64 << 10,
            "log_level": 0,
        }
    )
