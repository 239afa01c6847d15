"""The proxy's own requests to a broker: few, small, one at a time. In: an address and the way there. Out: API ranges, brokers;
or `BrokerError` with a reason for people.

With an identity it logs in first (KIP-43, KIP-152). Passwords and tokens are read from their files for each login, and are in
no message."""

from __future__ import annotations

import asyncio
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kio.index import load_request_schema

from proxy.config.units import HostPort
from proxy.config.upstream import UpstreamSasl
from proxy.identity.login import Exchange, LoginError, bearer, plain, scram, step
from proxy.net.tls import explain
from proxy.net.upstream import BrokerError, Upstream
from proxy.wire.api_versions import read_ranges
from proxy.wire.headers import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.wire.kio_bridge import decode_response, encode_request, nested
from proxy.wire.metadata import KEY as METADATA
from proxy.wire.metadata import Broker, read_brokers
from proxy.wire.primitives import INT32, BadBytes

__all__ = ["BrokerClient", "BrokerError"]

CLIENT_ID: Final = "kafka-quota-proxy"
MAX_RESPONSE: Final = 64 << 20
_METADATA_VERSIONS: Final = (1, 12)
_DESCRIBE_CONFIGS: Final = 32
_BROKER: Final = 4
"""the type of a broker among the resources that have settings"""
_UNSUPPORTED_MECHANISM: Final = 33


