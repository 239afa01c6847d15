"""The proxy's own requests to a broker: few, small, one at a time. In: an address and the way there. Out: API ranges, brokers;
or `BrokerError` with a reason for people.

With an identity it logs in first (KIP-43, KIP-152). Passwords and tokens are read from their files for each login, and are in
no message."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kio.index import load_request_schema

from proxy.config.units import HostPort
from proxy.config.upstream import UpstreamSasl
from proxy.identity.login import Exchange, LoginError, bearer, plain, scram, step
from proxy.tls import explain
from proxy.upstream.connector import BrokerError, Upstream
from proxy.wire.api_versions import read_ranges
from proxy.wire.headers import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from proxy.wire.kio_bridge import decode_response, encode_request, parts_of
from proxy.wire.log_dirs import KEY as LOG_DIRS
from proxy.wire.log_dirs import VERSIONS as LOG_DIRS_VERSIONS
from proxy.wire.log_dirs import ask_log_dirs
from proxy.wire.metadata import ASK_VERSION, Broker, Topic, read_brokers, read_topics
from proxy.wire.metadata import KEY as METADATA
from proxy.wire.metadata import ask as ask_of_topics
from proxy.wire.primitives import INT32, BadBytes

__all__ = ["BrokerClient", "BrokerError"]

CLIENT_ID: Final = "kafka-quota-proxy"
MAX_RESPONSE: Final = 64 << 20
_METADATA_VERSIONS: Final = (1, 12)
_DESCRIBE_CONFIGS: Final = 32
_DESCRIBE_CLUSTER: Final = 60
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

    async def active_brokers(self) -> list[Broker]:
        """The brokers that the cluster names and does not call fenced (KIP-700, KIP-1073). `BrokerError.too_old` before Kafka
        2.8."""
        low, high = (await self.api_ranges()).get(_DESCRIBE_CLUSTER, (0, -1))
        version = min(high, 2)
        if version < low:
            raise BrokerError(f"{self._address} does not speak DescribeCluster, Kafka 2.8 and up do", too_old=True)
        schema: Any = load_request_schema(_DESCRIBE_CLUSTER, version)
        flags = {field.name: False for field in fields(schema) if field.name != "endpoint_type"}
        try:
            answer = decode_response(_DESCRIBE_CLUSTER, version, await self._ask(schema(**flags)))
        except ConnectionError:
            raise BrokerError(
                f"{self._address} closes the connection when asked for its cluster: it wants authentication", refused=True
            ) from None
        except BadBytes as e:
            raise self._not_understood(e) from None
        if answer.error_code:
            raise BrokerError(f"{self._address} does not tell its brokers: {answer.error_message or answer.error_code.name}")
        return [Broker(int(it.broker_id), it.host, int(it.port)) for it in answer.brokers if not getattr(it, "is_fenced", False)]

    async def log_dirs(self, topics: Mapping[str, int] | None) -> tuple[bytes, int]:
        """(response frame, its version) of DescribeLogDirs, with the replicas of these topics, by their numbers of partitions; of
        all where that is None. `BrokerError.too_old` for a broker that cannot tell sizes of file systems."""
        low, high = (await self.api_ranges()).get(LOG_DIRS, (0, -1))
        version = min(high, LOG_DIRS_VERSIONS[1])
        if version < max(low, LOG_DIRS_VERSIONS[0]):
            raise BrokerError(
                f"{self._address} speaks DescribeLogDirs {low} to {high}; sizes of volumes are told from version"
                f" {LOG_DIRS_VERSIONS[0]} on (KIP-827, Kafka 3.3)",
                too_old=True,
            )
        return await self._ask(ask_log_dirs(version, topics)), version

    async def topic(self, name: str) -> Topic | None:
        """A topic; None when it is not there, or may not be seen. It is not created by being asked for."""
        self._correlation_id += 1
        try:
            answer = await self._send(ask_of_topics(self._correlation_id, CLIENT_ID, [name], []))
            return next((found for found in read_topics(answer, ASK_VERSION) if found.partitions), None)
        except ConnectionError:
            raise BrokerError(f"{self._address} closes the connection when asked for topics") from None
        except BadBytes as e:
            raise self._not_understood(e) from None

    async def default_partitions(self, node_id: int) -> int | None:
        """What a topic gets that does not say (num.partitions of this broker, whose id that is); None when the broker does not
        tell: this needs the right DescribeConfigs on the cluster."""
        low, high = (await self.api_ranges()).get(_DESCRIBE_CONFIGS, (0, -1))
        version = min(high, 4)
        if version < max(low, 1):
            return None
        schema = load_request_schema(_DESCRIBE_CONFIGS, version)
        resource = parts_of(schema).DescribeConfigsResource
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
                message = answer.error_message or f"error {int(answer.error_code)}"
                raise BrokerError(f"{self._address} refuses the login of {who}" + ("" if secret in message else f": {message}"))
            answer_token = answer.auth_bytes

    def _not_understood(self, error: BadBytes) -> BrokerError:
        return BrokerError(f"the answer of {self._address} cannot be understood: {error}")

    async def _ask(self, body: Any) -> bytes:
        """The response frame to one request."""
        self._correlation_id += 1
        return await self._send(encode_request(self._correlation_id, CLIENT_ID, body))

    async def _send(self, request: bytes) -> bytes:
        """The response frame to a request frame. ConnectionError when the broker closes the connection instead."""
        try:
            async with asyncio.timeout(self._upstream.timeout):
                self._transport.write(request)
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
    secret = secret_of(identity)
    if identity.token_file is not None:
        return bearer(secret), f"the token in {identity.token_file} by OAUTHBEARER", secret
    assert identity.username is not None
    who = f"user {identity.username} by {identity.mechanism}"
    if identity.mechanism == "PLAIN":
        return plain(identity.username, secret), who, secret
    return scram(identity.mechanism, identity.username, secret), who, secret


def secret_of(identity: UpstreamSasl) -> str:
    """The password or the token of an identity as it is now; `BrokerError` when its file is of no use."""
    if identity.token_file is not None:
        return secret_in("upstream.sasl.token_file", identity.token_file)
    if identity.password_file is not None:
        return secret_in("upstream.sasl.password_file", identity.password_file)
    assert identity.password is not None
    return identity.password.get_secret_value()


def secret_in(setting: str, file: str) -> str:
    """The secret that a file of a setting holds, without a line end; `BrokerError` when it is of no use."""
    try:
        text = Path(file).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as e:
        raise BrokerError(f"`{setting}`: {file} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise BrokerError(f"`{setting}`: {file} is not UTF-8 text") from None
    if not text or not text.isprintable():
        raise BrokerError(f"`{setting}`: {file} has to hold one line of text")
    return text
