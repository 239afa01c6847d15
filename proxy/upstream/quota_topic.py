"""The topic in which quotas are kept that are set while proxies run. In: records to write. Out: records as they come, those of this
proxy too, in the order that all proxies see; whether the topic can be used, and why not.

One compacted partition, read from its beginning at start and followed. A failure is logged once, and so is its end;
then all is read anew, as a topic may have been made anew meanwhile. aiokafka speaks to the brokers, as the proxy's own identity."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from proxy.backoff import Backoff, retry
from proxy.cluster.quota_records import Record
from proxy.config.units import HostPort
from proxy.observe.operations import Log
from proxy.upstream.connector import TopicError, Upstream
from proxy.upstream.internal_topic import (
    ANEW,
    FIRST_RETRY,
    MAX_BATCH,
    PATIENCE,
    POLICY,
    SLOWEST_RETRY,
    InternalTopic,
    error_text,
    started,
    why,
    within,
)
from proxy.upstream.quota_store import Reader, Written

AT_ONCE: Final = 500
"""Records that are looked at before others have their turn."""
LOOK: Final = 2.0
"""Seconds of silence after which the proxy asks whether the topic is still there: aiokafka does not tell."""
LOOK_AT_ID: Final = 10.0
"""Seconds between two looks whether it is the same topic, and not another that was given its name."""
_COMPACT: Final = "compact"


class QuotaTopic:
    """A `QuotaStore`. `servers` are the brokers to ask, the known ones first; `altered` is given records that were written since
    the topic was read; `told` is called when `why_not` may have changed."""

    def __init__(
        self,
        name: str,
        servers: Callable[[], Iterable[HostPort]],
        upstream: Upstream,
        log: Log,
        altered: Callable[[Sequence[Written]], None] = lambda _: None,
        told: Callable[[], None] = lambda: None,
    ) -> None:
        self.name, self._log, self._altered, self._told = name, log, altered, told
        self._own = InternalTopic(name, servers, upstream)
        self.reader: Reader
        self.why_not: str | None = "it was not read yet"
        self.settled = asyncio.Event()
        self._last_status = ""
        self._producer: AIOKafkaProducer | None = None
        self._position = 0
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        backoff = Backoff(FIRST_RETRY, SLOWEST_RETRY)

        def failed(error: Exception) -> None:
            if self.why_not is None:
                backoff.reset()
            self._fails(why(error))

        await retry(self._read_on, backoff, failed)  # after any error of the library: clients are still served

    async def write(self, records: Sequence[Record]) -> None:
        producer = self._producer
        if self.why_not is not None or producer is None:
            raise TopicError(f"the topic {self.name} cannot be written: {self.why_not}")
        last = await self._send(producer, records)
        try:
            async with asyncio.timeout(PATIENCE), self._moved:
                await self._moved.wait_for(lambda: self._position > last)
        except TimeoutError:
            raise TopicError(
                f"the change is written to the topic {self.name}, which cannot be read now; it takes effect when the topic is read"
            ) from None

    async def _send(self, producer: AIOKafkaProducer, records: Sequence[Record]) -> int:
        """Write these as one; the offset of the last."""
        batch = producer.create_batch()
        for record in records:
            if batch.append(key=record.key, value=record.value, timestamp=None, headers=record.headers) is None:
                raise TopicError(f"these are more changes than fit into one message of {MAX_BATCH} bytes; alter less at once")
        try:
            async with asyncio.timeout(PATIENCE):
                written = await (await producer.send_batch(batch, self.name, partition=0))
        except TimeoutError:
            raise TopicError(f"the topic {self.name} did not take the change in time; the change may still take effect") from None
        except KafkaError as e:
            raise TopicError(f"the topic {self.name} did not take the change: {error_text(e)}") from None
        return int(written.offset) + len(records) - 1

    # ------------------------------------------------------------------ reading

    async def _read_on(self) -> None:
        """Read the topic from its beginning, and follow it until something fails. A position that is not in the topic is an error:
        the topic is another one."""
        access = {"bootstrap_servers": await self._prepare(), **self._own.access()}
        at = TopicPartition(self.name, 0)
        async with (
            started(AIOKafkaConsumer(enable_auto_commit=False, auto_offset_reset="none", **access)) as consumer,
            started(AIOKafkaProducer(acks="all", max_batch_size=MAX_BATCH, **access)) as producer,
        ):
            consumer.assign([at])
            consumer.seek(at, (await within(consumer.beginning_offsets([at]), "finding the beginning"))[at])
            self._position = 0
            self.reader.begin()
            end = await _end(consumer, at)
            while await _position(consumer, at) < end:
                await self._take_some(consumer, at)
            await self._check(access, empty=end == 0)
            lost = self.reader.complete(nothing_ever=end == 0)
            self._producer = producer
            self._works()
            try:
                if lost:
                    await self._send(producer, lost)
                await self._follow(consumer, at)
            finally:
                self._producer = None

    async def _follow(self, consumer: AIOKafkaConsumer, at: TopicPartition) -> None:
        clock = asyncio.get_running_loop().time
        next_look = clock() + LOOK_AT_ID
        while True:
            await self._reached(await _position(consumer, at))
            await self._take_some(consumer, at)
            if clock() >= next_look:
                next_look = clock() + LOOK_AT_ID
                await self._own.verify()

    async def _take_some(self, consumer: AIOKafkaConsumer, at: TopicPartition) -> None:
        """`TopicError` when the topic is not what was read so far, or cannot be asked for."""
        try:
            found = await within(consumer.getmany(at, timeout_ms=int(LOOK * 1000), max_records=AT_ONCE), "reading")
        except OffsetOutOfRangeError:
            raise TopicError(ANEW) from None
        if records := found.get(at):
            self.reader.take(records)
            if self._producer is not None:
                self._altered(records)
        elif await _end(consumer, at) < await _position(consumer, at):
            raise TopicError(ANEW)

    async def _reached(self, position: int) -> None:
        if position > self._position:
            self._position = position
            async with self._moved:
                self._moved.notify_all()

    # ------------------------------------------------------------------ the topic itself

    async def _prepare(self) -> list[str]:
        """Create the topic if there is none, and check it. Returns the servers to start with."""

        def created(replicas: int, settings: dict[str, str]) -> None:
            self._log.info("quota topic created", topic=self.name, replicas=replicas, settings=settings)

        topic, _, servers = await self._own.ensure({POLICY: _COMPACT}, created)
        if topic is not None and topic.partitions > 1:
            raise TopicError(f"it has {topic.partitions} partitions; it must have one, as all proxies need the same order")
        return servers

    async def _check(self, access: dict[str, Any], *, empty: bool) -> None:
        """A topic that is not compacted would lose quotas. Its setting is corrected if the topic is empty; else the topic is not
        used. A proxy that may not read the topic's settings uses it unchecked. (Brokers that create topics automatically make
        such a topic when the right one was deleted.)"""
        async with started(AIOKafkaAdminClient(**access)) as admin:
            policy = await self._own.policy(admin) or _COMPACT
            if policy == _COMPACT:
                return
            if empty:
                wanted = ConfigResource(ConfigResourceType.TOPIC, self.name, {POLICY: _COMPACT})
                (changed,) = await within(admin.alter_configs([wanted]), "mending the settings of the topic")
                if changed.resources[0][0] == 0:
                    self._log.info("quota topic mended", topic=self.name, was={POLICY: policy})
                    return
        raise TopicError(f"its cleanup.policy is {policy}, so that quotas would be lost; set it to {_COMPACT}")

    # ------------------------------------------------------------------ saying so

    def _works(self) -> None:
        self.why_not = None
        self.settled.set()
        self._told()
        if self._last_status != "up":
            self._last_status = "up"
            self._log.info("quota topic is up", topic=self.name)

    def _fails(self, reason: str) -> None:
        self.why_not = reason
        self.settled.set()
        self._told()
        if self._last_status != reason:
            self._last_status = reason
            self._log.error(
                "quota topic is away", topic=self.name, reason=reason, detail="the quotas in force stay; the proxy tries again"
            )


async def _end(consumer: AIOKafkaConsumer, at: TopicPartition) -> int:
    return int((await within(consumer.end_offsets([at]), "asking where the topic ends"))[at])


async def _position(consumer: AIOKafkaConsumer, at: TopicPartition) -> int:
    return int(await within(consumer.position(at), "asking how far it was read"))