class BrokerClient:
    """A connection to one broker, as an async context manager. The timeout of `upstream` holds for connecting, and for each
    request."""

    def __init__(self, address: HostPort, upstream: Upstream) -> None:
        self._address, self._upstream = address, upstream
        self._correlation_id = 0

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(loop=loop)
        protocol = asyncio.StreamReaderProtocol(self._reader, loop=loop)
        self._transport, _ = await self._upstream.connect(lambda: protocol, self._address)
        try:
            if self._upstream.identity is not None:
                await self._log_in(self._upstream.identity)
        except BaseException:
            self._transport.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._transport.close()

    async def api_ranges(self) -> dict[int, tuple[int, int]]:
        """API key to the (lowest, highest) version that the broker speaks."""
        try:
            return await self._api_ranges()
        except BadBytes as e:
            raise self._not_understood(e) from None

    async def _api_ranges(self) -> dict[int, tuple[int, int]]:
        newest = load_request_schema(API_VERSIONS, 3)(client_software_name=CLIENT_ID, client_software_version="1")  # type: ignore[call-arg]
        ranges = read_ranges(await self._ask(newest), 3)
        return ranges or read_ranges(await self._ask(load_request_schema(API_VERSIONS, 0)()), 0)

    async def brokers(self) -> list[Broker]:
        """The live brokers. `BrokerError.refused` when the broker wants authentication."""
        frame, version = await self._metadata(())
        try:
            return read_brokers(frame, version)
        except BadBytes as e:
            raise self._not_understood(e) from None

    async def topics(self) -> tuple[bytes, int]:
        """A Metadata response about all topics that the proxy may see, and its version."""
        return await self._metadata(None)

    async def _metadata(self, topics: tuple[Any, ...] | None) -> tuple[bytes, int]:
        low, high = (await self.api_ranges()).get(METADATA, (0, -1))
        version = min(high, _METADATA_VERSIONS[1])
        if version < max(low, _METADATA_VERSIONS[0]):
            raise BrokerError(
                f"{self._address} speaks Metadata {low} to {high}, the proxy {_METADATA_VERSIONS[0]} to {_METADATA_VERSIONS[1]}"
            )
        schema = load_request_schema(METADATA, version)
        flags = {field.name: False for field in fields(schema) if field.name != "topics"}
        try:
            return await self._ask(schema(topics=topics, **flags)), version  # type: ignore[call-arg]
        except ConnectionError:
            raise BrokerError(
                f"{self._address} closes the connection when asked for its brokers: it wants authentication", refused=True
            ) from None

    async def default_partitions(self, node_id: int) -> int | None:
        """What a topic gets that does not say (num.partitions of this broker, whose id that is); None when the broker does not
        tell: whoever asks needs DescribeConfigs on the cluster."""
        low, high = (await self.api_ranges()).get(_DESCRIBE_CONFIGS, (0, -1))
        version = min(high, 4)
        if version < max(low, 1):
            return None
        schema = load_request_schema(_DESCRIBE_CONFIGS, version)
        resource = nested(schema, "DescribeConfigsResource")
        broker = resource(resource_type=_BROKER, resource_name=str(node_id), configuration_keys=("num.partitions",))
        flags = {field.name: False for field in fields(schema) if field.name != "resources"}
        try:
            answer = decode_response(_DESCRIBE_CONFIGS, version, await self._ask(schema(resources=(broker,), **flags)))  # type: ignore[call-arg]
            values = [config.value for result in answer.results for config in result.configs if config.name == "num.partitions"]
            return int(values[0])
        except (ConnectionError, BadBytes, LookupError, TypeError, ValueError):
            return None

    async def _log_in(self, identity: UpstreamSasl) -> None:
        exchange, who, secret = _exchange(identity)
        try:
            await self._handshake(identity.mechanism)
            await self._authenticate(exchange, who, secret)
        except ConnectionError:
            raise BrokerError(f"{self._address} closes the connection during the login of {who}") from None
        except LoginError as e:
            raise BrokerError(f"the login of {who} at {self._address} failed: {e}") from None
        except BadBytes as e:
            raise self._not_understood(e) from None

    async def _handshake(self, mechanism: str) -> None:
        body = load_request_schema(SASL_HANDSHAKE, 1)(mechanism=mechanism)  # type: ignore[call-arg]
        answer = decode_response(SASL_HANDSHAKE, 1, await self._ask(body))
        if answer.error_code == _UNSUPPORTED_MECHANISM:
            raise BrokerError(
                f"{self._address} takes no {mechanism}; set `upstream.sasl.mechanism` to one of {', '.join(answer.mechanisms)}"
            )
        if answer.error_code:
            raise BrokerError(f"{self._address} takes no logins at this port; leave out `upstream.sasl`, or take another port")

    async def _authenticate(self, exchange: Exchange, who: str, secret: str) -> None:
        answer_token: bytes | None = None
        while (token := await asyncio.to_thread(step, exchange, answer_token)) is not None:  # SCRAM computes for milliseconds
            body = load_request_schema(SASL_AUTHENTICATE, 1)(auth_bytes=token)  # type: ignore[call-arg]
            answer = decode_response(SASL_AUTHENTICATE, 1, await self._ask(body))
            if answer.error_code:
                said = answer.error_message or f"error {int(answer.error_code)}"
                raise BrokerError(f"{self._address} refuses the login of {who}" + ("" if secret in said else f": {said}"))
            answer_token = answer.auth_bytes

    def _not_understood(self, error: BadBytes) -> BrokerError:
        return BrokerError(f"the answer of {self._address} cannot be understood: {error}")

    async def _ask(self, body: Any) -> bytes:
        """The response frame to one request. ConnectionError when the broker closes the connection instead."""
        self._correlation_id += 1
        try:
            async with asyncio.timeout(self._upstream.timeout):
                self._transport.write(encode_request(self._correlation_id, CLIENT_ID, body))
                size = await self._reader.readexactly(4)
                (length,) = INT32.unpack(size)
                if not 4 <= length <= MAX_RESPONSE:
                    raise BrokerError(f"{self._address} does not speak the Kafka protocol, or wants TLS")
                return size + await self._reader.readexactly(length)
        except TimeoutError:
            raise BrokerError(f"{self._address} does not answer within {self._upstream.timeout:g} s") from None
        except asyncio.IncompleteReadError:
            raise ConnectionError from None
        except ConnectionError:
            raise
        except OSError as e:
            raise BrokerError(f"the connection to {self._address} broke: {explain(e)}") from None


def _exchange(identity: UpstreamSasl) -> tuple[Exchange, str, str]:
    """The login, who it is for people, and the secret that must not be shown."""
    if identity.token_file is not None:
        token = _secret("upstream.sasl.token_file", identity.token_file)
        return bearer(token), f"the token in {identity.token_file} by OAUTHBEARER", token
    assert identity.username is not None
    if identity.password_file is not None:
        password = _secret("upstream.sasl.password_file", identity.password_file)
    else:
        assert identity.password is not None
        password = identity.password.get_secret_value()
    who = f"user {identity.username} by {identity.mechanism}"
    if identity.mechanism == "PLAIN":
        return plain(identity.username, password), who, password
    return scram(identity.mechanism, identity.username, password), who, password


def _secret(setting: str, file: str) -> str:
    """What the file holds, without a line end."""
    try:
        text = Path(file).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as e:
        raise BrokerError(f"`{setting}`: {file} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise BrokerError(f"`{setting}`: {file} is not UTF-8 text") from None
    if not text or not text.isprintable():
        raise BrokerError(f"`{setting}`: {file} has to hold one line of text")
    return text
