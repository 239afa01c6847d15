"""Messages of the Kafka protocol from plain values. In: kio's classes or an API key and a version, and fields by name. Out: kio
entities, whole frames, record batches."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import struct
import types
import typing
import uuid
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i32Timedelta, i64

WHEN = TZAwareMicros.parse(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
"""The timestamp of records, unless another is given."""


def make(cls: Any, /, **values: Any) -> Any:
    """An instance of a kio class.

    Dicts become entities, what is left out becomes its default or zero, what the class does not have is dropped.
    """
    hints = _hints(cls)
    arguments = {}
    for field in dataclasses.fields(cls):
        if field.name in values:
            arguments[field.name] = _value(hints[field.name], values[field.name])
        elif field.default is dataclasses.MISSING:
            arguments[field.name] = _zero(hints[field.name])
    return cls(**arguments)


def request_frame(key: int, version: int, correlation_id: int, client_id: str | None, /, **fields: Any) -> bytes:
    """A request with its size field."""
    entity = make(load_request_schema(key, version), **fields)
    header = entity.__header_schema__(
        request_api_key=key,
        request_api_version=version,
        correlation_id=i32(correlation_id),
        **({"client_id": client_id} if "client_id" in entity.__header_schema__.__dataclass_fields__ else {}),
    )
    return _frame(header, entity)


def response_entity(key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """(correlation id, the response) of a frame without its size field. What it claims is believed: for trusted servers only."""
    schema: Any = load_response_schema(key, version)
    header, start = entity_reader(schema.__header_schema__)(frame, 0)
    return int(header.correlation_id), entity_reader(schema)(frame, start)[0]


def response_frame(key: int, version: int, /, **fields: Any) -> bytes:
    """A response with its size field and correlation id 0."""
    entity = make(load_response_schema(key, version), **fields)
    header = entity.__header_schema__(correlation_id=i32(0))
    return _frame(header, entity)


def record_batch(
    *values: bytes,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    when: TZAwareMicros = WHEN,
) -> bytes:
    """One batch of magic 2, a record for each value; always the same for the same arguments."""
    records = tuple(
        Record(attributes=i8(0), timestamp=when, offset=i64(i), key=None, value=value, headers=()) for i, value in enumerate(values)
    )
    out = BytesIO()
    made = NewRecordBatch(
        producer_id=i64(producer_id),
        producer_epoch=i16(epoch),
        base_sequence=i32(sequence),
        attributes=i16(0x10 if transactional else 0),
        partition_leader_epoch=i32(-1),
        records=records,
    )
    write_new_batch(out, made)
    return out.getvalue()


def error_name(code: int) -> str:
    """As Kafka calls it: THROTTLING_QUOTA_EXCEEDED."""
    try:
        return str(ErrorCode(code).name).upper()
    except ValueError:
        return f"ERROR_{code}"


def milliseconds(count: int) -> Any:
    """As kio has durations."""
    return i32Timedelta.parse(datetime.timedelta(milliseconds=count))


def _frame(*parts: Any) -> bytes:
    out = BytesIO()
    for part in parts:
        entity_writer(type(part))(out, part)
    return struct.pack(">i", out.tell()) + out.getvalue()


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        options = [hint, *typing.get_args(hint)]
        element = next(typing.get_args(option)[0] for option in options if typing.get_origin(option) is tuple)
        return tuple(_value(element, item) for item in value)
    if isinstance(value, dict):
        return make(next(option for option in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(option)), **value)
    return value


def _zero(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if dataclasses.is_dataclass(hint):
        return make(hint)
    if issubclass(hint, datetime.timedelta):
        return milliseconds(0)
    if issubclass(hint, uuid.UUID):
        return uuid.UUID(int=0)
    return next(base() for base in (bool, int, float, str, bytes) if issubclass(hint, base))
