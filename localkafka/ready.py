"""Asks a broker over a plain socket which brokers are in the cluster.

In: the address of a plaintext listener. Out: the brokers that this broker knows to be registered and not fenced, with their
addresses on that listener. Leaves to others: waiting. Wire: Metadata (3) v1 with no topics, as in Kafka's protocol guide.
"""

import socket
import struct

from localkafka.ports import HOST

_TIMEOUT = 5.0  # seconds
_CLIENT_ID = b"localkafka"
_REQUEST = struct.pack(">hhih", 3, 1, 0, len(_CLIENT_ID)) + _CLIENT_ID + struct.pack(">i", 0)


def known_brokers(port: int) -> dict[int, int]:
    """Node id to port, as the broker behind `port` sees it; empty when it does not answer (yet)."""
    try:
        with socket.create_connection((HOST, port), _TIMEOUT) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            (size,) = struct.unpack(">i", _read(connection, 4))
            return _brokers(_read(connection, size))
    except OSError:
        return {}


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := connection.recv(size - len(data))):
            raise ConnectionResetError("the broker closed the connection")
        data += more
    return data


def _brokers(response: bytes) -> dict[int, int]:
    """Broker entries follow the correlation id: node id, host, port, rack (of length -1 when null)."""
    (count,) = struct.unpack_from(">i", response, 4)
    at, found = 8, {}
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", response, at)
        at += 6 + host_size
        port, rack_size = struct.unpack_from(">ih", response, at)
        at += 6 + max(rack_size, 0)
        found[node_id] = port
    return found
