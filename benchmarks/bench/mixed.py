"""Clients of several kinds, which come and go: `python -m benchmarks.bench.mixed PORT REQUESTS POINTS`.

Out: `start`, then a line of JSON at as many points as are asked for: requests answered so far, and connections that were
opened for them. Each connection is of one kind and has a client id and a topic of its own among many; once its requests are
answered another one takes its place. Closed loops, as fast as it goes. A wrong answer, or a connection that ends by itself,
ends the run with an error.
"""

from __future__ import annotations

import asyncio
import json
import sys
from struct import Struct
from typing import Final, cast

import uvloop

from benchmarks.bench.frames import CASES, Case

START = Struct(">ii")

KINDS: Final = {"produce-100": (8, 1000), "produce-16k": (4, 200), "fetch-64k": (2, 100), "produce-1m": (1, 5)}
"""Case to the number of connections in a round and of requests on each. Nine in ten requests are small."""
CONNECTIONS: Final = 12
"""At any time."""
CLIENT_IDS: Final = 500
TOPICS: Final = 300

_CLIENT_ID = b"\0\x05bench"
_TOPIC = b"\x03t0"


class Run:
    """What all connections share: how many requests are answered, and which connection comes next."""

    def __init__(self, port: int, requests: int, points: int) -> None:
        self.port, self.requests, self.points = port, requests, points
        self.answered = self.opened = self._told = 0
        self.over = asyncio.get_running_loop().create_future()
        self._kinds = [(CASES[name], requests) for name, (connections, requests) in KINDS.items() for _ in range(connections)]
        self._opening: set[asyncio.Task[None]] = set()

    def open_one(self) -> None:
        """The next connection, in its own time."""
        task = asyncio.get_running_loop().create_task(self._open())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self) -> None:
        number, self.opened = self.opened, self.opened + 1
        case, requests = self._kinds[number * 7 % len(self._kinds)]
        loop = asyncio.get_running_loop()
        _, client = await loop.create_connection(lambda: Client(case, number, requests, self), "127.0.0.1", self.port)
        for _ in range(case.depth):
            client.send()

    def count(self) -> None:
        """One request more is answered."""
        self.answered += 1
        if self.answered * self.points // self.requests > self._told:
            self._told += 1
            print(json.dumps({"requests": self.answered, "connections": self.opened}), flush=True)
            if self._told == self.points and not self.over.done():
                self.over.set_result(None)


class Client(asyncio.Protocol):
    """A connection that closes after a number of answers. Its client id and its topic have `number` in their names."""

    def __init__(self, case: Case, number: int, requests: int, run: Run) -> None:
        request = case.request()
        self._head, self._tail = request[:8], named(request[12:], number)
        self._answer_size = len(case.answer())
        self._start = b""  # of an answer that has begun
        self._left = 0  # bytes to come of it
        self._sent = self._answered = 0
        self._requests, self._run = requests, run

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        """One request more."""
        self._transport.writelines([self._head, self._sent.to_bytes(4, "big"), self._tail])
        self._sent += 1

    def data_received(self, data: bytes) -> None:
        pos, size = 0, len(data)
        while pos < size:
            if not self._left:
                need = START.size - len(self._start)
                self._start += data[pos : pos + need]
                pos += need
                if len(self._start) < START.size:
                    return
                length, correlation_id = START.unpack(self._start)
                if (length + 4, correlation_id) != (self._answer_size, self._answered):
                    sys.exit(f"answer {correlation_id} of {length} bytes where {self._answered} was due")
                self._start, self._left = b"", length - 4
            step = min(self._left, size - pos)
            self._left -= step
            pos += step
            if not self._left:
                self._done()

    def _done(self) -> None:
        self._answered += 1
        self._run.count()
        if self._sent < self._requests:
            self.send()
        elif self._answered == self._sent:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answered < self._requests:
            sys.exit(f"a connection was closed: {exc}")
        self._run.open_one()


def named(tail: bytes, number: int) -> bytes:
    """A request behind its correlation id, with another client id and topic of the same length."""
    tail = tail.replace(_CLIENT_ID, b"\0\x05c%04d" % (number * 13 % CLIENT_IDS), 1)
    topic = number * 31 % TOPICS
    return tail.replace(_TOPIC, b"\x03" + bytes([97 + topic // 26, 97 + topic % 26]), 1)


async def main(port: int, requests: int, points: int) -> None:
    run = Run(port, requests, points)
    print("start", flush=True)
    for _ in range(CONNECTIONS):
        run.open_one()
    await run.over


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
