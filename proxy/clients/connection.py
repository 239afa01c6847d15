"""One client's two sockets, as the `Port` of its session.

In: what uvloop reports. Out: calls on the session, and its bytes on the sockets. Reading from one side stops while the
other side does not take what was written, so a connection holds one read, one request and two write buffers at most."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from proxy.clients.handover import Handover
from proxy.clients.turns import Turns
from proxy.config.units import HostPort
from proxy.session.budget import STRANGERS
from proxy.session.plans import Handlers
from proxy.session.port import Peer, Services
from proxy.session.session import Session, State
from proxy.supervise import tell_end
from proxy.transport import StreamProtocol, TcpTransport
from proxy.upstream.connector import BrokerError
from proxy.wire.primitives import BadBytes, Buffer

LINGER: Final = 10.0
"""Seconds in which the other end of a closed connection has to take something of what was written to it."""
LEAST_WATER: Final = 1 << 16
"""Bytes that may wait for one side however many connections there are."""
FAREWELL: Final = 2.0
"""Seconds that a client has to close its side when the proxy stops and all is written."""

Connect = Callable[[Callable[[], StreamProtocol], HostPort], Coroutine[Any, Any, object]]
"""Opens a connection to a broker, or raises `BrokerError`."""


@dataclass(slots=True)
class Shared:
    """What all connections of a proxy share."""

    services: Services
    handlers: Handlers
    connect: Connect
    turns: Turns
    connections: set[ClientConnection] = field(default_factory=set)
    draining: bool = False
    """The proxy stops."""
    handover: Handover | None = None
    """to other workers of this machine, if there are any"""

    def tell_count(self) -> None:
        """Others are to know how many connections there are."""
        if self.handover is not None:
            self.handover.count(self.services.census.count)

    @property
    def high_water(self) -> int:
        """Bytes that may wait for one side before the other is read no more: less where many connections share the memory, so
        that all of them together do not take more than half of it. A power of two, so that it seldom changes."""
        budget = self.services.budget
        fair = budget.total // (4 * budget.workers * (len(self.connections) + 1))
        limit = min(self.services.bounds.max_held_response // 4, fair)
        return max(1 << limit.bit_length() - 1, LEAST_WATER) if limit else LEAST_WATER


class Arrival(Protocol):
    """A client that came to a listener."""

    def broker(self, transport: asyncio.BaseTransport) -> int | None:
        """The broker that it wants; None where any will do."""

    def peer(self, transport: asyncio.BaseTransport) -> Peer:
        """Where it is from, and what it is to be shown."""

    def user(self, transport: asyncio.BaseTransport) -> str | None:
        """The user in its certificate, None without a certificate; `BadBytes` if the certificate has no user."""

    def targets(self, transport: asyncio.BaseTransport) -> list[HostPort]:
        """Where its broker may be, the best place first; nowhere when it has left the cluster."""

    def left(self) -> None:
        """The connection is no more."""


class ClientConnection:
    """The client's side. `came`: when it was accepted, in the loop's time."""

    def __init__(self, shared: Shared, arrival: Arrival, came: float) -> None:
        self._shared, self._arrival, self._came = shared, arrival, came
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._broker: BrokerConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False  # the session wants nothing more from the client for now
        self._broker_stopped = False  # nor from the broker
        self._broker_full = False  # the broker does not take what was written
        self._client_full = False  # nor the client
        self._unsent = 0  # bytes charged for what the client does not take
        self._broker_unsent = 0
        self._payer = STRANGERS  # who is charged for them
        self._ended = False  # the client sends nothing more
        self._lost = False
        self.target: HostPort | None = None
        """Where its broker was found."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._tls = transport.get_extra_info("ssl_object") is not None
        _set_water(self.transport, self._shared.high_water)
        peer = self._arrival.peer(transport)
        self.session = Session(self._shared.services, self._shared.handlers, self, peer, self._came)
        self._shared.connections.add(self)
        try:
            user = self._arrival.user(transport)
        except BadBytes as e:
            self.session.refuse(str(e))
        else:
            if user is not None:
                self.session.client.identify(user)
        if self._shared.draining:
            self.session.drain()

    def data_received(self, data: bytes) -> None:
        self.session.client_bytes(data, self._shared.turns.begin())

    def eof_received(self) -> bool:
        """A client may close its half and still read; TLS knows no such thing."""
        self._ended = True
        self.session.client_ended()
        return not self._tls and self.session.state is not State.CLOSED

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._lost = self._ended = True
        self._client_full = False  # what it sent may wait for answers, which are read now and forgotten
        self._charge_client(0)
        self.session.client_lost()
        self._read_broker_or_not()
        self._leave()

    def cut_off(self) -> None:
        """The task that opened it was cancelled just when the connection was made. The event loop then closes the transport and
        does not call `connection_lost`, so this does."""
        self.transport.abort()
        self.connection_lost(None)

    def pause_writing(self) -> None:
        self._client_full = True
        self._charge_client(self.transport.get_write_buffer_size())
        self._read_broker_or_not()
        self._read_or_not()
        self.session.client_full()

    def resume_writing(self) -> None:
        self._client_full = False
        self._charge_client(0)
        self._read_broker_or_not()
        self._read_or_not()
        now = self._shared.turns.begin()
        with self._closing_at_errors():
            self.session.client_drained(now)

    @contextmanager
    def _closing_at_errors(self) -> Iterator[None]:
        """A mistake of the program ends this connection, as the event loop does where it calls; the loop's handler tells of it."""
        try:
            yield
        except Exception:
            self.transport.abort()
            raise

    @property
    def turns(self) -> Turns:
        return self._shared.turns

    @property
    def muted(self) -> bool:
        """True while a quota keeps the client waiting."""
        return self.session.state in (State.MUTED, State.HELD, State.AWAITING)

    @property
    def age(self) -> float:
        """Seconds since it was accepted."""
        return self._now() - self._came

    @property
    def node_id(self) -> int | None:
        """The broker that the client came for; None at the bootstrap address."""
        return self._arrival.broker(self.transport)

    @property
    def broker(self) -> str:
        """The address of the broker that it is connected to, empty while it is to none."""
        peer = None if self._broker is None else self._broker.transport.get_extra_info("peername")
        return "" if peer is None else str(HostPort(*peer[:2]))

    # ------------------------------------------------------------------ Port

    @property
    def reading(self) -> bool:
        return not (self._stopped or self._broker_full or self._client_full)

    def to_client(self, chunks: list[Buffer]) -> None:
        _write(self.transport, chunks)

    def to_broker(self, chunks: list[Buffer]) -> None:
        assert self._broker is not None
        _write(self._broker.transport, chunks)

    def connect(self) -> None:
        self._connecting = self._loop.create_task(self._connect(), name="connect to a broker")
        self._connecting.add_done_callback(tell_end)

    def stop_reading(self) -> None:
        self._stopped = True
        self._read_or_not()

    def resume_reading(self) -> None:
        self._stopped = False
        self._read_or_not()

    def stop_broker(self) -> None:
        self._broker_stopped = True
        self._read_broker_or_not()

    def resume_broker(self) -> None:
        self._broker_stopped = False
        self._read_broker_or_not()

    def wake_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._wake)

    def turn_over(self) -> bool:
        return self._shared.turns.over()

    def next_turn(self) -> None:
        self._shared.turns.wait(self)

    def turn(self) -> None:
        with self._closing_at_errors():
            self.session.turn(self._now())

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None and self._broker is None:  # else uvloop would close it without a word to its protocol
            self._connecting.cancel()
        self._charge_client(0)
        self._charge_broker(0)
        if self._broker is not None:
            self._broker.transport.close()
            _linger(self._broker.transport)
        if not self.transport.is_closing():
            if self.session.draining and not self._ended and self.transport.can_write_eof():
                self._say_farewell()
            else:
                self.transport.close()
                _linger(self.transport)
        self._leave()

    def _say_farewell(self) -> None:
        """Close in peace. A socket that is closed while something is unread resets the connection, and the last answer may be
        lost with it; so the client closes first, and what it still sends is read and forgotten."""
        self.transport.write_eof()
        self.transport.resume_reading()
        self._loop.call_later(LINGER if self.transport.get_write_buffer_size() else FAREWELL, self.transport.abort)

    def set_water(self, high: int) -> None:
        """So much may wait for either side."""
        _set_water(self.transport, high)
        if self._broker is not None:
            _set_water(self._broker.transport, high)

    # ------------------------------------------------------------------ the broker's side

    def broker_connected(self, broker: BrokerConnection) -> None:
        self._broker = broker
        self.session.broker_connected(self._shared.turns.begin())

    def broker_full(self, size: int) -> None:
        """The broker does not take what was written, `size` bytes by now; 0: it does again."""
        self._broker_full = size > 0
        self._charge_broker(size)
        self._read_or_not()
        if size:
            self.session.slow_side()

    def _read_or_not(self) -> None:
        if self._ended or self.transport.is_closing():
            return
        if not self.reading:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _read_broker_or_not(self) -> None:
        if self._broker is None or self._broker.transport.is_closing():
            return
        if self._broker_stopped or self._client_full:
            self._broker.transport.pause_reading()
        else:
            self._broker.transport.resume_reading()

    def _charge_client(self, size: int) -> None:
        self._charge(size, self._broker_unsent)

    def _charge_broker(self, size: int) -> None:
        self._charge(self._unsent, size)

    def _charge(self, unsent: int, broker_unsent: int) -> None:
        """Charge what neither side takes, to whom the connection belongs by now."""
        before, after, budget = self._unsent + self._broker_unsent, unsent + broker_unsent, self._shared.services.budget
        self._unsent, self._broker_unsent = unsent, broker_unsent
        if before == after:
            return
        payer = self.session.payer
        if before:
            budget.charge(self._payer, -before)
        self._payer = payer
        if after:
            budget.charge(payer, after)

    def _leave(self) -> None:
        """Both the session and the client's socket are at their end."""
        if self._lost and self.session.state is State.CLOSED and self in self._shared.connections:
            self._shared.connections.discard(self)
            self._arrival.left()
            self._broker = self._connecting = self._timer = None
            self.session.left()  # they refer to each other, and it takes long until the collector looks at what was long in use

    def _wake(self) -> None:
        self._timer = None
        now = self._shared.turns.begin()
        with self._closing_at_errors():
            self.session.wake(now)

    async def _connect(self) -> None:
        try:
            await self._try_targets()
        except Exception:
            self.session.broker_lost("an internal error of the proxy")
            raise  # `tell_end` says it

    async def _try_targets(self) -> None:
        session = self.session
        reasons = []
        for target in self._arrival.targets(self.transport):
            try:
                await self._shared.connect(lambda: BrokerConnection(self), target)
            except BrokerError as e:
                reasons.append(str(e))
            else:
                self.target = target
                return
        session.broker_lost("; ".join(reasons) or "the broker has left the cluster")


