"""Connections over blocking sockets, for threads. They can also send what no client library sends.

In: an address, a login. Out: frames, answers as kio reads them. `Connection.ask` checks that answers come in the order of the
requests."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

from loadtest.entities import request_frame, response_entity
from loadtest.login import log_in

PATIENCE: Final = 20.0
"""Seconds within which an answer has to come: more than a machine that is busy with other things takes to get over an attack of a
second or two, of which all work is done in the end."""
_INT: Final = struct.Struct(">i")


class Login(NamedTuple):
    """A user, and how to prove it."""

    user: str
    password: str
    mechanism: str = "SCRAM-SHA-256"


class WrongCorrelationId(Exception):
    """The answer belongs to another request."""


def dial(address: str, source: str | None = None, patience: float = PATIENCE) -> socket.socket:
    """A connected socket. `source`: the own address, any of 127/8 on loopback."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), patience, (source, 0) if source else None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class Connection:
    """One connection. Not thread-safe, but one thread may send while another one receives."""

    def __init__(self, address: str, client_id: str, login: Login | None = None, source: str | None = None) -> None:
        """Connects, and logs in if there is a login. Raises OSError, LoginFailed."""
        self.sock = dial(address, source)
        self.client_id = client_id
        self._correlation_id = 0
        if login is not None:
            try:
                self.log_in(login)
            except BaseException:
                self.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, what: tuple[int, int], /, **fields: Any) -> Any:
        """The answer to a request with these fields. Raises OSError, WrongCorrelationId, ValueError for an answer that cannot
        be read."""
        self.send(what, **fields)
        return self.receive(what)

    def send(self, what: tuple[int, int], /, **fields: Any) -> int:
        """How many bytes that were."""
        self._correlation_id += 1
        frame = request_frame(*what, self._correlation_id, self.client_id, **fields)
        self.sock.sendall(frame)
        return len(frame)

    def receive(self, what: tuple[int, int]) -> Any:
        """The answer to the last request."""
        correlation_id, answer = response_entity(*what, self.frame())
        if correlation_id != self._correlation_id:
            raise WrongCorrelationId(f"answer {correlation_id} to request {self._correlation_id}")
        return answer

    def frame(self) -> bytes:
        """The next frame, without its size. Raises OSError."""
        return self._exactly(_INT.unpack(self._exactly(4))[0])

    def log_in(self, login: Login) -> None:
        """Raises LoginFailed."""
        exchange, answer = log_in(login.mechanism, login.user, login.password), None
        with suppress(StopIteration):
            while True:
                what, fields = exchange.send(answer)
                answer = self.ask(what, **fields)

    def close(self) -> None:
        self.sock.close()

    def _exactly(self, count: int) -> bytes:
        parts, left = [], count
        while left:
            part = self.sock.recv(min(left, 1 << 18))
            if not part:
                raise ConnectionResetError("closed by the other end")
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
