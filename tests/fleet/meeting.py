"""A TLS server on a loopback port for tests, on uvloop as in the proxy. In: contexts. Out: what either side got to know."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar, cast

import uvloop

T = TypeVar("T")
LIMIT = 120.0


def run(work: Coroutine[Any, Any, T]) -> T:
    """On the proxy's event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


class Guest(asyncio.Protocol):
    """One connection at the server: it says who is there, then sends back what it gets."""

    def __init__(self) -> None:
        self.here = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.here.set_result(transport.get_extra_info("ssl_object"))

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


class House:
    """Accepts raw sockets and shakes hands on them, as the proxy's listeners do. `context` may be exchanged."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        self.context = context
        self.guests: list[Guest] = []
        self.refused: list[Exception] = []
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._sock.setblocking(False)
        self.port: int = self._sock.getsockname()[1]

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            conn, _ = await loop.sock_accept(self._sock)
            guest = Guest()
            try:
                await loop.connect_accepted_socket(lambda guest=guest: guest, conn, ssl=self.context)
            except OSError as e:
                self.refused.append(e)
            else:
                self.guests.append(guest)

    def close(self) -> None:
        self._sock.close()


@contextlib.asynccontextmanager
async def house(context: ssl.SSLContext | None) -> AsyncIterator[House]:
    """A house that is open."""
    made = House(context)
    task = asyncio.create_task(made.serve())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        made.close()


async def echo(port: int, context: ssl.SSLContext, name: str | None, said: bytes = b"hello") -> tuple[bytes, asyncio.StreamWriter]:
    """Connect, say something, hear it again. With TLS 1.3 a server that refuses a client does so only now."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name or "")
    async with asyncio.timeout(LIMIT):
        writer.write(said)
        return await reader.readexactly(len(said)), writer
