"""A load balancer for tests: passes bytes on, and says first who the client is (PROXY protocol v2). In: a target. Out: a port."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from types import TracebackType
from typing import Self

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
CLIENT = ("192.0.2.7", 40000)
"""Whom it claims every client to be: an address that no machine has (RFC 5737)."""


def header(host: str = CLIENT[0], port: int = CLIENT[1]) -> bytes:
    """PROXY protocol v2, TCP over IPv4."""
    return (
        SIGNATURE
        + struct.pack(">BBH", 0x21, 0x11, 12)
        + socket.inet_aton(host)
        + socket.inet_aton("10.0.0.1")
        + struct.pack(">HH", port, 1)
    )


LOCAL = SIGNATURE + b"\x20\0\0\0"
"""What a load balancer says when it is the client itself, as in health checks."""


class Balancer:
    """Listens from the start, so that its port can stand in settings; `target` (host:port) is set before anybody comes."""

    def __init__(self) -> None:
        self._sock = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._sock.getsockname()[1]
        self.target = ""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(10)

    def _run(self) -> None:
        self._task = self._loop.create_task(self._serve())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._balance, sock=self._sock)
        async with server:
            await server.serve_forever()

    async def _balance(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        to_writer.write(header())
        await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer), return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()
