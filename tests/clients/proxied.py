"""A whole proxy on loopback before a broker that does what no real one can be made to do. In: settings, and what the broker
does. Out: addresses, what the broker got, what the proxy logged. All on one event loop, uvloop as in production."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import socket
import sys
import termios
from collections.abc import AsyncIterator, Callable
from math import inf
from typing import Any, cast

from proxy.config.models import Settings
from proxy.observe.operations import Log
from proxy.process.proxy import Proxy
from proxy.session.port import Bounds
from tests.loopback import own_host

LIMIT = 100.0
PROXY_ITSELF = b"kafka-quota-proxy"


def frame(size: int, number: int = 1, client_id: bytes = b"app") -> bytes:
    """A request of so many bytes, its size field included, of an API that nobody knows."""
    head = (size - 4).to_bytes(4, "big") + b"\x03\xe7\0\0" + number.to_bytes(4, "big")
    head += len(client_id).to_bytes(2, "big") + client_id
    return head + bytes(size - len(head))


def answer(size: int, number: int = 1) -> bytes:
    """A response of so many bytes."""
    return (size - 4).to_bytes(4, "big") + number.to_bytes(4, "big") + bytes(size - 8)


class Visit(asyncio.Protocol):
    """One connection at the broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.got = bytearray()
        self.requests = 0
        self._seen = 0
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if not self.got:
            if PROXY_ITSELF in data[:64]:  # it wants to know about the cluster
                self.transport.close()
                return
            self.broker.visits.append(self)
        self.got += data
        while len(self.got) - self._seen >= 8:
            end = self._seen + 4 + int.from_bytes(self.got[self._seen : self._seen + 4], "big")
            if end > len(self.got):
                break
            request, self._seen = bytes(self.got[self._seen : end]), end
            self.requests += 1
            self.broker.does(self, request)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if not self.lost.done():
            self.lost.set_result(None)


def answers(visit: Visit, request: bytes) -> None:
    """What a broker does, unless it does something else: a short answer."""
    visit.transport.write(answer(20, int.from_bytes(request[8:12], "big")))


class Broker:
    """`does` is called for every whole request. The proxy before it listens at the same address, at another port."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        """of clients, which have said something"""
        self.does: Callable[[Visit, bytes], None] = answers
        self.host, self.port = own_host(), 0

    @property
    def visit(self) -> Visit:
        (only,) = self.visits
        return only


class Recorder:
    """A log that is a list."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: self.lines.append({"level": level, "event": event, **fields})

    def find(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event and fields.items() <= line.items()]


class Here:
    """A proxy that runs."""

    def __init__(self, proxy: Proxy, broker: Broker, log: Recorder) -> None:
        self.proxy, self.broker, self.log = proxy, broker, log
        self.host, self.port = broker.host, proxy.listeners[0].port

    @property
    def held(self) -> int:
        """Bytes charged to the memory of all connections."""
        return self.proxy.shared.services.budget.held

    @property
    def unsent(self) -> int:
        """Bytes that wait in sockets' buffers of the proxy."""
        found = 0
        for connection in self.proxy.shared.connections:
            found += connection.transport.get_write_buffer_size()
            if connection._broker is not None:
                found += connection._broker.transport.get_write_buffer_size()
        return found

    @property
    def queued(self) -> int:
        """Bytes that wait in the kernel for clients."""
        found = 0
        for connection in self.proxy.shared.connections:
            answer = fcntl.ioctl(connection.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
            found += int.from_bytes(answer, sys.byteorder)
        return found

    @property
    def bounds(self) -> Bounds:
        """What holds from now on, also for connections that are there."""
        return self.proxy.shared.services.bounds

    def hits(self, limit: str) -> int:
        return self.proxy.logs.observer.limit_hits[limit]

    async def client(self, host: str = "127.0.0.1", **more: Any) -> Client:
        """`host` is where it comes from."""
        reader, writer = await asyncio.open_connection(self.host, self.port, local_addr=(host, 0), limit=1 << 16, **more)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Client(reader, writer)

    async def alone(self) -> None:
        """Until all clients have left, and nothing is charged to them nor counted."""
        census = self.proxy.shared.services.census
        await until(lambda: not self.proxy.shared.connections and not self.held and not census.count)


class Client:
    """One client, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @property
    def address(self) -> str:
        host, port = self.writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    async def ask(self, request: bytes, size: int = 20) -> bytes:
        self.writer.write(request)
        return await self.reader.readexactly(size)

    async def end(self) -> bytes:
        """What comes until the proxy closes."""
        with contextlib.suppress(ConnectionError):
            return await self.reader.read()
        return b""

    def close(self) -> None:
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def proxied(broker: Broker | None = None, **settings: Any) -> AsyncIterator[Here]:
    """A proxy with these settings."""
    broker = broker or Broker()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Visit(broker), broker.host, 0, backlog=2048)
    broker.port = server.sockets[0].getsockname()[1]
    listen = {"bootstrap": f"{broker.host}:0", **settings.pop("listen", {})}
    log = Recorder()
    upstream = {"bootstrap_servers": [f"{broker.host}:{broker.port}"]}
    data = {"upstream": upstream, "listen": listen, "admin": {"listen": "127.0.0.1:0"}}
    limits = {"drain_timeout": "200ms", **settings.pop("limits", {})}
    made = Settings.model_validate({**data, "limits": limits, **settings})
    proxy = Proxy(made, lambda: made, None, cast(Log, log))
    proxy.shared.services.admission.served(inf)  # this broker wants no logins, and says nothing that the proxy could see that from
    await proxy.start()
    try:
        async with asyncio.timeout(LIMIT):
            yield Here(proxy, broker, log)
    finally:
        for visit in broker.visits:
            visit.transport.abort()
        await proxy.stop(asyncio.Event())
        server.close()
    assert not proxy.failed.is_set()


async def until(condition: Callable[[], object]) -> None:
    """Waits for sockets, so it looks again and again; whoever calls it has a deadline."""
    while not condition():  # noqa: ASYNC110 there is nothing that tells
        await asyncio.sleep(0.005)
