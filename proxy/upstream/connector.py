"""How brokers are reached: TLS or not, within which time, and as whom the proxy asks them itself.

In: addresses. Out: connections, or `BrokerError` with a reason for people. Connections of clients take the same way and log in
by themselves; the identity is for `broker_client`."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from proxy.config.units import HostPort
from proxy.config.upstream import UpstreamSasl
from proxy.tls import explain
from proxy.transport import StreamProtocol, connect

Protocol = TypeVar("Protocol", bound=StreamProtocol)


class BrokerError(Exception):
    """The broker cannot be asked; the message says why. `refused`: it answered, but wants authentication first. `too_old`: it
    does not know what it is asked."""

    def __init__(self, reason: str, *, refused: bool = False, too_old: bool = False) -> None:
        super().__init__(reason)
        self.refused, self.too_old = refused, too_old


class TopicError(Exception):
    """A topic of the proxy's own cannot be used; the message says why. `denied`: its identity lacks a right."""

    def __init__(self, reason: str, *, denied: bool = False) -> None:
        super().__init__(reason)
        self.denied = denied


def no_tls() -> ssl.SSLContext | None:
    """The context of brokers that are reached in plain text."""
    return None


@dataclass(frozen=True)
class Upstream:
    """`timeout` in seconds: for a connection to come up, TLS included. `context` is asked for every connection, so that new
    certificates hold from the next one on; None is plain text. `identity`: None when the proxy has none of its own."""

    timeout: float
    context: Callable[[], ssl.SSLContext | None] = no_tls
    identity: UpstreamSasl | None = None

    async def connect(self, factory: Callable[[], Protocol], address: HostPort) -> tuple[asyncio.Transport, Protocol]:
        """A connection to a broker. Its certificate has to name the host of `address`, unless the context says otherwise."""
        context = self.context()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.timeout):
                if context is None:
                    return await connect(factory, address.host, address.port)
                secure: dict[str, Any] = {"ssl": context, "server_hostname": address.host}
                made = cast(Callable[[], asyncio.Protocol], factory)
                return cast(
                    tuple[asyncio.Transport, Protocol],
                    await loop.create_connection(made, address.host, address.port, **secure),
                )
        except TimeoutError:
            raise BrokerError(f"no connection to {address} within {self.timeout:g} s") from None
        except OSError as e:
            by = "" if context is None else " by TLS"
            raise BrokerError(f"no connection to {address}{by}: {explain(e, handshake=bool(by))}") from None
