"""Quotas of a running proxy, or of any broker, for commands.

In: servers, the way in. Out: limits by entity, results of alterations; `BrokerError` with a reason for people."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from proxy.config.units import HostPort
from proxy.upstream.broker_client import CLIENT_ID, BrokerClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.wire import client_quotas as wire
from proxy.wire.client_quotas import Entry, Filter, Result, Who
from proxy.wire.primitives import BadBytes
from proxy.wire.steps import finish_at_once

T = TypeVar("T")
AT_ONCE = 1000
"""Entries of one request at most, so that none is larger than the proxy looks into."""


class QuotaClient(BrokerClient):
    """A connection, as an async context manager."""

    async def describe(self, wanted: Filter) -> dict[Who, dict[str, float]]:
        """Limits by entity."""
        version = await self._version(wire.DESCRIBE)
        try:
            frame = await self._send(wire.describe_request(self._next(), CLIENT_ID, version, wanted))
            result, found = wire.read_description(frame, version)
        except BadBytes as e:
            raise self._not_understood(e) from None
        except ConnectionError:
            raise BrokerError(f"{self._address} closes the connection when asked for quotas: it wants authentication") from None
        if result.error:
            raise BrokerError(f"{self._address} does not describe its quotas: {result_text(result)}")
        return found

    async def alter(self, entries: Sequence[Entry], *, validate_only: bool) -> list[tuple[Entry, Result]]:
        """What became of each."""
        version = await self._version(wire.ALTER)
        done: list[tuple[Entry, Result]] = []
        for start in range(0, len(entries), AT_ONCE):
            part = entries[start : start + AT_ONCE]
            try:
                request = finish_at_once(wire.alter_request(self._next(), CLIENT_ID, version, part, validate_only=validate_only))
                _, results = finish_at_once(wire.read_results(await self._send(request), version))
            except BadBytes as e:
                raise self._not_understood(e) from None
            except ConnectionError:
                raise BrokerError(f"{self._address} closes the connection; it may want authentication") from None
            done += [(entry, results.get(frozenset(entry.who), Result(-1, "no answer about it"))) for entry in part]
        return done

    def _next(self) -> int:
        self._correlation_id += 1
        return self._correlation_id

    async def _version(self, key: int) -> int:
        try:
            low, high = (await self.api_ranges()).get(key, (0, -1))
        except ConnectionError:
            raise BrokerError(f"{self._address} closes the connection: is there a Kafka listener without TLS?") from None
        version = min(high, wire.VERSIONS[1])
        if version < low:
            raise BrokerError(f"{self._address} knows no quotas by the Kafka protocol; brokers since 2.6 do")
        return version


def result_text(result: Result) -> str:
    """An error for people."""
    from kio.schema.errors import ErrorCode

    try:
        name = ErrorCode(result.error).name.upper()
    except ValueError:
        name = f"error {result.error}"
    return f"{name}: {result.message}" if result.message else name


def ask(servers: Sequence[HostPort], upstream: Upstream, work: Callable[[QuotaClient], Awaitable[T]]) -> T:
    """What `work` makes of the first server that can be reached."""
    return asyncio.run(first_that_answers(servers, upstream, work))


async def first_that_answers(servers: Sequence[HostPort], upstream: Upstream, work: Callable[[QuotaClient], Awaitable[T]]) -> T:
    """The same in a loop that runs."""
    reasons = []
    for address in servers:
        try:
            client = await QuotaClient(address, upstream).__aenter__()
        except BrokerError as e:
            reasons.append(str(e))
            continue
        try:
            return await work(client)
        finally:
            await client.__aexit__(None, None, None)
    raise BrokerError("; ".join(reasons))
