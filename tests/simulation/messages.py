"""Messages as simulated clients and brokers write and read them: whole frames of kio's schemas, and record batches whose records
are numbers. In: fields. Out: frames, and the other way round."""

from __future__ import annotations

import struct
from dataclasses import fields
from datetime import timedelta
from functools import cache
from typing import Any, Final, NamedTuple

from kio import index
from kio.serial import entity_reader

from proxy.wire.kio_bridge import encode_request, encode_response, parts_of

PRODUCE, FETCH, METADATA, HANDSHAKE, API_VERSIONS, CREATE, DELETE, INIT = 0, 1, 3, 17, 18, 19, 20, 22
CONFIGS, LOG_DIRS, AUTHENTICATE, CLUSTER = 32, 35, 36, 60
HEADER: Final = 61
"""Bytes of a record batch before its records (magic 2)."""
_BATCH: Final = struct.Struct(">qiibihiqqqhii")
ZERO: Final = timedelta(0)
load_request_schema, load_response_schema = cache(index.load_request_schema), cache(index.load_response_schema)
_reader = cache(entity_reader)


class RecordBatch(NamedTuple):
    """One batch; `numbers` are its records."""

    producer_id: int
    epoch: int
    sequence: int
    numbers: tuple[int, ...]
    size: int


def record_batch(producer_id: int, epoch: int, sequence: int, numbers: tuple[int, ...], size: int, offset: int = 0) -> bytes:
    """Padded to `size` bytes. `offset`: of its first record."""
    size = max(size, HEADER + 8 * len(numbers))
    head = _BATCH.pack(offset, size - 12, 0, 2, 0, 0, len(numbers) - 1, 0, 0, producer_id, epoch, sequence, len(numbers))
    return (head + struct.pack(f">{len(numbers)}Q", *numbers)).ljust(size, b"\0")


def read_batch(data: bytes) -> RecordBatch:
    """What `record_batch` wrote; ValueError for anything else."""
    *_, producer_id, epoch, sequence, count = _BATCH.unpack_from(data)
    if len(data) != struct.unpack_from(">i", data, 8)[0] + 12 or len(data) < HEADER + 8 * count:
        raise ValueError("no batch")
    return RecordBatch(producer_id, epoch, sequence, struct.unpack_from(f">{count}Q", data, HEADER), len(data))


def read_first_batch(data: bytes) -> tuple[RecordBatch, int, int]:
    """The first of several batches, the offset of its first record, and its size."""
    offset, length = struct.unpack_from(">qi", data)
    return read_batch(data[: length + 12]), offset, length + 12


@cache
def _request_parts(key: int, version: int) -> Any:
    return parts_of(load_request_schema(key, version))


@cache
def _response_parts(key: int, version: int) -> Any:
    return parts_of(load_response_schema(key, version))


@cache
def _tags(schema: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(schema))


def build(schema: Any, /, **given: Any) -> Any:
    """An entity with those of these fields that its version has."""
    known = _tags(schema)
    return schema(**{name: value for name, value in given.items() if name in known})


def request(key: int, version: int, correlation_id: int, client_id: str, /, **given: Any) -> bytes:
    return encode_request(correlation_id, client_id, build(load_request_schema(key, version), **given))


def response(key: int, version: int, correlation_id: int, /, **given: Any) -> bytes:
    return encode_response(correlation_id, build(load_response_schema(key, version), **given))


def part(key: int, version: int, kind: str, /, **given: Any) -> Any:
    """A structure within a request."""
    return build(getattr(_request_parts(key, version), kind), **given)


def answer_part(key: int, version: int, kind: str, /, **given: Any) -> Any:
    """A structure within a response."""
    return build(getattr(_response_parts(key, version), kind), **given)


class Request(NamedTuple):
    key: int
    version: int
    correlation_id: int
    client_id: str
    body: Any


def read_request(frame: bytes) -> Request:
    """A whole frame."""
    key, version, correlation_id, length = struct.unpack_from(">hhih", frame, 4)
    start = 14 + max(length, 0)
    client_id = frame[14:start].decode()
    schema = load_request_schema(key, version)
    body, size = _reader(schema)(frame, start + (schema.__header_schema__.__version__ == 2))
    if start + (schema.__header_schema__.__version__ == 2) + size != len(frame):
        raise ValueError(f"bytes left over in a request of API {key} v{version}")
    return Request(key, version, correlation_id, client_id, body)


def read_response(key: int, version: int, frame: bytes) -> Any:
    schema = load_response_schema(key, version)
    start = 8 + (schema.__header_schema__.__version__ == 1)
    body, size = _reader(schema)(frame, start)
    if start + size != len(frame):
        raise ValueError(f"bytes left over in a response of API {key} v{version}")
    return body


class Frames:
    """Cuts whole frames out of reads."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        data = self._rest + data
        found, at = [], 0
        while len(data) - at >= 4:
            size = 4 + int.from_bytes(data[at : at + 4], "big", signed=True)
            if size < 8 or size > 1 << 26:
                raise ValueError(f"a frame of {size} bytes")
            if len(data) - at < size:
                break
            found.append(data[at : at + size])
            at += size
        self._rest = data[at:]
        return found
