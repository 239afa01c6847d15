"""A broker that does next to nothing: `python -m benchmarks.bench.sink PORT CASE[,CASE]`.

In: requests. Out: a fixed answer to each Produce or Fetch, that of the case of its API, with its correlation id.
"""

from __future__ import annotations

import asyncio
import sys
from struct import Struct
from typing import cast

import uvloop

from benchmarks.bench.frames import CASES, FETCH, PRODUCE, other_response

START = Struct(">ihh4s")


class Sink(asyncio.Protocol):
    def __init__(self, port: int, answers: dict[int, bytes]) -> None:
        self._port, self._answers = port, answers
        self._rest = b""
        self._skip = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._skip >= len(data):
            self._skip -= len(data)
            return
        if self._skip or self._rest:
            data, self._rest, self._skip = self._rest + data[self._skip :], b"", 0
        pos, answers = 0, list[bytes | memoryview]()
        while len(data) - pos >= START.size:
            length, key, version, correlation_id = START.unpack_from(data, pos)
            answer = self._answers.get(key) or other_response(key, version, self._port)
            if answer is None:
                self._transport.close()
                return
            answers += [answer[:4], correlation_id, memoryview(answer)[8:]]
            pos += 4 + length
        self._transport.writelines(answers)
        if pos > len(data):
            self._skip = pos - len(data)
        else:
            self._rest = data[pos:]


async def main(port: int, cases: list[str]) -> None:
    answers = dict.fromkeys((PRODUCE, FETCH), CASES[cases[0]].answer()) | {CASES[case].key: CASES[case].answer() for case in cases}
    server = await asyncio.get_running_loop().create_server(lambda: Sink(port, answers), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), sys.argv[2].split(",")))
