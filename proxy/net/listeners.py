"""Listening sockets: the bootstrap port and one per broker. In: addresses. Out: client connections.

A socket is bound and listening at once, without a wait, so that a broker's port is open before the first client is told
of it; the kernel keeps early comers."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from proxy.config.units import HostPort
from proxy.net.connection import ClientConnection, Shared
from proxy.observe.operations import Log

BACKLOG = 1024


class Listeners:
    """All listening sockets of a proxy, on one host."""

    def __init__(self, host: str, shared: Shared, log: Log) -> None:
        self._host, self._shared, self._log = host, shared, log
        self._servers: dict[int | None, asyncio.Server | socket.socket] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._complained: set[int] = set()

    def open(self, key: int | None, port: int, targets: Callable[[], list[HostPort]]) -> int:
        """Listen for a broker (None: bootstrap) at `port` (0: any); the port it got. OSError when it cannot be had."""
        sock = _listen(self._host, port)
        self._servers[key] = sock
        task = asyncio.get_running_loop().create_task(self._serve(key, sock, targets))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return int(sock.getsockname()[1])

    def open_for_broker(self, node_id: int, port: int, targets: Callable[[], list[HostPort]]) -> int | None:
        """The same for a broker that turned up later: a port that cannot be had is logged once, and tried again when
        brokers are next learnt."""
        try:
            got = self.open(node_id, port, targets)
        except OSError as e:
            if node_id not in self._complained:
                self._complained.add(node_id)
                self._log.error("no port for a broker", broker=node_id, address=str(HostPort(self._host, port)), reason=e.strerror)
            return None
        self._complained.discard(node_id)
        return got

    def close(self, key: int | None) -> None:
        """Listen no longer; connections stay."""
        server = self._servers.pop(key, None)
        if server is not None:
            server.close()

    def close_all(self) -> None:
        for key in list(self._servers):
            self.close(key)

    async def _serve(self, key: int | None, sock: socket.socket, targets: Callable[[], list[HostPort]]) -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: ClientConnection(self._shared, targets), sock=sock, backlog=BACKLOG
        )
        if key in self._servers:
            self._servers[key] = server
        else:
            server.close()


def _listen(host: str, port: int) -> socket.socket:
    family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
