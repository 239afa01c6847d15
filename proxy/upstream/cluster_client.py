"""What the proxy asks of the cluster for itself: who its brokers are, which topics there are, how full log dirs are.

In: whom to ask. Out: answers of brokers, or a `BrokerError` with a reason for people. Every broker has its own time to answer.
Workers ask by their supervisor (`cluster_relay.py`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, TypeVar

from proxy.config.units import HostPort
from proxy.upstream.broker_client import BrokerClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.wire.metadata import Broker
from proxy.wire.primitives import BadBytes

T = TypeVar("T")
Frame = tuple[bytes, int]
"""a response frame, and its version"""

AT_ONCE: Final = 50
"""Brokers that are asked side by side."""
ASKED: Final = 2
"""Live brokers, and as many bootstrap servers, that are asked who the brokers are."""


class ClusterClient(Protocol):
    """Asks brokers. `within`: the seconds that one question may take."""

    async def brokers(self) -> list[Broker]:
        """The live brokers, of the first server that answers. `BrokerError.refused` when it wants authentication."""

    async def topics(self, broker: Broker) -> Frame:
        """A Metadata response about all topics that the proxy may see."""

    async def default_partitions(self, broker: Broker) -> int | None:
        """What a topic gets that does not say; None when the broker does not tell."""

    async def active_brokers(self, within: float) -> list[Broker]:
        """The brokers that the cluster does not call fenced. `BrokerError.too_old` before Kafka 2.8."""

    async def log_dirs(self, broker: Broker, topics: Mapping[str, int] | None, within: float) -> Frame:
        """Of DescribeLogDirs, with the replicas of these topics, by their numbers of partitions; of all where that is None."""


async def read_log_dirs_of(
    client: ClusterClient, broker: Broker, topics: Mapping[str, int] | None, within: float, read: Callable[[bytes, int], T]
) -> T:
    """What `read` finds in a broker's answer about its log dirs, in a thread: answers are large."""
    frame, version = await client.log_dirs(broker, topics, within)
    try:
        return await asyncio.to_thread(read, frame, version)
    except BadBytes as e:
        raise BrokerError(f"its answer cannot be understood: {e}") from None


class DirectClient:
    """A `ClusterClient` that connects to brokers. `addresses`: whom to ask who they are."""

    def __init__(self, addresses: Callable[[], list[HostPort]], upstream: Upstream) -> None:
        self._addresses, self._upstream = addresses, upstream
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def brokers(self) -> list[Broker]:
        reasons: list[str] = []
        for address in self._addresses():
            try:
                return await self._ask(address, lambda client: client.brokers())
            except BrokerError as e:
                if e.refused:
                    raise
                reasons.append(str(e))
        raise BrokerError("; ".join(reasons))

    async def topics(self, broker: Broker) -> Frame:
        return await self._ask(HostPort(broker.host, broker.port), lambda client: client.topics())

    async def default_partitions(self, broker: Broker) -> int | None:
        return await self._ask(HostPort(broker.host, broker.port), lambda client: client.default_partitions(broker.node_id))

    async def active_brokers(self, within: float) -> list[Broker]:
        """Some servers are asked at the same time, as one that hangs would use up the timeout."""
        try:
            async with asyncio.timeout(within):
                return await self._active()
        except TimeoutError:
            raise BrokerError(f"no server names the brokers within {within:g} s") from None

    async def _active(self) -> list[Broker]:
        addresses = self._addresses()
        asked = dict.fromkeys([*addresses[:ASKED], *addresses[-ASKED:]])
        tasks = [asyncio.create_task(self._ask(it, lambda client: client.active_brokers())) for it in asked]
        failures: list[BrokerError] = []
        try:
            for answer in asyncio.as_completed(tasks):
                try:
                    return await answer
                except BrokerError as e:
                    failures.append(e)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        hopeless = [e for e in failures if e.too_old or e.refused]
        raise hopeless[0] if hopeless else BrokerError("; ".join(map(str, failures)))

    async def log_dirs(self, broker: Broker, topics: Mapping[str, int] | None, within: float) -> Frame:
        async with self._turns:
            try:
                async with (
                    asyncio.timeout(within),
                    BrokerClient(HostPort(broker.host, broker.port), self._upstream) as client,
                ):
                    return await client.log_dirs(topics)
            except TimeoutError:
                raise BrokerError(f"it does not answer within {within:g} s") from None
            except ConnectionError:
                raise BrokerError("it closes the connection") from None

    async def _ask(self, address: HostPort, question: Callable[[BrokerClient], Awaitable[T]]) -> T:
        """What a broker answers."""
        try:
            async with BrokerClient(address, self._upstream) as client:
                return await question(client)
        except ConnectionError:
            raise BrokerError(f"{address} closes the connection") from None
