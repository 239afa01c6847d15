"""The topic in which quotas are kept that are set while proxies run. In: records to write. Out: records as they come, those of this
proxy too, in the order that all proxies see; whether the topic can be used, and why not.

One compacted partition, read from its beginning at start and followed. What fails is said once, and once when it works again;
then all is read anew, as a topic may have been made anew meanwhile. aiokafka speaks to the brokers, as the proxy's own identity."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from proxy.cluster.quota_records import Header, Record
from proxy.config.units import HostPort
from proxy.net.broker_client import CLIENT_ID, BrokerClient, BrokerError, secret_of
from proxy.net.upstream import Upstream
from proxy.observe.operations import Log
from proxy.wire.metadata import Broker, Topic

AT_ONCE: Final = 500
"""Records that are looked at before others have their turn."""
LOOK: Final = 2.0
"""Seconds of silence after which the proxy asks whether the topic is still there: aiokafka does not tell."""
LOOK_AT_ID: Final = 10.0
"""Seconds between two looks whether it is the same topic, and not another that was given its name."""
ANEW: Final = "it was made anew, and is read from its beginning"
PATIENCE: Final = 8.0
"""Seconds that anything asked of the brokers may take."""
FIRST_RETRY, SLOWEST_RETRY = 0.25, 5.0
MAX_BATCH: Final = 900_000
"""Bytes of the changes of one request: less than the least `max.message.bytes` that clusters have."""
_TOPIC_EXISTS, _COMPACT = 36, "compact"

logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # what matters is said here
logging.getLogger("aiokafka").propagate = False


class TopicError(Exception):
    """The topic cannot be used; the message says why."""


class Written(Protocol):
    """A record of the topic."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


class Reader(Protocol):
    """Who takes the records."""

    def begin(self) -> None:
        """All that follows stands in the topic from its beginning."""

    def take(self, records: Sequence[Written]) -> None: ...
    def complete(self, *, nothing_ever: bool) -> Sequence[Record]:
        """This was all; what is taken from now on is new. `nothing_ever`: nothing was ever written to the topic. Records to write
        to it again, as somebody made it anew and they were in it."""


