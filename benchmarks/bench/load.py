"""Clients with requests in flight: `python -m benchmarks.bench.load PORT CASE SECONDS [CONNECTIONS]`, or
`... PORT CASE idle CONNECTIONS`.

Out: `start`, then a line of JSON: the number of answers, and how long they took, in seconds, half of them and all but one in
a hundred. In a paced case this counts from when a request was due. Every answer is checked for its place in the order: a
wrong correlation id ends the run with an error. `idle`: many connections, one answer each; the line comes once all are
answered, and they stay until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from struct import Struct
from typing import cast

import uvloop

from benchmarks.bench.frames import CASES, Case

START = Struct(">ii")


class Client(asyncio.Protocol):
    """One connection. In a closed loop every answer makes room for the next request."""

    def __init__(self, case: Case) -> None:
        request = case.request()
        self._head, self._tail = request[:8], request[12:]
        self._answer_size = len(case.answer())
        self._closed_loop = case.rate is None
        self._start = b""  # of an answer that has begun
        self._left = 0  # bytes to come of it
        self._due: deque[float] = deque()
        self.took: list[float] = []
        self._sent = self.answered = 0
        self.first = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, due: float) -> None:
        """One request more."""
        self._due.append(due)
        self._transport.writelines([self._head, self._sent.to_bytes(4, "big"), self._tail])
        self._sent += 1

    def data_received(self, data: bytes) -> None:
        pos, size, now = 0, len(data), time.perf_counter()
        while pos < size:
            if not self._left:
                need = START.size - len(self._start)
                self._start += data[pos : pos + need]
                pos += need
                if len(self._start) < START.size:
                    return
                length, correlation_id = START.unpack(self._start)
                if (length + 4, correlation_id) != (self._answer_size, self.answered):
                    sys.exit(f"answer {correlation_id} of {length} bytes where {self.answered} was due")
                self._start, self._left = b"", length - 4
            step = min(self._left, size - pos)
            self._left -= step
            pos += step
            if not self._left:
                self._done(now)

    def _done(self, now: float) -> None:
        self.took.append(now - self._due.popleft())
        self.answered += 1
        if self.answered == 1:
            self.first.set_result(None)
        if self._closed_loop:
            self.send(now)

    def connection_lost(self, exc: Exception | None) -> None:
        sys.exit(f"a connection was closed: {exc}")


async def connect(port: int, case: Case, count: int) -> list[Client]:
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(lambda: Client(case), "127.0.0.1", port))[1] for _ in range(count)]


async def pace(clients: list[Client], rate: int) -> None:
    """Send at even intervals, whether answers come or not."""
    start = time.perf_counter()
    sent = 0
    while True:
        while (due := start + sent / rate) <= time.perf_counter():
            clients[sent % len(clients)].send(due)
            sent += 1
        await asyncio.sleep(max(due - time.perf_counter(), 0))


async def main(port: int, case: Case, seconds: float, connections: int) -> None:
    clients = await connect(port, case, connections)
    pacing = None if case.rate is None else asyncio.create_task(pace(clients, case.rate))
    if pacing is None:
        for client in clients:
            for _ in range(case.depth):
                client.send(time.perf_counter())
    await asyncio.sleep(0.5)
    for client in clients:
        client.took.clear()
    print("start", flush=True)
    await asyncio.sleep(seconds)
    took = sorted(took for client in clients for took in client.took)
    if pacing is not None:
        pacing.cancel()
    print(json.dumps({"frames": len(took), "p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}), flush=True)


async def idle(port: int, case: Case, count: int) -> None:
    print("start", flush=True)
    clients = await connect(port, Case(case.key, case.size, 1, 1, rate=1), count)
    for client in clients:
        client.send(time.perf_counter())
    await asyncio.gather(*(client.first for client in clients))
    print(json.dumps({"frames": count, "p50": 0, "p99": 0}), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    if sys.argv[3] == "idle":
        uvloop.run(idle(int(sys.argv[1]), CASES[sys.argv[2]], int(sys.argv[4])))
    else:
        chosen = CASES[sys.argv[2]]
        count = int(sys.argv[4]) if len(sys.argv) > 4 else chosen.connections
        uvloop.run(main(int(sys.argv[1]), chosen, float(sys.argv[3]), count))
