"""The transport of plain TCP, on real sockets. What its protocols see is what asyncio promises of any transport."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from proxy.transport import LARGEST, SMALL_READS, TcpTransport, connect
from tests.clients.proxied import until

PATIENCE = 90.0


class Spy:
    """A protocol that notes what it is told. `keeps`: it goes on when the other end has closed its half."""

    def __init__(self, *, keeps: bool = False, on_data: Callable[[bytes], None] = lambda _: None) -> None:
        self.told: list[Any] = []
        self.read = bytearray()
        self._keeps, self._on_data = keeps, on_data
        self.lost = asyncio.Event()

    def connection_made(self, _transport: asyncio.BaseTransport, /) -> None:
        self.told.append("made")

    def data_received(self, data: bytes, /) -> None:
        self.read += data
        self._on_data(data)

    def eof_received(self) -> bool:
        self.told.append("eof")
        return self._keeps

    def connection_lost(self, exc: Exception | None, /) -> None:
        self.told.append(None if exc is None else type(exc))
        self.lost.set()

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")


@asynccontextmanager
async def pair(spy: Spy, *, started: bool = True) -> AsyncIterator[tuple[TcpTransport, socket.socket]]:
    """A transport, and the socket at the other end of it."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        other = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    for sock in (mine, other):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 14)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    transport = TcpTransport(loop, mine, spy)
    if started:
        transport.start()
    try:
        async with asyncio.timeout(PATIENCE):
            yield transport, other
    finally:
        transport.abort()
        await spy.lost.wait()
        other.close()


