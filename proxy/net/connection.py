"""One client's two sockets, as the `Port` of its session.

In: what uvloop reports. Out: calls on the session, and its bytes on the sockets. Reading from one side stops while the
other side does not take what was written, so a connection holds one read, one request and one write buffer at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, cast

from proxy.config.units import HostPort
from proxy.session.plans import Handler
from proxy.session.port import Services
from proxy.session.session import Session, State
from proxy.wire.primitives import Buffer

HIGH_WATER: Final = 1 << 20
LOW_WATER: Final = 1 << 18
LINGER: Final = 10.0
"""Seconds that a closed connection may take to deliver what was written to it."""


@dataclass(slots=True)
class Shared:
    """What all connections of a proxy share. `connect_timeout` in seconds."""

    services: Services
    handlers: dict[int, Handler]
    connect_timeout: float
    connections: set[ClientConnection] = field(default_factory=set)


class ClientConnection(asyncio.Protocol):
    """The client's side. `targets` says where its broker may be, the best
    place first; nowhere when it has left the cluster."""

    def __init__(self, shared: Shared, targets: Callable[[], list[HostPort]]) -> None:
        self._shared, self._targets = shared, targets
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._broker: BrokerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False  # the session wants nothing more for now
        self._broker_full = False  # the broker does not take what was written

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        address = HostPort(*(transport.get_extra_info("peername") or ("?", 0))[:2])
        here = (transport.get_extra_info("sockname") or ("",))[0]
        self.session = Session(self._shared.services, self._shared.handlers, self, str(address), here)
        self._shared.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self.session.client_bytes(data, self._now())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.session.client_lost()
        self._shared.connections.discard(self)

    def pause_writing(self) -> None:
        if self._broker is not None:
            self._broker.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._broker is not None:
            self._broker.transport.resume_reading()

    @property
    def muted(self) -> bool:
        """Is the client kept waiting by a quota?"""
        return self.session.state in (State.MUTED, State.HELD, State.AWAITING)

    # ------------------------------------------------------------------ Port

    def to_client(self, chunks: list[Buffer]) -> None:
        if len(chunks) == 1:
            self.transport.write(chunks[0])
        else:
            self.transport.writelines(chunks)

    def to_broker(self, chunks: list[Buffer]) -> None:
        assert self._broker is not None
        if len(chunks) == 1:
            self._broker.transport.write(chunks[0])
        else:
            self._broker.transport.writelines(chunks)

    def connect(self) -> None:
        self._connecting = self._loop.create_task(self._connect())

    def stop_reading(self) -> None:
        self._stopped = True
        self._read_or_not()

    def resume_reading(self) -> None:
        self._stopped = False
        self._read_or_not()

    def wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._wake)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._broker is not None:
            self._broker.transport.close()
        if not self.transport.is_closing():
            self.transport.close()
            self._loop.call_later(LINGER, self.transport.abort)

    # ------------------------------------------------------------------ the broker's side

    def broker_connected(self, broker: BrokerConnection) -> None:
        self._broker = broker
        self.session.broker_connected(self._now())

    def broker_full(self, full: bool) -> None:
        self._broker_full = full
        self._read_or_not()

    def _read_or_not(self) -> None:
        if self.transport.is_closing():
            return
        if self._stopped or self._broker_full:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _wake(self) -> None:
        self._timer = None
        self.session.wake(self._now())

    async def _connect(self) -> None:
        reasons = []
        for target in self._targets():
            try:
                async with asyncio.timeout(self._shared.connect_timeout):
                    await self._loop.create_connection(lambda: BrokerConnection(self), target.host, target.port)
            except TimeoutError:
                reasons.append(f"no connection to {target} within {self._shared.connect_timeout:g} s")
            except OSError as e:
                reasons.append(f"no connection to {target}: {e.strerror or e}")
            else:
                return
        self.session.broker_lost("; ".join(reasons) or "the broker has left the cluster")


class BrokerConnection(asyncio.Protocol):
    """The broker's side of one client's connection."""

    def __init__(self, client: ClientConnection) -> None:
        self._client = client
        self._session = client.session
        self._now = asyncio.get_running_loop().time

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(HIGH_WATER, LOW_WATER)
        if self._session.state is State.CLOSED:
            self.transport.close()
        else:
            self._client.broker_connected(self)

    def data_received(self, data: bytes) -> None:
        self._session.broker_bytes(data, self._now())

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.broker_lost(None if exc is None else f"lost: {exc}")

    def pause_writing(self) -> None:
        self._client.broker_full(True)

    def resume_writing(self) -> None:
        self._client.broker_full(False)