def _write(transport: object, chunks: list[Buffer]) -> None:
    """To one of our own transports it is a direct call."""
    if isinstance(transport, TcpTransport):
        transport.writelines(chunks)
    else:
        cast(asyncio.Transport, transport).writelines(chunks)


def _set_water(transport: asyncio.Transport, high: int) -> None:
    if not transport.is_closing():
        transport.set_write_buffer_limits(high, high // 4)


def _linger(transport: asyncio.Transport, before: int | None = None) -> None:
    """Let a closed transport deliver what was written to it, as long as the other end takes something now and then. `before`:
    bytes that waited the last time."""
    waiting = transport.get_write_buffer_size()
    if before is None and not waiting and transport.get_extra_info("ssl_object") is None:
        return  # it is closed at once; a timer would keep it in memory all the same
    if before is not None and (not waiting or waiting >= before):
        transport.abort()
    else:
        asyncio.get_running_loop().call_later(LINGER, _linger, transport, waiting)


class BrokerConnection:
    """The broker's side of one client's connection."""

    def __init__(self, client: ClientConnection) -> None:
        self._client = client
        self._session = client.session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        _set_water(self.transport, self._client._shared.high_water)
        if self._session.state is State.CLOSED:
            self.transport.close()
        else:
            self._client.broker_connected(self)

    def data_received(self, data: bytes) -> None:
        self._session.broker_bytes(data, self._client.turns.begin())

    def eof_received(self) -> bool:
        """A broker that closes its half has nothing more to say."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._session.broker_lost(None if exc is None else f"lost: {exc}")

    def pause_writing(self) -> None:
        self._client.broker_full(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._client.broker_full(0)
