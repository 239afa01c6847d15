"""The requests of each case, and what the sink answers, made with kio. In: a case's name. Out: bytes."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.serial import entity_writer
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i32Timedelta, i64

PRODUCE_VERSION = 9
API_VERSIONS, METADATA = 18, 3


@dataclass(frozen=True, slots=True)
class Case:
    """`size` in bytes of the records of one request; `connections` with `depth` requests in flight each."""

    size: int
    connections: int
    depth: int


CASES = {
    "produce-100": Case(10, 8, 5),
    "produce-16k": Case(16 << 10, 8, 5),
    "produce-64k": Case(64 << 10, 4, 4),
    "produce-1m": Case(1 << 20, 4, 2),
}


def produce_request(size: int) -> bytes:
    """A Produce request, correlation id 0, with records of so many bytes for partition 0 of topic t1."""
    schema = load_request_schema(0, PRODUCE_VERSION)
    topic_type, partition_type = _nested(schema, "TopicProduceData"), _nested(schema, "PartitionProduceData")
    partition = partition_type(index=0, records=_batch(size))
    body = schema(  # type: ignore[call-arg]
        transactional_id=None, acks=-1, timeout=_ms(30_000), topic_data=(topic_type(name="t1", partition_data=(partition,)),)
    )
    return _frame(b"\0\0" + PRODUCE_VERSION.to_bytes(2, "big") + bytes(4) + b"\0\x05bench\0", body)


def produce_response() -> bytes:
    """Its answer, correlation id 0."""
    schema = load_response_schema(0, PRODUCE_VERSION)
    topic_type, partition_type = _nested(schema, "TopicProduceResponse"), _nested(schema, "PartitionProduceResponse")
    partition = partition_type(index=0, error_code=_no_error(), base_offset=1, record_errors=())
    return _frame(bytes(5), schema(responses=(topic_type(name="t1", partition_responses=(partition,)),)))  # type: ignore[call-arg]


def other_response(key: int, version: int, port: int) -> bytes | None:
    """What the sink answers to a proxy that asks for versions or brokers; None for what it does not know."""
    schema = load_response_schema(key, version)
    if key == API_VERSIONS:
        api_type = _nested(schema, "ApiVersion")
        ranges = {0: (3, PRODUCE_VERSION), METADATA: (0, 12), API_VERSIONS: (0, 3)}
        apis = tuple(api_type(api_key=k, min_version=low, max_version=high) for k, (low, high) in ranges.items())
        extra = {"throttle_time": _ms(0)} if version else {}
        return _frame(bytes(4), schema(error_code=_no_error(), api_keys=apis, **extra))  # type: ignore[call-arg]
    if key == METADATA:
        broker = _nested(schema, "MetadataResponseBroker")(node_id=1, host="127.0.0.1", port=port)
        return _frame(bytes(5), schema(throttle_time=_ms(0), brokers=(broker,), topics=()))  # type: ignore[call-arg]
    return None


def _batch(size: int) -> bytes:
    now = TZAwareMicros.parse(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    record = Record(attributes=i8(0), timestamp=now, offset=i64(0), key=None, value=bytes(size), headers=())
    nobody = {"producer_id": i64(-1), "producer_epoch": i16(-1), "base_sequence": i32(-1), "partition_leader_epoch": i32(-1)}
    out = BytesIO()
    write_new_batch(out, NewRecordBatch(**nobody, attributes=i16(0), records=(record,)))  # type: ignore[arg-type]
    return out.getvalue()


def _frame(header: bytes, body: Any) -> bytes:
    out = BytesIO()
    entity_writer(type(body))(out, body)
    return (len(header) + out.tell()).to_bytes(4, "big") + header + out.getvalue()


def _nested(schema: Any, name: str) -> Any:
    return getattr(__import__(schema.__module__, fromlist=[name]), name)


def _no_error() -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode.none


def _ms(milliseconds: int) -> Any:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=milliseconds))