class QuotaTopic:
    """`servers` are the brokers to ask, the known ones first."""

    def __init__(self, name: str, servers: Callable[[], Iterable[HostPort]], upstream: Upstream, log: Log) -> None:
        self.name, self._servers, self._upstream, self._log = name, servers, upstream, log
        self.reader: Reader
        self.why_not: str | None = "it was not read yet"
        """Why nothing can be written now; None when it can."""
        self.settled = asyncio.Event()
        """It was read, or could not be."""
        self._said = ""
        self._producer: AIOKafkaProducer | None = None
        self._position = 0
        self._topic_id = b""
        self._moved = asyncio.Condition()

    async def run(self) -> None:
        """Until cancelled."""
        asyncio.get_running_loop().set_exception_handler(_quiet)
        delay = FIRST_RETRY
        while True:
            try:
                await self._read_on()
            except Exception as e:  # whatever the library makes of it: the data path goes on
                if self.why_not is None:
                    delay = FIRST_RETRY
                expected = isinstance(e, TopicError | BrokerError)
                self._fails(str(e) if expected else f"{type(e).__name__}: {e}".removesuffix(": "))
            await asyncio.sleep(delay)
            delay = min(delay * 2, SLOWEST_RETRY)

    async def write(self, records: Sequence[Record]) -> None:
        """Write these as one, and return when this proxy has read them too. `TopicError` when that cannot be known."""
        producer = self._producer
        if self.why_not is not None or producer is None:
            raise TopicError(f"the topic {self.name} cannot be written: {self.why_not}")
        last = await self._send(producer, records)
        try:
            async with asyncio.timeout(PATIENCE), self._moved:
                await self._moved.wait_for(lambda: self._position > last)
        except TimeoutError:
            raise TopicError(f"the change is written to the topic {self.name}, which cannot be read now; it holds then") from None

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
            raise TopicError(f"the topic {self.name} did not take the change in time; it may come to hold all the same") from None
        except KafkaError as e:
            raise TopicError(f"the topic {self.name} did not take the change: {_said(e)}") from None
        return int(written.offset) + len(records) - 1

    # ------------------------------------------------------------------ reading

    async def _read_on(self) -> None:
        """Read the topic from its beginning, and follow it until something fails."""
        access = {"bootstrap_servers": await self._prepare(), **self._access()}
        at = TopicPartition(self.name, 0)
        async with (
            _started(AIOKafkaConsumer(enable_auto_commit=False, **access)) as consumer,
            _started(AIOKafkaProducer(acks="all", max_batch_size=MAX_BATCH, **access)) as producer,
        ):
            consumer.assign([at])
            async with asyncio.timeout(PATIENCE):
                await consumer.seek_to_beginning(at)
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
                topic, _ = await self._look()
                if topic is not None and topic.topic_id != self._topic_id:
                    raise TopicError(ANEW)

    async def _take_some(self, consumer: AIOKafkaConsumer, at: TopicPartition) -> None:
        """`TopicError` when the topic is not what was read so far, or cannot be asked for."""
        found = await consumer.getmany(at, timeout_ms=int(LOOK * 1000), max_records=AT_ONCE)
        if records := found.get(at):
            self.reader.take(records)
        elif await _end(consumer, at) < await _position(consumer, at):
            raise TopicError(ANEW)

    async def _reached(self, position: int) -> None:
        if position > self._position:
            self._position = position
            async with self._moved:
                self._moved.notify_all()

    # ------------------------------------------------------------------ the topic itself

    async def _look(self) -> tuple[Topic | None, list[Broker]]:
        """The topic, and the brokers."""
        reasons = []
        for address in self._servers():
            try:
                async with BrokerClient(address, self._upstream) as client:
                    return await client.topic(self.name), await client.brokers()
            except (BrokerError, ConnectionError) as e:
                reasons.append(str(e) or f"{address} closes the connection")
        raise TopicError("; ".join(reasons) or "no broker is known")

    async def _prepare(self) -> list[str]:
        """See that there is such a topic. The servers to start with."""
        topic, brokers = await self._look()
        servers = [str(HostPort(broker.host, broker.port)) for broker in brokers]
        if topic is None:
            async with _started(AIOKafkaAdminClient(bootstrap_servers=servers, **self._access())) as admin:
                await self._create(admin, min(3, len(brokers)))
            topic, _ = await self._look()
        if topic is not None and topic.partitions > 1:
            raise TopicError(f"it has {topic.partitions} partitions; one is right, as all proxies need the same order")
        self._topic_id = b"" if topic is None else topic.topic_id
        return servers

    async def _create(self, admin: AIOKafkaAdminClient, replicas: int) -> None:
        """No replica that has not all of it may lead, and no write counts that only one of three has."""
        settings = {
            "cleanup.policy": _COMPACT,
            "min.insync.replicas": str(max(replicas - 1, 1)),
            "unclean.leader.election.enable": "false",
            "max.message.bytes": str(MAX_BATCH + 100_000),
        }
        new = NewTopic(name=self.name, num_partitions=1, replication_factor=replicas, topic_configs=settings)
        async with asyncio.timeout(PATIENCE):
            answer = await admin.create_topics([new])
        code, message = answer.topic_errors[0][1], (*answer.topic_errors[0], None)[2]
        if code not in (0, _TOPIC_EXISTS):
            raise TopicError(f"it cannot be created: {message or _said(for_code(code)())}")
        if code == 0:
            self._log.info("quota topic created", topic=self.name, replicas=replicas, settings=settings)

    async def _check(self, access: dict[str, Any], *, empty: bool) -> None:
        """A topic that is not compacted forgets: an empty one is mended, another is not used. Whoever may not ask for its settings
        is believed. (Brokers that create what is asked for make such topics when one is deleted.)"""
        async with _started(AIOKafkaAdminClient(**access)) as admin, asyncio.timeout(PATIENCE):
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self.name, {"cleanup.policy": ""})])
            found = {name: value for resource in answer.resources for name, value, *_ in resource[4]}
            policy = found.get("cleanup.policy", _COMPACT)
            if policy == _COMPACT:
                return
            if empty:
                wanted = ConfigResource(ConfigResourceType.TOPIC, self.name, {"cleanup.policy": _COMPACT})
                (changed,) = await admin.alter_configs([wanted])
                if changed.resources[0][0] == 0:
                    self._log.info("quota topic mended", topic=self.name, was={"cleanup.policy": policy})
                    return
        raise TopicError(f"its cleanup.policy is {policy}, so that quotas would be lost; set it to {_COMPACT}")

    def _access(self) -> dict[str, Any]:
        """How brokers are reached, as aiokafka has it."""
        context, identity = self._upstream.context(), self._upstream.identity
        access: dict[str, Any] = {
            "client_id": CLIENT_ID,
            "request_timeout_ms": int(PATIENCE * 1000),
            "security_protocol": ("SASL_" if identity else "") + ("SSL" if context else "PLAINTEXT"),
            "ssl_context": context,
        }
        if identity is None:
            return access
        access["sasl_mechanism"] = identity.mechanism
        if identity.token_file is not None:
            return access | {"sasl_oauth_token_provider": _Token(lambda: secret_of(identity))}
        return access | {"sasl_plain_username": identity.username, "sasl_plain_password": secret_of(identity)}

    # ------------------------------------------------------------------ saying so

    def _works(self) -> None:
        self.why_not = None
        self.settled.set()
        if self._said != "up":
            self._said = "up"
            self._log.info("quota topic is up", topic=self.name)

    def _fails(self, reason: str) -> None:
        self.why_not = reason
        self.settled.set()
        if self._said != reason:
            self._said = reason
            self._log.error("quota topic is away", topic=self.name, reason=reason, detail="the quotas in force stay; trying on")


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """aiokafka leaves a future of its own behind for every batch that fails; what failed was said to whoever waited for it."""
    if not isinstance(context.get("exception"), KafkaError):
        loop.default_exception_handler(context)


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    """Reads the token for every login."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def token(self) -> str:
        return await asyncio.to_thread(self._read)


@contextlib.asynccontextmanager
async def _started(client: Any) -> AsyncIterator[Any]:
    """A client of aiokafka while it is used."""
    try:
        async with asyncio.timeout(PATIENCE):
            await client.start()
        yield client
    finally:
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await (client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop())


async def _end(consumer: AIOKafkaConsumer, at: TopicPartition) -> int:
    async with asyncio.timeout(PATIENCE):
        return int((await consumer.end_offsets([at]))[at])


async def _position(consumer: AIOKafkaConsumer, at: TopicPartition) -> int:
    async with asyncio.timeout(PATIENCE):
        return int(await consumer.position(at))


def _said(error: KafkaError) -> str:
    return str(error) or type(error).__name__
