"""Ports before brokers, as a network that may be cut or slow. In: ports. Out: the same bytes, later, or not at all.

While a relay is cut it passes on nothing and takes no connections; afterwards it drops those that it had, as a network does whose
sides have given up. All relays run in one thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

from localkafka.ports import HOST

T = TypeVar("T")
READ = 1 << 18


class Relay:
    """One port before another one."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._whole = asyncio.Event()
        self._whole.set()
        self.delay = 0.0
        """Seconds by which bytes come later, in each direction."""

    async def listen(self) -> int:
        """The port."""
        server = await asyncio.start_server(self._accept, HOST, 0, limit=READ)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def cut(self) -> None:
        self._whole.clear()

    async def mend(self) -> None:
        self._whole.set()
        await self.reset()

    async def reset(self) -> None:
        for pair in self._pairs:
            for one in pair:
                one.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            there, back = await asyncio.open_connection(HOST, self._target, limit=READ)
        except OSError:
            writer.transport.abort()
            return
        pair = writer, back
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass(reader, back))
                tasks.create_task(self._pass(there, writer))
        except* OSError:
            pass
        finally:
            self._pairs.discard(pair)
            for one in pair:
                one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """To the end of one side, which is the end of both: a broker's client does not close by halves."""
        while data := await reader.read(READ):
            if self.delay:
                await asyncio.sleep(self.delay)
            await self._whole.wait()
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError


class Relays:
    """Relays in a thread of their own, as a context manager."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def before(self, port: int) -> tuple[Relay, int]:
        """A relay to this port, and its own."""

        async def made() -> tuple[Relay, int]:
            relay = Relay(port)
            return relay, await relay.listen()

        return self.run(made())

    def run(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(30)
