"""Asks all brokers of the cluster side by side. In: whom to ask who the brokers are. Out: the brokers, and what each answers; or a
`BrokerError` with a reason for people. Every broker has its own time to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from proxy.config.units import HostPort
from proxy.upstream.broker_client import BrokerClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.wire.metadata import Broker
from proxy.wire.primitives import BadBytes

T = TypeVar("T")

AT_ONCE: Final = 50
"""Brokers that are asked side by side."""
ASKED: Final = 2
"""Live brokers, and as many bootstrap servers, that are asked who the brokers are."""


class EveryBroker:
    """`addresses`: whom to ask who they are; `timeout` in seconds, of each broker."""

    def __init__(self, addresses: Callable[[], list[HostPort]], upstream: Upstream, timeout: float) -> None:
        self._addresses, self._upstream, self._timeout = addresses, upstream, timeout
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def active(self) -> list[Broker]:
        """The brokers, as the first server that answers names them. Some are asked at the same time, as one that hangs would use up
        the timeout."""
        try:
            async with asyncio.timeout(self._timeout):
                return await self._active()
        except TimeoutError:
            raise BrokerError(f"no server names the brokers within {self._timeout:g} s") from None

    async def _active(self) -> list[Broker]:
        addresses = self._addresses()
        tasks = [asyncio.create_task(self._brokers_of(it)) for it in dict.fromkeys([*addresses[:ASKED], *addresses[-ASKED:]])]
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

    async def _brokers_of(self, address: HostPort) -> list[Broker]:
        try:
            async with BrokerClient(address, self._upstream) as client:
                return await client.active_brokers()
        except ConnectionError:
            raise BrokerError(f"{address} closes the connection") from None

    async def ask(self, broker: Broker, work: Callable[[BrokerClient], Awaitable[T]]) -> T:
        """What comes of this work with a connection to a broker."""
        async with self._turns:
            try:
                async with (
                    asyncio.timeout(self._timeout),
                    BrokerClient(HostPort(broker.host, broker.port), self._upstream) as client,
                ):
                    return await work(client)
            except TimeoutError:
                reason = f"it does not answer within {self._timeout:g} s"
            except ConnectionError:
                reason = "it closes the connection"
            except BadBytes as e:
                reason = f"its answer cannot be understood: {e}"
        raise BrokerError(reason)
