"""A pass-through that looks at no byte: `python -m benchmarks.bench.baseline LISTEN UPSTREAM`.

What any proxy on these sockets costs at least.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class Side(asyncio.Protocol):
    """One socket; `other` is where its bytes go, once that is connected."""

    def __init__(self) -> None:
        self.other: asyncio.Transport | None = None
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self.early.append(data)
        else:
            self.other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self.other is not None:
            self.other.close()


class Front(Side):
    """The client's socket."""

    def __init__(self, upstream: int) -> None:
        super().__init__()
        self._upstream = upstream

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._task = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        self.other, back = await asyncio.get_running_loop().create_connection(Side, "127.0.0.1", self._upstream)
        back.other = self.transport
        self.other.writelines(self.early)


async def main(listen: int, upstream: int) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Front(upstream), "127.0.0.1", listen)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2])))
