"""Listening sockets and who comes to them. In: the settings of the listeners. Out: client connections that may come in.

A socket is bound and listening at once, without a wait, so that a broker's port is open before the first client is told
of it; the kernel keeps early comers. A client is counted as soon as it is accepted, says where it is from (PROXY protocol) and
shakes hands (TLS) before it gets a session."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import uniform
from typing import Final, cast

from proxy.clients.connection import ClientConnection, Shared
from proxy.cluster.brokers import Brokers
from proxy.cluster.routes import NameRoute, PortRoute, Route
from proxy.config.broker_ports import REMEDY
from proxy.config.listeners import Listener
from proxy.config.units import HostPort
from proxy.identity.certificates import NoPrincipal, Rules, distinguished_name, parse_rules
from proxy.observe.operations import Log
from proxy.session.budget import ANONYMOUS, UNLOCATED, Guest
from proxy.session.port import Peer
from proxy.session.requester import NO_API, Requester
from proxy.supervise import tell_end
from proxy.tls import explain, server_name_of
from proxy.transport import TcpTransport
from proxy.wire.primitives import BadBytes
from proxy.wire.proxy_protocol import FIRST, header_size, source_address

BACKLOG: Final = 1024
UNSENT: Final = 1 << 18
"""Bytes that the kernel takes of a connection beyond what is on its way; it would take 4 MiB for a client that reads nothing, and
brokers would be asked for as much."""
_NOTSENT_LOWAT: Final = 25
"""TCP_NOTSENT_LOWAT of Linux, which Python names from 3.12 on."""
MAX_REFUSED: Final = 500
"""Connections of a listener that wait for their end, as their addresses have opened too many; further ones are closed at once."""
LIFETIME: Final = (0.9, 1.1)
"""What parts of `limits.max_connection_age` connections get."""
PAUSE: Final = 1.0
"""Seconds without accepting when that failed, as when file descriptors have run out."""


class ClientListener:
    """One listener, whose clients are led to `brokers`. `tls` gives the context in force, None for plain text."""

    def __init__(
        self,
        name: str,
        settings: Listener,
        reserved: frozenset[int],
        shared: Shared,
        brokers: Brokers,
        tls: Callable[[], ssl.SSLContext | None],
        log: Log,
    ) -> None:
        self.name, self.settings = name, settings
        self.shared, self._tls, self._log = shared, tls, log
        self.rules: Rules = parse_rules(settings.tls.principal_mapping_rules if settings.tls else "DEFAULT")
        self.brokers = brokers
        self.route: Route = self._make_route(reserved)
        brokers.lead_by(self.route)
        self.port = 0
        """Where clients bootstrap."""
        self._sockets: dict[int | None, list[socket.socket]] = {}
        self._welcomes: set[asyncio.Task[None]] = set()
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        """connections that came too soon, until they are closed"""
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def open(self) -> None:
        """Listen for clients that bootstrap; OSError when the address cannot be had."""
        self.port = self._open(None, self.settings.bootstrap.port)
        self.route.bootstrap_port = self.settings.advertise_port or self.port

    def close(self) -> None:
        """Listen no longer. Connections stay, and who has come already comes in."""
        self._closed = True
        for key in list(self._sockets):
            self._close(key)

    @property
    def welcoming(self) -> int:
        """Clients that came and are not in yet."""
        return len(self._welcomes)

    def abandon(self) -> None:
        """Those that are not in yet end."""
        for task in self._welcomes:
            task.cancel()
        for conn, timer in list(self._refused.items()):
            timer.cancel()
            self._end_refused(conn)

    # ------------------------------------------------------------------ sockets

    def _make_route(self, reserved: frozenset[int]) -> Route:
        listen = self.settings
        if listen.routing == "sni":
            assert listen.advertise is not None
            return NameRoute(listen.advertise, listen.broker_name)
        return PortRoute(listen.advertise, listen.port_map(reserved), self._open_for_broker, self._close, self._no_port)

    def _open(self, key: int | None, port: int) -> int:
        host = self.settings.bootstrap.host
        sockets = listen_at(host, port, reuse_port=self.settings.reuse_port)
        self._sockets[key] = sockets
        self._tell_ports()
        for sock in sockets:
            self._loop.add_reader(sock, self._accept_some, sock, key)
        return int(sockets[0].getsockname()[1])

    def _open_for_broker(self, node_id: int, port: int) -> int | None:
        """A port for a broker; one that cannot be had is tried again when brokers are next learnt."""
        return None if self._closed else self._open(node_id, port)

    def _no_port(self, node_id: int, reason: str) -> None:
        self._log.error("no port for a broker", listener=self.name, broker=node_id, reason=reason, detail=REMEDY)

    def _close(self, key: int | None) -> None:
        """Who waits in the kernel is taken first: closing the socket would reset these connections."""
        sockets = self._sockets.pop(key, ())
        self._tell_ports()
        for sock in sockets:
            self._loop.remove_reader(sock)
            with contextlib.suppress(OSError):
                while self._accept(sock, key):
                    pass
            sock.close()

    def _accept_some(self, sock: socket.socket, node_id: int | None) -> None:
        """Accept as many connections as fit into a turn."""
        turns = self.shared.turns
        turns.begin()
        while self._accept(sock, node_id) and not turns.over():
            pass

    def _accept(self, sock: socket.socket, node_id: int | None) -> bool:
        """Accept a connection; whether there may be more."""
        try:
            conn, address = sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False
        except OSError as e:
            self._log.error("cannot accept connections", listener=self.name, reason=e.strerror, detail=f"again in {PAUSE:g} s")
            self._loop.remove_reader(sock)
            self._loop.call_later(PAUSE, self._accept_again, sock, node_id)
            return False
        conn.setblocking(False)
        handover = self.shared.handover
        if handover is None or not handover.give(conn, self.name, node_id):
            self._take(conn, _plain(address), node_id)
        return True

    def _tell_ports(self) -> None:
        if self.shared.handover is not None:
            self.shared.handover.listening(self.name, [key for key in self._sockets if key is not None])

    def take(self, conn: socket.socket, node_id: int | None) -> None:
        """Take a connection that another worker has accepted."""
        try:
            address = conn.getpeername()
        except OSError:  # it has ended meanwhile
            conn.close()
            return
        conn.setblocking(False)
        self._take(conn, _plain(address), node_id)

    def _take(self, conn: socket.socket, address: HostPort, node_id: int | None) -> None:
        """Count a connection that was accepted, and let it in if there is room. The address of a load balancer is no client's."""
        services = self.shared.services
        if not self.settings.proxy_protocol and (delay := self._too_soon(address)) is not None:
            self._refuse(conn, delay)
            return
        arrived = ArrivedClient(self, address, node_id, conn)
        guest = services.census.arrive(UNLOCATED if self.settings.proxy_protocol else address.host, arrived.evict)
        if isinstance(guest, str):
            conn.close()
            services.watcher.limited(guest, str(address), None, f"User:{ANONYMOUS}", closed=True)
            return
        arrived.guest = guest
        self.shared.tell_count()
        task = self._loop.create_task(self._welcome(conn, arrived, self._loop.time()), name="welcome")
        arrived.welcome = task
        self._welcomes.add(task)
        task.add_done_callback(arrived.welcomed)
        task.add_done_callback(self._welcomes.discard)
        task.add_done_callback(tell_end)

    def _too_soon(self, address: HostPort) -> float | None:
        """Seconds after which a connection is to be closed, as its address has opened too many lately (KIP-612); None if it may
        stay."""
        services = self.shared.services
        decision = services.engine.arrive(address.host, self._loop.time())
        would = services.engine.would
        if decision is None and not would:
            return None
        by = Requester(f"User:{ANONYMOUS}", None, str(address), NO_API, 0)
        for one in would:
            services.watcher.would_have(one, by)
        would.clear()
        if decision is None:
            return None
        services.watcher.decided(decision, by)
        return decision.throttle

    def _refuse(self, conn: socket.socket, delay: float) -> None:
        """Close a connection after a delay, so that its client does not come again at once; at once if too many wait."""
        if len(self._refused) >= MAX_REFUSED:
            conn.close()
        else:
            self._refused[conn] = self._loop.call_later(delay, self._end_refused, conn)

    def _end_refused(self, conn: socket.socket) -> None:
        del self._refused[conn]
        conn.close()

    def _accept_again(self, sock: socket.socket, node_id: int | None) -> None:
        if sock in self._sockets.get(node_id, ()):
            self._loop.add_reader(sock, self._accept_some, sock, node_id)

    # ------------------------------------------------------------------ clients

    async def _welcome(self, conn: socket.socket, arrived: ArrivedClient, came: float) -> None:
        """Let a client in that is counted: where it is from, TLS. Whatever fails ends this connection only."""
        services = self.shared.services
        watcher, timeout = services.watcher, services.bounds.first_request_timeout
        connection = ClientConnection(self.shared, arrived, came)
        try:
            if self.settings.proxy_protocol:
                async with asyncio.timeout(timeout):
                    arrived.address = await self._source(conn, arrived.address)
                if not await self._may_stay(arrived):
                    return
            arrived.conn = None
            await self._begin(conn, connection)
        except asyncio.CancelledError:
            if arrived.transport is not None:
                connection.cut_off()
            raise
        except (TimeoutError, ConnectionAbortedError):  # the latter is a TLS handshake that takes too long
            watcher.limited("first_request_timeout", str(arrived.address), None, f"User:{ANONYMOUS}", closed=True)
        except ConnectionResetError:
            pass  # it came and went, as health checks do
        except BadBytes as e:
            watcher.client_failed(str(arrived.address), None, str(e))
        except OSError as e:  # errors of TLS among them
            if self.settings.tls is not None:
                watcher.client_failed(str(arrived.address), None, f"no TLS connection: {explain(e)}")

    async def _begin(self, conn: socket.socket, connection: ClientConnection) -> None:
        """Give the socket to a transport, which tells the connection."""
        context, timeout = self._tls(), self.shared.services.bounds.first_request_timeout
        if context is None:
            TcpTransport(self._loop, conn, connection).start()
        else:
            protocol = cast(asyncio.Protocol, connection)
            await self._loop.connect_accepted_socket(lambda: protocol, conn, ssl=context, ssl_handshake_timeout=timeout)

    async def _may_stay(self, arrived: ArrivedClient) -> bool:
        """It is known by now from which address it is: whether it may stay. This takes a while if it has come too soon."""
        if (delay := self._too_soon(arrived.address)) is not None:
            await asyncio.sleep(delay)
            return False
        limit = arrived.located()
        if limit is not None:
            self.shared.services.watcher.limited(limit, str(arrived.address), None, f"User:{ANONYMOUS}", closed=True)
        return limit is None

    async def _source(self, conn: socket.socket, address: HostPort) -> HostPort:
        """The address that a PROXY protocol header names; the connection's own when it names none. `BadBytes` for others."""
        header = await self._read(conn, FIRST)
        header += await self._read(conn, header_size(header) - len(header))
        source = source_address(header)
        return address if source is None else _plain(source)

    async def _read(self, conn: socket.socket, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = await self._loop.sock_recv(conn, size - len(data))
            if not part and not data and size == FIRST:
                raise ConnectionResetError
            if not part:
                raise BadBytes("the connection ended within its PROXY protocol header")
            data += part
        return data


@dataclass(slots=True)
class ArrivedClient:
    """A client at a listener, as its connection sees it (`connection.Arrival`)."""

    listener: ClientListener
    address: HostPort
    node_id: int | None
    conn: socket.socket | None
    """its socket, until a transport has it and closes it"""
    welcome: asyncio.Task[None] | None = None
    """who lets it in"""
    guest: Guest | None = None
    """how it is counted"""
    transport: asyncio.BaseTransport | None = None
    """of its socket, once it is in"""

    def peer(self, transport: asyncio.BaseTransport) -> Peer:
        self.transport, self.welcome = transport, None
        here = _plain(transport.get_extra_info("sockname") or ("", 0)).host
        endpoint = partial(self.listener.route.endpoint, reached_at=here)
        return Peer(str(self.address), endpoint, self.guest, self.broker(transport), uniform(*LIFETIME))

    def welcomed(self, _: asyncio.Task[None]) -> None:
        """Who let it in has ended, or was cancelled before it began: then nothing of it has run, so this is no part of it."""
        self.welcome = None  # its task refers to it
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.close()
        if self.transport is None:
            self.left()

    def located(self) -> str | None:
        """Where it is from is known by now: the limit that it is over, None without one."""
        assert self.guest is not None
        return self.listener.shared.services.census.move(self.guest, self.address.host)

    def evict(self) -> None:
        """It was not let in yet, and its place is wanted: the end."""
        watcher = self.listener.shared.services.watcher
        watcher.limited("max_connections", str(self.address), None, f"User:{ANONYMOUS}", closed=True)
        if self.transport is not None:
            transport = cast(asyncio.Transport, self.transport)
            cast(ClientConnection, transport.get_protocol()).session.end()
            transport.abort()
        elif self.welcome is not None:
            self.welcome.cancel()

    def broker(self, transport: asyncio.BaseTransport) -> int | None:
        """The broker whose address it came to; None for the bootstrap address."""
        route = self.listener.route
        if isinstance(route, NameRoute):
            return route.node_of(server_name_of(transport.get_extra_info("ssl_object")))
        return self.node_id

    def targets(self, transport: asyncio.BaseTransport) -> list[HostPort]:
        node_id = self.broker(transport)
        brokers = self.listener.brokers
        return brokers.bootstrap_addresses() if node_id is None else brokers.broker_addresses(node_id)

    def left(self) -> None:
        guest, self.transport, self.guest = self.guest, None, None  # a guest refers to it
        if guest is not None:
            self.listener.shared.services.census.leave(guest)
            self.listener.shared.tell_count()

    def user(self, transport: asyncio.BaseTransport) -> str | None:
        """The user in the client's certificate, None without a certificate; `BadBytes` if the certificate has no user."""
        ssl_object = transport.get_extra_info("ssl_object")
        certificate = None if ssl_object is None else ssl_object.getpeercert(binary_form=True)
        if certificate is None:
            return None
        name = distinguished_name(certificate)
        try:
            return self.listener.rules.user(name)
        except NoPrincipal:
            raise BadBytes(f"no rule of `principal_mapping_rules` applies to its certificate {name!r}") from None


def listen_at(host: str, port: int, *, reuse_port: bool) -> list[socket.socket]:
    """One socket for every address of the host, all at the same port; OSError when one cannot be had."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, proto, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, proto)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":
                sock.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, UNSENT)
            sock.setblocking(False)
            at = sockets[0].getsockname()[1] if len(sockets) > 1 else port
            try:
                sock.bind((address[0], at, *address[2:]))
            except OSError as e:
                if e.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT) or len(found) == 1:
                    raise
                sockets.remove(sock)  # a name with an address that this machine does not have, such as ::1
                sock.close()
                continue
            sock.listen(BACKLOG)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, "none of its addresses is one of this machine")
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _plain(address: tuple[str, int] | tuple[str, int, int, int]) -> HostPort:
    """An address as people write it: IPv4 as such, also where an IPv6 socket took it."""
    host = str(address[0])
    return HostPort(host.removeprefix("::ffff:") if "." in host else host, int(address[1]))
