"""The Kafka protocol by hand, for what no client can be made to send. In: kio entities. Out: response frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader

from loadtest.entities import make
from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import encode_request


def address(sock: socket.socket) -> str:
    """As the operations log has it. Lines are found by it: clients of proxies that are gone may come by, too, as the kernel gives
    out their ports again."""
    return "{}:{}".format(*sock.getsockname())


class Connection:
    """One connection; requests and responses one at a time, or several requests first."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.address = address(sock)
        self._correlation_id = 100
        self.client_id = "raw"

    def ask(self, key: int, version: int, /, **fields: Any) -> bytes:
        """The response frame, 4-byte size included."""
        self.send(key, version, **fields)
        return self._frame()

    def ask_bytes(self, key: int, version: int, body: bytes) -> bytes:
        """The same for a body that is bytes already; of a flexible version it begins with the tags of the header."""
        self._correlation_id += 1
        header = struct.pack(">hhi", key, version, self._correlation_id) + b"\0\3raw"
        return self._exchange(struct.pack(">i", len(header) + len(body)) + header + body)

    def _exchange(self, request: bytes) -> bytes:
        self._sock.sendall(request)
        return self._frame()

    def _frame(self) -> bytes:
        size = self._exactly(4)
        return size + self._exactly(int.from_bytes(size, "big"))

    def decoded(self, key: int, version: int, /, **fields: Any) -> Any:
        """The same, as a kio entity."""
        self.send(key, version, **fields)
        return self.receive(key, version)

    def send(self, key: int, version: int, /, **fields: Any) -> None:
        """A request whose response is received later, or never comes."""
        self._correlation_id += 1
        self._sock.sendall(encode_request(self._correlation_id, self.client_id, make(load_request_schema(key, version), **fields)))

    def receive(self, key: int, version: int) -> Any:
        """The next response, which is one to this, as a kio entity."""
        frame = self._frame()
        entity, _ = entity_reader(load_response_schema(key, version))(frame, response_body(frame, 0, len(frame), key, version))
        return entity

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self._sock.recv(count - len(data))
            if not part:
                raise ConnectionError(f"closed after {len(data)} of {count} bytes")
            data += part
        return data


@contextmanager
def connect(address: str) -> Iterator[Connection]:
    """A connection to host:port, where any answer comes within 90 s."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 90) as sock:
        yield Connection(sock)
