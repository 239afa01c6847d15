"""The proxy's own requests to a broker: few, small, one at a time. In: an address. Out: API ranges, brokers; or
`BrokerError` with a reason for people."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from types import TracebackType
from typing import Any, Final, Self

from kio.index import load_request_schema

from proxy.config.units import HostPort
from proxy.wire.api_versions import read_ranges
from proxy.wire.headers import API_VERSIONS
from proxy.wire.kio_bridge import encode_request
from proxy.wire.metadata import KEY as METADATA
from proxy.wire.metadata import Broker, read_brokers
from proxy.wire.primitives import INT32, BadBytes

CLIENT_ID: Final = "kafka-quota-proxy"
MAX_RESPONSE: Final = 16 << 20
_METADATA_VERSIONS: Final = (1, 12)


class BrokerError(Exception):
    """The broker cannot be asked; the message says why. `refused`: it answered, but wants authentication first."""

    def __init__(self, reason: str, *, refused: bool = False) -> None:
        super().__init__(reason)
        self.refused = refused


class BrokerClient:
    """A connection to one broker, as an async context manager. `timeout` in seconds holds for connecting and for each request."""

    def __init__(self, address: HostPort, timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._correlation_id = 0

    async def __aenter__(self) -> Self:
        try:
            async with asyncio.timeout(self._timeout):
                self._reader, self._writer = await asyncio.open_connection(self._address.host, self._address.port)
        except TimeoutError:
            raise BrokerError(f"no connection to {self._address} within {self._timeout:g} s") from None
        except OSError as e:
            raise BrokerError(f"no connection to {self._address}: {e.strerror or e}") from None
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._writer.close()

    async def api_ranges(self) -> dict[int, tuple[int, int]]:
        """API key to the (lowest, highest) version that the broker speaks."""
        try:
            return await self._api_ranges()
        except BadBytes as e:
            raise BrokerError(f"the answer of {self._address} cannot be understood: {e}") from None

    async def _api_ranges(self) -> dict[int, tuple[int, int]]:
        newest = load_request_schema(API_VERSIONS, 3)(client_software_name=CLIENT_ID, client_software_version="1")  # type: ignore[call-arg]
        ranges = read_ranges(await self._ask(newest), 3)
        return ranges or read_ranges(await self._ask(load_request_schema(API_VERSIONS, 0)()), 0)

    async def brokers(self) -> list[Broker]:
        """The live brokers. `BrokerError.refused` when the broker wants authentication."""
        low, high = (await self.api_ranges()).get(METADATA, (0, -1))
        version = min(high, _METADATA_VERSIONS[1])
        if version < max(low, _METADATA_VERSIONS[0]):
            raise BrokerError(
                f"{self._address} speaks Metadata {low} to {high}, the proxy {_METADATA_VERSIONS[0]} to {_METADATA_VERSIONS[1]}"
            )
        schema = load_request_schema(METADATA, version)
        flags = {field.name: False for field in fields(schema) if field.name != "topics"}
        no_topics = schema(topics=(), **flags)  # type: ignore[call-arg]
        try:
            return read_brokers(await self._ask(no_topics), version)
        except ConnectionError:
            raise BrokerError(
                f"{self._address} closes the connection when asked for its brokers: it wants authentication", refused=True
            ) from None
        except BadBytes as e:
            raise BrokerError(f"the answer of {self._address} cannot be understood: {e}") from None

    async def _ask(self, body: Any) -> bytes:
        """The response frame to one request. ConnectionError when the broker closes the connection instead."""
        self._correlation_id += 1
        try:
            async with asyncio.timeout(self._timeout):
                self._writer.write(encode_request(self._correlation_id, CLIENT_ID, body))
                size = await self._reader.readexactly(4)
                (length,) = INT32.unpack(size)
                if not 4 <= length <= MAX_RESPONSE:
                    raise BrokerError(f"{self._address} does not speak the Kafka protocol, or wants TLS")
                return size + await self._reader.readexactly(length)
        except TimeoutError:
            raise BrokerError(f"{self._address} does not answer within {self._timeout:g} s") from None
        except asyncio.IncompleteReadError:
            raise ConnectionError from None
