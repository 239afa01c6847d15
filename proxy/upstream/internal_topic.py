"""A topic of the cluster that the proxy itself uses: how it is found, made where it is not there, and spoken to. In: its name, the
brokers to ask. Out: how aiokafka reaches it; `TopicError` with a reason for people.

aiokafka speaks to the brokers, as the proxy's own identity. What stands in the topic is the business of those who use it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from proxy.backoff import Backoff
from proxy.config.units import HostPort
from proxy.upstream.broker_client import CLIENT_ID, BrokerClient, BrokerError, secret_of
from proxy.upstream.connector import TopicError, Upstream
from proxy.wire.metadata import Topic

T = TypeVar("T")

PATIENCE: Final = 8.0
"""Seconds that anything asked of the brokers may take."""
FIRST_RETRY, SLOWEST_RETRY = 0.25, 5.0
MAX_BATCH: Final = 900_000
"""Bytes of one message: less than the least `max.message.bytes` that clusters have."""
POLICY: Final = "cleanup.policy"
ANEW: Final = "it was made anew, and is read from its beginning"
FIRST_LOOK, SLOWEST_LOOK = 0.05, 0.5
"""Seconds between two questions for a topic that was just created."""
_TOPIC_EXISTS: Final = 36
DENIED: Final = (29, 31)
"""TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED"""

logging.getLogger("aiokafka").addHandler(logging.NullHandler())  # what matters is said here
logging.getLogger("aiokafka").propagate = False


class Description(NamedTuple):
    """What a broker says about the topic (None: there is no such topic), and how to reach the cluster: `servers` has only the
    broker that has just answered. aiokafka tries its servers in random order, and one that accepts connections but does not
    answer takes all of `PATIENCE`, so that the next one would never be asked."""

    topic: Topic | None
    brokers: int
    servers: list[str]


class InternalTopic:
    """`servers` are the brokers to ask, the known ones first. `partitions`: of a topic that is created."""

    def __init__(self, name: str, servers: Callable[[], Iterable[HostPort]], upstream: Upstream, partitions: int = 1) -> None:
        self.name, self._servers, self._upstream, self._partitions = name, servers, upstream, partitions
        self._id = b""

    async def describe(self) -> Description:
        """Ask one broker after the other until one answers."""
        reasons = []
        for address in self._servers():
            try:
                async with BrokerClient(address, self._upstream) as client:
                    return Description(await client.topic(self.name), len(await client.brokers()), [str(address)])
            except (BrokerError, ConnectionError) as e:
                reasons.append(str(e) or f"{address} closes the connection")
        raise TopicError("; ".join(reasons) or "no broker is known")

    async def ensure(self, settings: Mapping[str, str], created: Callable[[int, dict[str, str]], None]) -> Description:
        """Describe the topic, and create it first if there is none. `created` is told its replicas and settings. From now on
        `verify` knows the topic by its id."""
        found = await self.describe()
        if found.topic is None:
            replicas = min(3, found.brokers)
            all_settings = await self._create(found.servers, replicas, settings)
            if all_settings is not None:
                created(replicas, all_settings)
            found = await self._describe_created()
        self._id = b"" if found.topic is None else found.topic.topic_id
        return found

    async def _describe_created(self) -> Description:
        """A broker hears of a new topic some time after the controller has made it. Until its id is known, another topic of its
        name could not be told from it. No topic after `PATIENCE`: it may not be seen."""
        clock, pause = asyncio.get_running_loop().time, Backoff(FIRST_LOOK, SLOWEST_LOOK)
        deadline = clock() + PATIENCE
        while (found := await self.describe()).topic is None and clock() < deadline:
            await pause.wait()
        return found

    async def verify(self) -> None:
        """`TopicError` if this is another topic of the same name by now."""
        topic = (await self.describe()).topic
        if topic is not None and topic.topic_id != self._id:
            raise TopicError(ANEW)

    async def _create(self, servers: list[str], replicas: int, settings: Mapping[str, str]) -> dict[str, str] | None:
        """Create the topic. Only replicas that are in sync may lead, and with three replicas a write needs two.
        Returns all its settings, or None if somebody else has just created it."""
        all_settings = {
            "min.insync.replicas": str(max(replicas - 1, 1)),
            "unclean.leader.election.enable": "false",
            "max.message.bytes": str(MAX_BATCH + 100_000),
            **settings,
        }
        new = NewTopic(name=self.name, num_partitions=self._partitions, replication_factor=replicas, topic_configs=all_settings)
        async with started(AIOKafkaAdminClient(bootstrap_servers=servers, **self.access())) as admin:
            answer = await within(admin.create_topics([new]), "creating the topic")
        code, message = answer.topic_errors[0][1], (*answer.topic_errors[0], None)[2]
        if code not in (0, _TOPIC_EXISTS):
            reason = f"it cannot be created: {message or error_text(for_code(code)())}"
            raise TopicError(reason, denied=code in DENIED)
        return all_settings if code == 0 else None

    async def policy(self, admin: AIOKafkaAdminClient) -> str | None:
        """Its `cleanup.policy`; None where the proxy may not ask for its settings."""
        asked = ConfigResource(ConfigResourceType.TOPIC, self.name, {POLICY: ""})
        (answer,) = await within(admin.describe_configs([asked]), "asking for the settings of the topic")
        found = {name: value for resource in answer.resources for name, value, *_ in resource[4]}
        return found.get(POLICY)

    def access(self) -> dict[str, Any]:
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


@contextlib.asynccontextmanager
async def started(client: Any) -> AsyncIterator[Any]:
    """A client of aiokafka while it is used."""
    try:
        await within(client.start(), "reaching the brokers")
        yield client
    finally:
        with contextlib.suppress(KafkaError, OSError, TopicError):
            await within(client.close() if isinstance(client, AIOKafkaAdminClient) else client.stop(), "leaving the brokers")


async def within(work: Coroutine[Any, Any, T], what: str) -> T:
    """What this call of aiokafka returns. `TopicError` after `PATIENCE` even where the call goes on after it was cancelled, as some
    do: they suppress the error that cancels them. Others end with such an error though they were not cancelled."""
    task = asyncio.ensure_future(work)
    try:
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        task.cancel()
        task.add_done_callback(_forget)
        raise TopicError(f"{what} took more than {PATIENCE:g} s")
    if task.cancelled():
        raise TopicError(f"{what} was broken off")
    return task.result()


def _forget(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception of an abandoned call, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()


def why(error: Exception) -> str:
    """What went wrong, for people: whatever a library makes of it."""
    if isinstance(error, TopicError | BrokerError):
        return str(error)
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def error_text(error: KafkaError) -> str:
    return str(error) or type(error).__name__


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    """Reads the token for every login."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    async def token(self) -> str:
        return await asyncio.to_thread(self._read)