class Asked(socket.socket):
    """A socket that notes for how much there was room in each read."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(fileno=sock.detach())
        self.room: list[int] = []

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        self.room.append(size)
        return super().recv(size, flags)


async def all_of(sock: socket.socket) -> bytes:
    """What comes until the other end closes its half."""
    loop, found = asyncio.get_running_loop(), bytearray()
    with suppress(ConnectionResetError):
        while data := await loop.sock_recv(sock, 1 << 16):
            found += data
    return bytes(found)


@given(st.lists(st.lists(st.sampled_from([0, 1, 5, 4096, 70_000, 300_000]), max_size=80), max_size=8))
def test_what_is_written_comes_whole_and_in_order_however_much_the_socket_takes(writes: list[list[int]]) -> None:
    async def scene() -> None:
        spy, sent, number = Spy(), bytearray(), 0
        async with pair(spy) as (transport, other):
            reading = asyncio.create_task(all_of(other))
            for sizes in writes:
                chunks = []
                for size in sizes:
                    number += 1
                    chunks.append(bytes([number % 251]) * size)
                sent += b"".join(chunks)
                if len(chunks) == 1:
                    transport.write(chunks[0])
                else:
                    transport.writelines(cast(Any, chunks))
                await asyncio.sleep(0)
            transport.close()
            assert await reading == bytes(sent)
            await spy.lost.wait()
        assert [each for each in spy.told if each not in ("pause", "resume")] == ["made", None]

    uvloop.run(scene())


@given(st.lists(st.sampled_from([1, 4095, 4096, 4097, 20_000, 300_000]), min_size=1, max_size=6))
def test_what_comes_is_read_whole_and_in_order(sizes: list[int]) -> None:
    async def scene() -> None:
        spy = Spy()
        data = b"".join(bytes([i]) * size for i, size in enumerate(sizes))
        async with pair(spy) as (_, other):
            await asyncio.get_running_loop().sock_sendall(other, data)
            other.shutdown(socket.SHUT_WR)
            await spy.lost.wait()
        assert bytes(spy.read) == data
        assert spy.told == ["made", "eof", None]

    uvloop.run(scene())


def test_the_protocol_is_told_once_when_much_waits_and_once_when_little_does() -> None:
    async def scene() -> None:
        spy = Spy()
        async with pair(spy) as (transport, other):
            transport.set_write_buffer_limits(1 << 20, 1 << 18)
            assert transport.get_write_buffer_limits() == (1 << 18, 1 << 20)
            transport.write(bytes(4 << 20))
            waiting = transport.get_write_buffer_size()
            assert waiting > 1 << 20
            transport.write(b"more")
            assert transport.get_write_buffer_size() == waiting + 4
            assert spy.told == ["made", "pause"]
            reading = asyncio.create_task(all_of(other))
            await until(lambda: transport.get_write_buffer_size() == 0)
            assert spy.told == ["made", "pause", "resume"]
            transport.close()
            assert len(await reading) == (4 << 20) + 4

    uvloop.run(scene())


def test_lower_limits_hold_at_once() -> None:
    async def scene() -> None:
        spy = Spy()
        async with pair(spy) as (transport, _):
            transport.set_write_buffer_limits(64 << 20, 16 << 20)
            transport.write(bytes(4 << 20))
            assert spy.told == ["made"]
            transport.set_write_buffer_limits(1 << 16, 1 << 14)
            assert spy.told == ["made", "pause"]

    uvloop.run(scene())


def test_nothing_is_read_while_reading_is_paused_even_from_within_a_read() -> None:
    async def scene() -> None:
        spy = Spy(on_data=lambda _: transport.pause_reading())
        async with pair(spy, started=False) as (made, other):
            nonlocal transport
            transport = made
            made.start()
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(other, b"one")
            await until(lambda: spy.read == b"one")
            await loop.sock_sendall(other, b"two")
            for _ in range(20):
                await asyncio.sleep(0.001)
            assert spy.read == b"one"
            assert not made.is_reading()
            made.resume_reading()
            await until(lambda: spy.read == b"onetwo")

    transport = cast(TcpTransport, None)
    uvloop.run(scene())


def test_half_closed_it_still_writes_and_closes_its_own_half_behind_what_waits() -> None:
    async def scene() -> None:
        spy = Spy(keeps=True)
        async with pair(spy) as (transport, other):
            other.shutdown(socket.SHUT_WR)
            await until(lambda: "eof" in spy.told)
            transport.write(bytes(1 << 20))
            transport.write_eof()
            transport.write(b"too late")
            assert len(await all_of(other)) == 1 << 20
            assert spy.lost.is_set() is False

    uvloop.run(scene())


def test_abort_loses_what_waits_and_tells_once() -> None:
    async def scene() -> None:
        spy = Spy()
        async with pair(spy) as (transport, other):
            transport.write(bytes(4 << 20))
            transport.close()
            assert transport.is_closing()
            assert not spy.lost.is_set()
            transport.abort()
            transport.abort()
            transport.close()
            transport.write(b"nothing")
            transport.resume_reading()
            assert len(await all_of(other)) < 4 << 20
            await spy.lost.wait()
        assert [each for each in spy.told if each != "pause"] == ["made", None]

    uvloop.run(scene())


@pytest.mark.parametrize("doing", ["reading", "writing"])
def test_a_reset_ends_it_with_its_error(doing: str) -> None:
    async def scene() -> None:
        spy = Spy()
        async with pair(spy) as (transport, other):
            if doing == "writing":
                transport.pause_reading()
                transport.write(bytes(4 << 20))
            other.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            other.close()
            await spy.lost.wait()
            assert transport.get_write_buffer_size() == 0
        assert spy.told[-1] in (ConnectionResetError, BrokenPipeError)

    uvloop.run(scene())


@pytest.mark.parametrize("where", ["connection_made", "data_received", "eof_received", "pause_writing"])
def test_a_mistake_of_the_protocol_ends_its_connection_and_is_told(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        def mistake(*_: object) -> None:
            raise KeyError(where)

        monkeypatch.setattr(Spy, where, mistake)
        seen: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: seen.append(told))
        spy = Spy()
        async with pair(spy) as (transport, other):
            with suppress(ConnectionError):
                await asyncio.get_running_loop().sock_sendall(other, b"x")
                other.shutdown(socket.SHUT_WR)
            if where == "pause_writing":
                transport.write(bytes(4 << 20))
            await spy.lost.wait()
        assert [str(told["exception"]) for told in seen] == [f"'{where}'"]
        assert spy.told[-1] is KeyError

    uvloop.run(scene())


def test_an_address_that_takes_no_connection_is_passed_over_and_the_last_error_told() -> None:
    async def scene() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            transport, spy = await connect(Spy, "localhost", port)  # ::1 is tried where there is one
            assert transport.get_extra_info("peername")[1] == port
            transport.close()
            await spy.lost.wait()
        with pytest.raises(ConnectionRefusedError, match="Connection refused"):
            await connect(Spy, "localhost", port)

    uvloop.run(scene())


def test_there_is_room_for_large_reads_though_short_ones_come_between_them_and_not_for_ever() -> None:
    async def scene() -> None:
        loop, spy = asyncio.get_running_loop(), Spy()
        near, far = socket.socketpair()
        with far:
            mine = Asked(near)
            for sock in (mine, far):
                sock.setblocking(False)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST)  # so that a read finds so much
            transport = TcpTransport(loop, mine, spy)
            transport.start()
            came = 0

            async def send(size: int) -> int:
                nonlocal came
                came += size
                await loop.sock_sendall(far, bytes(size))
                await until(lambda: len(spy.read) == came)
                return mine.room[-1]

            assert LARGEST in [await send(LARGEST) for _ in range(10)]
            assert [await send(100) for _ in range(SMALL_READS)][-1] == LARGEST
            assert await send(100) == LARGEST // 2
            transport.abort()
            await spy.lost.wait()

    uvloop.run(scene())
