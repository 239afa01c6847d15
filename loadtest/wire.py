"""The Kafka protocol by hand, for what no Python client can be made to send. In: an address, a way in. Out: answers as kio has
them.

One request at a time on each connection. What is decoded comes from the cluster that is measured, which is trusted to say true
lengths."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import struct
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Self

from kio.static.primitive import TZAwareMicros

from configfile.access import Access, Certificates, Login
from loadtest.entities import milliseconds, record_batch, request_frame, response_entity
from loadtest.login import log_in

PRODUCE, METADATA, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = (0, 7), (3, 1), (18, 0), (19, 7), (20, 6)
INIT_PRODUCER_ID, METADATA_WITH_THROTTLE = (22, 1), (3, 4)
"""(key, version)"""
QUOTA_EXCEEDED: Final = 89
TIMEOUT_MS: Final = 300_000
"""that the cluster is given for a request"""


class Answered(NamedTuple):
    """Error codes by topic, and the throttle time in seconds."""

    codes: dict[str, int]
    throttle: float


def tls_context(tls: Certificates) -> ssl.SSLContext:
    """Raises OSError (ssl.SSLError is one) for files that cannot be used."""
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    context.check_hostname = tls.verify_hostname
    return context


class Connection:
    """Requests, one at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client_id: str) -> None:
        self._reader, self._writer, self._client_id = reader, writer, client_id

    @classmethod
    async def open(cls, address: str, client_id: str, access: Access | None = None, context: ssl.SSLContext | None = None) -> Self:
        """A connection that is logged in. `context`: made of `access.tls` once for many connections."""
        host, _, port = address.rpartition(":")
        if access is not None and access.tls is not None and context is None:
            context = tls_context(access.tls)
        connection = cls(*await asyncio.open_connection(host.strip("[]"), int(port), ssl=context), client_id)
        if access is not None and access.login is not None:
            try:
                await connection.log_in(access.login)
            except BaseException:
                connection.close()
                raise
        return connection

    async def ask(self, what: tuple[int, int], **fields: Any) -> Any:
        """The answer to a request with these fields; what is left out is its default or zero."""
        request = request_frame(*what, 1, self._client_id, **fields)
        return response_entity(*what, await self.exchange(request[4:]))[1]

    async def exchange(self, request: bytes) -> bytes:
        """The frame that answers this one, both without their sizes."""
        self._writer.write(struct.pack(">i", len(request)) + request)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    async def log_in(self, login: Login) -> None:
        """Raises LoginFailed."""
        exchange, answer = log_in(login.mechanism, login.username, login.password), None
        with suppress(StopIteration):
            while True:
                what, fields = exchange.send(answer)
                answer = await self.ask(what, **fields)

    async def create(self, topics: dict[str, int], replication: int, *, validate_only: bool = False) -> Answered:
        """Create topics with this number of partitions each. `replication` -1: the default of the cluster."""
        made = [{"name": name, "num_partitions": n, "replication_factor": replication} for name, n in topics.items()]
        answer = await self.ask(CREATE_TOPICS, topics=made, timeout=milliseconds(TIMEOUT_MS), validate_only=validate_only)
        return Answered({t.name: int(t.error_code) for t in answer.topics}, answer.throttle_time.total_seconds())

    async def delete(self, topics: Iterable[str]) -> Answered:
        answer = await self.ask(DELETE_TOPICS, topics=[{"name": name} for name in topics], timeout=milliseconds(TIMEOUT_MS))
        return Answered({t.name: int(t.error_code) for t in answer.responses}, answer.throttle_time.total_seconds())

    async def metadata(self) -> Answered:
        """Of the cluster, without topics."""
        answer = await self.ask(METADATA_WITH_THROTTLE, topics=(), allow_auto_topic_creation=False)
        return Answered({}, answer.throttle_time.total_seconds())

    async def new_id(self) -> int:
        """A producer id, which costs the broker nothing yet."""
        while True:
            answer = await self.ask(INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=milliseconds(TIMEOUT_MS))
            if not answer.error_code:
                return int(answer.producer_id)
            await asyncio.sleep(0.1)  # the coordinator fetches a block of ids

    async def write(self, id: int, topic: str, partitions: Iterable[int]) -> tuple[int, float]:
        """(largest error code, throttle time in seconds) of the producer's first record in each partition."""
        now = TZAwareMicros.parse(datetime.datetime.now(datetime.UTC))
        batch, some = record_batch(b"storm", producer_id=id, epoch=0, sequence=0, when=now), list(partitions)
        parts = b"".join(struct.pack(">ii", i, len(batch)) + batch for i in some)
        head = struct.pack(">hhi", *PRODUCE, 1) + text(self._client_id) + struct.pack(">hhii", -1, -1, 30_000, 1)
        answer = (await self.exchange(head + text(topic) + struct.pack(">i", len(some)) + parts))[4:]
        at = 4 + len(text(topic)) + 4
        codes = {int(struct.unpack_from(">h", answer, at + 30 * i + 4)[0]) for i in range(len(some))}
        return max(codes), int(struct.unpack_from(">i", answer, at + 30 * len(some))[0]) / 1000

    def close(self) -> None:
        self._writer.close()


def text(value: str) -> bytes:
    return struct.pack(">h", len(value.encode())) + value.encode()
