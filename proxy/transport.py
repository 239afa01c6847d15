"""The sockets of the data path: plain TCP, as a transport of asyncio. TLS goes by uvloop's.

In: a connected socket and a protocol. Out: what asyncio promises of a transport, with what the socket gives as it comes: a read is
received into the bytes that its protocol gets, and what is written is sent from where it stands; uvloop's transport copies each
read once, and makes an object for each write. Figures are in DESIGN.md."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from proxy.wire.primitives import Buffer


class StreamProtocol(Protocol):
    """`asyncio.Protocol` by its methods: what is compiled cannot inherit from it."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None, /) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


P = TypeVar("P", bound=StreamProtocol)
LARGEST: Final = 3 << 17
"""Bytes of a read, at most: five requests of 64 KiB, as many as a producer has under way, come in one."""
FROM_BROKER: Final = 43 << 13
"""The same of a connection to a broker: what is answered goes on as it comes, and sockets take this much at once, but seldom
384 KiB. Three reads have records of 1 MiB with what stands around them: its last hundred bytes are no read of their own."""
SMALLEST: Final = 3 << 11
"""Bytes for which there is room in a read, at least; three times by fours it is the largest."""
SMALL_READS: Final = 16
"""Reads in a row that need only an eighth of their room, after which there is less of it. Fewer, and the short end of a large
answer would leave too little room for the next one."""
AT_ONCE: Final = 64
"""Buffers that are sent by one call, at most."""


