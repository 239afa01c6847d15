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
from importlib import import_module
from io import BytesIO
from typing import Any, Final, NamedTuple, Self

from kio.index import load_request_schema, load_response_schema
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i32Timedelta, i64
from scramp import ScramClient, ScramException

from configfile.access import Access, Certificates, Login

PRODUCE, METADATA, HANDSHAKE, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS = (0, 7), (3, 1), (17, 1), (18, 0), (19, 7), (20, 6)
INIT_PRODUCER_ID, AUTHENTICATE = (22, 1), (36, 1)
"""(key, version)"""
QUOTA_EXCEEDED: Final = 89
TIMEOUT: Final = datetime.timedelta(minutes=5)
"""that the cluster is given for a request"""


class LoginFailed(Exception):
    """The broker does not let us in; the message says what it said."""


class Answered(NamedTuple):
    """Error codes by topic, and the throttle time in seconds."""

    codes: dict[str, int]
    throttle: float


def nested(schema: Any, name: str) -> Any:
    """kio's class of a structure within a message."""
    return getattr(import_module(schema.__module__), name)


def error_name(code: int) -> str:
    """As Kafka calls it: THROTTLING_QUOTA_EXCEEDED."""
    try:
        return str(ErrorCode(code).name).upper()
    except ValueError:
        return f"ERROR_{code}"


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
        """The answer to a request with these fields."""
        return await self.send(load_request_schema(*what)(**fields))

    async def send(self, request: Any) -> Any:
        body, key, version = BytesIO(), request.__api_key__, request.__version__
        header = request.__header_schema__(
            request_api_key=key, request_api_version=version, correlation_id=i32(1), client_id=self._client_id
        )
        entity_writer(type(header))(body, header)
        entity_writer(type(request))(body, request)
        answer = await self.exchange(body.getvalue())
        schema: Any = load_response_schema(key, version)
        _, start = entity_reader(schema.__header_schema__)(answer, 0)
        return entity_reader(schema)(answer, start)[0]

    async def exchange(self, request: bytes) -> bytes:
        """The frame that answers this one, both without their sizes."""
        self._writer.write(struct.pack(">i", len(request)) + request)
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    async def log_in(self, login: Login) -> None:
        """Raises LoginFailed."""
        answer = await self.ask(HANDSHAKE, mechanism=login.mechanism)
        if answer.error_code:
            raise LoginFailed(f"the broker does not know {login.mechanism}, but {', '.join(answer.mechanisms) or 'no mechanism'}")
        if login.mechanism == "PLAIN":
            await self._token(f"\0{login.username}\0{login.password}".encode())
            return
        try:
            client = ScramClient([login.mechanism], login.username, login.password)
            client.set_server_first(await self._token(client.get_client_first().encode()))
            client.set_server_final(await self._token(client.get_client_final().encode()))
        except ScramException as e:
            raise LoginFailed(f"{login.mechanism}: the broker's answer is not right: {e}") from None

    async def _token(self, token: bytes) -> str:
        answer = await self.ask(AUTHENTICATE, auth_bytes=token)
        if answer.error_code:
            raise LoginFailed(answer.error_message or error_name(answer.error_code))
        return bytes(answer.auth_bytes).decode()

    async def create(self, topics: dict[str, int], replication: int, *, validate_only: bool = False) -> Answered:
        """Creates topics of so many partitions each. `replication` -1: the cluster's default."""
        schema: Any = load_request_schema(*CREATE_TOPICS)
        topic = nested(schema, "CreatableTopic")
        made = tuple(
            topic(name=name, num_partitions=i32(n), replication_factor=i16(replication), assignments=(), configs=())
            for name, n in topics.items()
        )
        request = schema(topics=made, timeout=i32Timedelta.parse(TIMEOUT), validate_only=validate_only)
        answer = await self.send(request)
        return Answered({t.name: int(t.error_code) for t in answer.topics}, answer.throttle_time.total_seconds())

    async def delete(self, topics: Iterable[str]) -> Answered:
        schema: Any = load_request_schema(*DELETE_TOPICS)
        state = nested(schema, "DeleteTopicState")
        request = schema(topics=tuple(state(name=name, topic_id=None) for name in topics), timeout=i32Timedelta.parse(TIMEOUT))
        answer = await self.send(request)
        return Answered({t.name: int(t.error_code) for t in answer.responses}, answer.throttle_time.total_seconds())

    async def new_id(self) -> int:
        """A producer id, which costs the broker nothing yet."""
        while True:
            answer = await self.ask(INIT_PRODUCER_ID, transactional_id=None, transaction_timeout=i32Timedelta.parse(TIMEOUT))
            if not answer.error_code:
                return int(answer.producer_id)
            await asyncio.sleep(0.1)  # the coordinator fetches a block of ids

    async def write(self, id: int, topic: str, partitions: Iterable[int]) -> tuple[int, float]:
        """(largest error code, throttle time in seconds) of the producer's first record in each partition."""
        batch, some = first_batch(id), list(partitions)
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


def first_batch(id: int) -> bytes:
    """The first batch of a producer, with one record."""
    now = TZAwareMicros.parse(datetime.datetime.now(datetime.UTC))
    record = Record(attributes=i8(0), timestamp=now, offset=i64(0), key=None, value=b"storm", headers=())
    out = BytesIO()
    made = NewRecordBatch(
        producer_id=i64(id),
        producer_epoch=i16(0),
        base_sequence=i32(0),
        attributes=i16(0),
        partition_leader_epoch=i32(-1),
        records=(record,),
    )
    write_new_batch(out, made)
    return out.getvalue()
