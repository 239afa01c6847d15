"""Clients with a fixed number of requests in flight: `python -m loadtest.bench.load PORT CASE SECONDS`.

Out: `start`, then the number of answers. Every answer is checked for its place in the order: a wrong correlation id ends
the run with an error.
"""

from __future__ import annotations

import asyncio
import sys
from struct import Struct
from typing import cast

import uvloop

from loadtest.bench.frames import CASES, produce_request, produce_response

ID = Struct(">i")


class Client(asyncio.Protocol):
    def __init__(self, request: bytes, answer_size: int) -> None:
        self._head, self._tail = request[:8], request[12:]
        self._size = answer_size
        self._rest = b""
        self._sent = self.answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, count: int) -> None:
        """So many requests more."""
        pieces = []
        for _ in range(count):
            pieces += [self._head, ID.pack(self._sent), self._tail]
            self._sent += 1
        self._transport.writelines(pieces)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        count = len(data) // self._size
        for i in range(count):
            if ID.unpack_from(data, i * self._size + 4)[0] != self.answered:
                sys.exit(f"answer {ID.unpack_from(data, i * self._size + 4)[0]} where {self.answered} was due")
            self.answered += 1
        self._rest = data[count * self._size :]
        self.send(count)

    def connection_lost(self, exc: Exception | None) -> None:
        sys.exit(f"a connection was closed: {exc}")


async def main(port: int, case_name: str, seconds: float) -> None:
    case, loop = CASES[case_name], asyncio.get_running_loop()
    request, size = produce_request(case.size), len(produce_response())
    clients = [(await loop.create_connection(lambda: Client(request, size), "127.0.0.1", port))[1] for _ in range(case.connections)]
    for client in clients:
        client.send(case.depth)
    await asyncio.sleep(0.5)
    before = sum(client.answered for client in clients)
    print("start", flush=True)
    await asyncio.sleep(seconds)
    print(sum(client.answered for client in clients) - before, flush=True)


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3])))