class TcpTransport:
    """A connected socket, which the transport closes. `connection_made` is called by `start`. It is an `asyncio.Transport`
    by its methods: what is compiled cannot inherit from that. `largest`: bytes of a read, at most."""

    __slots__ = (
        "_closing",
        "_eof",
        "_fd",
        "_high",
        "_largest",
        "_loop",
        "_low",
        "_paused",
        "_protocol",
        "_reading",
        "_room",
        "_small_reads",
        "_sock",
        "_waiting",
        "_waits",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, protocol: StreamProtocol, largest: int = LARGEST
    ) -> None:
        self._loop, self._sock, self._protocol = loop, sock, protocol
        self._fd = sock.fileno()
        self._waiting: deque[Buffer] | None = None  # what was written and is not sent; most connections never need it
        self._waits = 0  # bytes of it
        self._high, self._low = 1 << 16, 1 << 14
        self._largest = largest
        self._room = SMALLEST  # of the next read
        self._small_reads = 0  # in a row
        self._reading = False  # the event loop looks for something to read
        self._paused = False  # the protocol was told to pause writing
        self._closing = False
        self._eof = False  # nothing is sent behind what waits

    def start(self) -> None:
        """Tell the protocol, and read."""
        try:
            self._protocol.connection_made(cast(asyncio.BaseTransport, self))
        except Exception as e:
            self._broken(e)
        self.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        try:
            if name == "peername":
                return self._sock.getpeername()
            if name == "sockname":
                return self._sock.getsockname()
        except OSError:  # it has ended meanwhile
            return default
        return self._sock if name == "socket" else default

    def get_protocol(self) -> StreamProtocol:
        return self._protocol

    def set_protocol(self, protocol: StreamProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    # ------------------------------------------------------------------ reading

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(self._room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as e:
            self._fail(e)
            return
        size = len(data)
        if size == self._room:
            self._room = min(size * 4, self._largest)
        if size * 8 >= self._room:
            self._small_reads = 0
        elif self._room > SMALLEST:
            self._small_reads += 1
            if self._small_reads == SMALL_READS:
                self._small_reads, self._room = 0, self._room // 2
        try:
            if size:
                self._protocol.data_received(data)
            else:
                self.pause_reading()
                if not self._protocol.eof_received():
                    self.close()
        except Exception as e:
            self._broken(e)

    # ------------------------------------------------------------------ writing

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return self._waits

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int, low: int) -> None:
        self._high, self._low = high, low
        self._pause_or_not()

    def write(self, data: Buffer) -> None:
        if self._waits or self._closing or self._eof:
            self._keep([data], 0)
            return
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as e:
            self._fail(e)
            return
        if sent < len(data):
            self._keep([data], sent)

    def writelines(self, chunks: list[Buffer]) -> None:
        if len(chunks) == 1:
            self.write(chunks[0])
            return
        if self._waits or self._closing or self._eof:
            self._keep(chunks, 0)
            return
        some = chunks if len(chunks) <= AT_ONCE else chunks[:AT_ONCE]
        try:
            sent = self._sock.sendmsg(some)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as e:
            self._fail(e)
            return
        if sent < sum(map(len, chunks)):
            self._keep(chunks, sent)

    def write_eof(self) -> None:
        if not self._eof and not self._closing:
            self._eof = True
            if not self._waits:
                self._shut()

    def _keep(self, chunks: list[Buffer], sent: int) -> None:
        """Let these wait until the socket takes them, but for the first bytes, which are sent."""
        if self._closing or self._eof:
            return
        began, waiting = self._waits > 0, self._waiting
        if waiting is None:
            waiting = self._waiting = deque()
        for chunk in chunks:
            size = len(chunk)
            if sent >= size:
                sent -= size
                continue
            waiting.append(memoryview(chunk)[sent:] if sent else chunk)
            self._waits += size - sent
            sent = 0
        if self._waits and not began:
            self._loop.add_writer(self._fd, self._send)
        self._pause_or_not()

    def _send(self) -> None:
        """Send what waits, as far as the socket takes it."""
        waiting = self._waiting
        assert waiting is not None
        try:
            sent = self._sock.sendmsg([waiting[i] for i in range(min(len(waiting), AT_ONCE))])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as e:
            self._fail(e)
            return
        self._waits -= sent
        while sent:
            first = waiting.popleft()
            if len(first) > sent:
                waiting.appendleft(memoryview(first)[sent:])
                break
            sent -= len(first)
        if not self._waits:
            self._waiting = None
            self._loop.remove_writer(self._fd)
            if self._closing:
                self._end(None)
                return
            if self._eof:
                self._shut()
        self._pause_or_not()

    def _pause_or_not(self) -> None:
        """Tell the protocol how much waits."""
        if self._closing:
            return
        try:
            if not self._paused and self._waits > self._high:
                self._paused = True
                self._protocol.pause_writing()
            elif self._paused and self._waits <= self._low:
                self._paused = False
                self._protocol.resume_writing()
        except Exception as e:
            self._broken(e)

    def _shut(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError as e:
            self._fail(e)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Read no more, and end when what was written is sent."""
        if not self._closing:
            self.pause_reading()
            self._closing = True
            if not self._waits:
                self._end(None)

    def abort(self) -> None:
        """End now."""
        self._fail(None)

    def _broken(self, error: Exception) -> None:
        """The protocol made a mistake."""
        told = {"message": "a connection failed", "exception": error, "transport": self, "protocol": self._protocol}
        self._loop.call_exception_handler(told)
        self._fail(error)

    def _fail(self, error: Exception | None) -> None:
        """End now: what waits is lost."""
        self.pause_reading()
        if self._waits:
            self._loop.remove_writer(self._fd)
            self._waiting, self._waits = None, 0
        self._closing = True
        self._end(error)

    def _end(self, error: Exception | None) -> None:
        if self._fd >= 0:
            self._fd = -1
            self._loop.call_soon(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        protocol, self._protocol = self._protocol, NOBODY  # they refer to each other
        try:
            protocol.connection_lost(error)
        finally:
            self._sock.close()


class _Nobody:
    """The protocol of a transport that is over."""

    def connection_made(self, transport: asyncio.BaseTransport, /) -> None: ...
    def data_received(self, data: bytes, /) -> None: ...
    def eof_received(self) -> bool | None: ...
    def connection_lost(self, exc: Exception | None, /) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


NOBODY: Final = _Nobody()


async def connect(factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
    """A connection to the first address of a host that takes one; OSError of the last when none does."""
    loop = asyncio.get_running_loop()
    failed: OSError | None = None
    for family, kind, proto, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, proto)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as e:
            sock.close()
            failed = OSError(e.errno, os.strerror(e.errno)) if e.errno else e  # uvloop's words name the address
        except BaseException:
            sock.close()
            raise
        else:
            protocol = factory()
            transport = TcpTransport(loop, sock, protocol, FROM_BROKER)
            transport.start()
            return cast(asyncio.Transport, transport), protocol
    raise failed or OSError(f"no address of {host}")
