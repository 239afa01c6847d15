"""Brokers that describe themselves, on loopback, and do so as badly as a test wants. In: what each answers. Out: their addresses,
and what they were asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any

from kio.index import load_response_schema

from proxy.config.units import HostPort
from tests.messages import make, part_of, read_request, response
from tests.wire.test_log_dirs import log_dirs

API_VERSIONS, LOG_DIRS, CLUSTER = 18, 35, 60
GIB = 1 << 30
Answer = Callable[[], bytes | None]
"""a frame, or None to close the connection"""


class Describing:
    """One broker. `dirs` is what it tells of its log dirs, as `tests.wire.test_log_dirs.log_dirs` takes it."""

    def __init__(self, node_id: int) -> None:
        self.node_id, self.port = node_id, 0
        self.versions = {API_VERSIONS: (0, 3), LOG_DIRS: (1, 5), CLUSTER: (0, 2)}
        self.dirs: list[dict[str, Any]] = [{"path": f"/data{node_id}", "total": 100 * GIB, "usable": 50 * GIB}]
        self.error_code = 0
        self.hangs = self.closes = self.raves = self.wants_login = self.stops = False
        self.named: list[Describing] = [self]
        self.fenced: set[int] = set()
        self.asked: list[int] = []
        """keys of the APIs that it was asked for"""
        self.asked_for_replicas = 0

    @property
    def address(self) -> HostPort:
        return HostPort("127.0.0.1", self.port)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size = await reader.readexactly(4)
                request = size + await reader.readexactly(int.from_bytes(size, "big"))
                key, version = int.from_bytes(request[4:6], "big"), int.from_bytes(request[6:8], "big")
                self.asked.append(key)
                if key == LOG_DIRS and self.hangs:
                    continue
                if (key == LOG_DIRS and self.closes) or (key == CLUSTER and (self.wants_login or self.stops)):
                    self.stops = False
                    break
                answer = bytearray(self._answer(key, version, request))
                answer[4:8] = request[8:12]
                writer.write(answer)
        writer.close()

    def _answer(self, key: int, version: int, request: bytes) -> bytes:
        if key == API_VERSIONS:
            entry = part_of(load_response_schema(key, version), "api_keys")
            ranges = [
                make(entry, Random(1), api_key=api, min_version=low, max_version=high) for api, (low, high) in self.versions.items()
            ]
            return response(key, version, error_code=0, api_keys=tuple(ranges))
        if key == CLUSTER:
            return self._cluster(version)
        self.asked_for_replicas += read_request(key, version, request).topics is None
        answer = log_dirs(version, *self.dirs, error_code=self.error_code)
        return answer if not self.raves else answer[:20] + b"\xff" * (len(answer) - 20)

    def _cluster(self, version: int) -> bytes:
        entry = part_of(load_response_schema(CLUSTER, version), "brokers")
        fenced = [{"is_fenced": it.node_id in self.fenced} if version >= 2 else {} for it in self.named]
        brokers = tuple(
            make(entry, Random(1), broker_id=it.node_id, host="127.0.0.1", port=it.port, **more)
            for it, more in zip(self.named, fenced, strict=True)
        )
        return response(CLUSTER, version, error_code=0, error_message=None, brokers=brokers)


@contextlib.asynccontextmanager
async def describing(count: int) -> AsyncIterator[list[Describing]]:
    """So many brokers that know each other."""
    brokers = [Describing(node_id) for node_id in range(count)]
    async with contextlib.AsyncExitStack() as stack:
        for broker in brokers:
            broker.named = brokers
            server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
            stack.callback(server.close)
            broker.port = server.sockets[0].getsockname()[1]
        yield brokers
