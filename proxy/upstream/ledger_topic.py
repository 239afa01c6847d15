"""The topic by which proxies share quotas. In: records to append. Out: records in their order, from any offset on. It is the
`SharedLog` of `proxy.fleet`, which says what the records are.

Two partitions: updates with their snapshots, and events. Records are deleted after a time and never compacted: what proxies charged
are differences that all count, so a log that has lost some of the middle would be wrong, while one that has lost its beginning is
read from a snapshot on. Brokers give records their times, so that all readers go by one clock. aiokafka speaks to the brokers, as
the proxy's own identity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    BrokerResponseError,
    InvalidPartitionsError,
    KafkaError,
    OffsetOutOfRangeError,
    for_code,
)

from proxy.config.units import HostPort
from proxy.fleet.log_records import is_update
from proxy.fleet.shared_log import EVENTS, PARTITIONS, UPDATES, LogRecord, Page
from proxy.observe.operations import Log
from proxy.upstream.connector import TopicError, Upstream
from proxy.upstream.internal_topic import DENIED, MAX_BATCH, POLICY, InternalTopic, error_text, started, within

_DELETE: Final = "delete"
KEPT: Final = 2 * 3600.0
"""Seconds that records are kept at least, and twice as long as events are of interest."""
MAX_SIZE: Final = 256 << 20
"""Bytes of a partition after which brokers delete the oldest records: minutes of the most that proxies write, many times what is
written between two snapshots."""
SEGMENT: Final = 32 << 20
FOUND_WITHIN: Final = 4.0
"""Seconds that records may take to be read that are there."""
LONGEST_WAIT: Final = 2.0
"""Seconds that one call of aiokafka waits: far less than it may take."""
ON_THEIR_WAY: Final = 1000
"""Updates of all proxies that may be on their way when the topic is deleted."""


class LedgerTopic:
    """`servers` are the brokers to ask, the known ones first. `life`: seconds for which events are of interest."""

    def __init__(self, name: str, life: float, servers: Callable[[], Iterable[HostPort]], upstream: Upstream, log: Log) -> None:
        self.name, self._log = name, log
        self._own = InternalTopic(name, servers, upstream, PARTITIONS)
        self._settings = {
            POLICY: _DELETE,
            "retention.ms": str(int(max(KEPT, 2 * life) * 1000)),
            "retention.bytes": str(MAX_SIZE),
            "segment.bytes": str(SEGMENT),
            "message.timestamp.type": "LogAppendTime",
        }

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[OpenTopic]:
        """Create the topic if there is none, check it, and connect."""
        servers = await self._prepare()
        access = {"bootstrap_servers": servers, **self._own.access()}
        reading = {"enable_auto_commit": False, "auto_offset_reset": "none"}
        async with (
            started(AIOKafkaConsumer(**reading, **access)) as updates,
            started(AIOKafkaConsumer(**reading, **access)) as events,
            started(AIOKafkaProducer(acks="all", max_batch_size=MAX_BATCH, **access)) as producer,
        ):
            yield OpenTopic(self.name, self._own, [updates, events], producer)

    async def _prepare(self) -> list[str]:
        """The servers to start with."""

        def created(replicas: int, settings: dict[str, str]) -> None:
            self._log.info("ledger topic created", topic=self.name, replicas=replicas, settings=settings)

        topic, _, servers = await self._own.ensure(self._settings, created)
        if topic is not None and topic.partitions < PARTITIONS:
            await self._mend(servers, topic.partitions)
        async with started(AIOKafkaAdminClient(bootstrap_servers=servers, **self._own.access())) as admin:
            policy = await self._own.policy(admin) or _DELETE
        if "compact" in policy:
            raise TopicError(f"its {POLICY} is {policy}, so that amounts would be lost; set it to {_DELETE}")
        return servers

    async def _mend(self, servers: list[str], partitions: int) -> None:
        """Brokers that create topics automatically make one with too few partitions when the right one was deleted. It is made
        right if nothing is in it, or nothing but updates that were on their way."""
        access = {"bootstrap_servers": servers, **self._own.access()}
        async with started(AIOKafkaConsumer(auto_offset_reset="earliest", **access)) as consumer:
            if not await self._only_updates(consumer):
                raise TopicError(f"it has {partitions} partition; it must have {PARTITIONS}: one of updates, one of events")
        async with started(AIOKafkaAdminClient(**access)) as admin:
            wanted = ConfigResource(ConfigResourceType.TOPIC, self.name, self._settings)
            (changed,) = await _asked(admin.alter_configs([wanted]), "mending the settings of the topic")
            code, message = changed.resources[0][:2]
            if code:
                raise TopicError(f"its settings cannot be mended: {message or for_code(code).__name__}")
            try:
                await _asked(admin.create_partitions({self.name: NewPartitions(PARTITIONS)}), "adding a partition to the topic")
            except InvalidPartitionsError:
                return  # another proxy has just done it
        self._log.info("ledger topic mended", topic=self.name, was={"partitions": partitions})

    async def _only_updates(self, consumer: AIOKafkaConsumer) -> bool:
        """Proxies write updates before they hear that the topic is another one. With no beginning before them they mean nothing."""
        at = TopicPartition(self.name, UPDATES)
        consumer.assign([at])
        end = int((await _asked(consumer.end_offsets([at]), "asking where the topic ends"))[at])
        left = end
        while 0 < left <= ON_THEIR_WAY:
            found = await _asked(consumer.getmany(at, timeout_ms=int(FOUND_WITHIN * 1000)), "reading")
            values = [it.value or b"" for it in found.get(at, ())]
            if not values or not all(map(is_update, values)):
                return False
            left -= len(values)
        return left <= 0


class OpenTopic:
    """The topic while it is used: a consumer for each partition, as each waits for records of its own."""

    def __init__(self, name: str, own: InternalTopic, consumers: list[AIOKafkaConsumer], producer: AIOKafkaProducer) -> None:
        self._name, self._own, self._consumers, self._producer = name, own, consumers, producer
        self._at = [TopicPartition(name, partition) for partition in range(PARTITIONS)]
        self._positions: list[int | None] = [None] * PARTITIONS
        for consumer, at in zip(consumers, self._at, strict=True):
            consumer.assign([at])

    async def ends(self, partition: int) -> tuple[int, int]:
        consumer, at = self._consumers[partition], self._at[partition]
        begin = await _asked(consumer.beginning_offsets([at]), "asking where the topic begins")
        end = await _asked(consumer.end_offsets([at]), "asking where the topic ends")
        return int(begin[at]), int(end[at])

    async def offset_at(self, partition: int, time: float) -> int:
        consumer, at = self._consumers[partition], self._at[partition]
        end = (await self.ends(partition))[1]  # asked first: what is written between the two questions must not be passed over
        found = await _asked(consumer.offsets_for_times({at: max(int(time * 1000), 0)}), "looking for a time")
        return end if found[at] is None else int(found[at].offset)

    async def read(self, partition: int, offset: int, limit: int, wait: float) -> Page:
        consumer, at = self._consumers[partition], self._at[partition]
        if self._positions[partition] != offset:
            consumer.seek(at, offset)
        self._positions[partition] = None  # until this read has succeeded
        try:
            found = await self._some(partition, limit, wait)
            if not found and (await self.ends(partition))[1] > offset:
                found = await self._some(partition, limit, FOUND_WITHIN)
        except OffsetOutOfRangeError:
            if partition != EVENTS:
                raise TopicError("records were deleted before they were read") from None
            consumer.seek(at, (await self.ends(partition))[0])
            return Page([], offset)
        records = [LogRecord(it.offset, it.timestamp / 1000, it.value or b"") for it in found]
        position = records[-1].offset + 1 if records else offset
        self._positions[partition] = position
        return Page(records, position)

    async def _some(self, partition: int, limit: int, wait: float) -> Sequence[Any]:
        consumer, at = self._consumers[partition], self._at[partition]
        while True:
            step = min(wait, LONGEST_WAIT)
            found = await _asked(consumer.getmany(at, timeout_ms=int(step * 1000), max_records=limit), "reading")
            wait -= step
            if found or wait <= 0:
                return found.get(at, ())  # type: ignore[no-any-return]

    async def append(self, partition: int, value: bytes) -> int:
        async def sent() -> Any:
            return await (await self._producer.send(self._name, value, partition=partition))

        return int((await _asked(sent(), "writing")).offset)

    async def verify(self) -> None:
        await self._own.verify()


async def _asked(work: Any, what: str) -> Any:
    """What this call of aiokafka returns; `TopicError` for what the brokers refuse."""
    try:
        return await within(work, what)
    except (OffsetOutOfRangeError, InvalidPartitionsError):
        raise
    except KafkaError as e:
        denied = isinstance(e, BrokerResponseError) and e.errno in DENIED
        raise TopicError(error_text(e) if denied else f"{what} failed: {error_text(e)}", denied=denied) from None
    except asyncio.InvalidStateError:  # the client was closed meanwhile
        raise TopicError(f"{what} was broken off") from None
