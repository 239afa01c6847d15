"""The requests of each case, and what the sink answers, made with kio. In: a case's name. Out: bytes."""

from __future__ import annotations

import datetime
import uuid
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.records.schema import NewRecordBatch, Record
from kio.records.writers import write_new_batch
from kio.serial import entity_writer
from kio.static.primitive import TZAwareMicros, i8, i16, i32, i32Timedelta, i64

from loadtest.wire import nested

PRODUCE, FETCH, API_VERSIONS, METADATA = 0, 1, 18, 3
PRODUCE_VERSION, FETCH_VERSION = 9, 16


@dataclass(frozen=True, slots=True)
class Case:
    """`size` in bytes of the records of one partition; `topics` with as many partitions each; `connections` with `depth`
    requests in flight each, or, if there is a `rate`, so many requests per second in all, at even intervals."""

    key: int
    size: int
    connections: int
    depth: int
    topics: int = 1
    rate: int | None = None

    def request(self) -> bytes:
        """With correlation id 0."""
        return _produce_request(self.topics, self.size) if self.key == PRODUCE else _fetch_request()

    def answer(self) -> bytes:
        """With correlation id 0."""
        return _produce_response(self.topics) if self.key == PRODUCE else _fetch_response(self.size)


CASES = {
    "produce-100": Case(PRODUCE, 10, 8, 5),
    "produce-16k": Case(PRODUCE, 16 << 10, 8, 5),
    "produce-64k": Case(PRODUCE, 64 << 10, 4, 4),
    "produce-1m": Case(PRODUCE, 1 << 20, 4, 2),
    "produce-10x10": Case(PRODUCE, 1 << 10, 4, 3, topics=10),
    "fetch-64k": Case(FETCH, 64 << 10, 8, 2),
    "fetch-1m": Case(FETCH, 1 << 20, 4, 2),
    "paced-2000": Case(PRODUCE, 10, 8, 1, rate=2000),
}


@cache
def _produce_request(topics: int, size: int) -> bytes:
    """So many topics of so many partitions with records of so many bytes."""
    schema = load_request_schema(PRODUCE, PRODUCE_VERSION)
    topic_type, partition_type = nested(schema, "TopicProduceData"), nested(schema, "PartitionProduceData")
    records = _batch(size)
    partitions = tuple(partition_type(index=i, records=records) for i in range(topics))
    data = tuple(topic_type(name=f"t{i}", partition_data=partitions) for i in range(topics))
    body = schema(transactional_id=None, acks=-1, timeout=_ms(30_000), topic_data=data)  # type: ignore[call-arg]
    return _request(PRODUCE, PRODUCE_VERSION, body)


@cache
def _produce_response(topics: int) -> bytes:
    schema = load_response_schema(PRODUCE, PRODUCE_VERSION)
    topic_type, partition_type = nested(schema, "TopicProduceResponse"), nested(schema, "PartitionProduceResponse")
    partitions = tuple(partition_type(index=i, error_code=_no_error(), base_offset=1, record_errors=()) for i in range(topics))
    answers = tuple(topic_type(name=f"t{i}", partition_responses=partitions) for i in range(topics))
    return _frame(bytes(5), schema(responses=answers))  # type: ignore[call-arg]


@cache
def _fetch_request() -> bytes:
    schema = load_request_schema(FETCH, FETCH_VERSION)
    partition = nested(schema, "FetchPartition")(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = nested(schema, "FetchTopic")(topic_id=_TOPIC, partitions=(partition,))
    body = schema(max_wait=_ms(500), min_bytes=1, topics=(topic,), forgotten_topics_data=())  # type: ignore[call-arg]
    return _request(FETCH, FETCH_VERSION, body)


@cache
def _fetch_response(size: int) -> bytes:
    schema = load_response_schema(FETCH, FETCH_VERSION)
    partition = nested(schema, "PartitionData")(
        partition_index=0, error_code=_no_error(), high_watermark=1, aborted_transactions=None, records=_batch(size)
    )
    topic = nested(schema, "FetchableTopicResponse")(topic_id=_TOPIC, partitions=(partition,))
    return _frame(bytes(5), schema(throttle_time=_ms(0), error_code=_no_error(), responses=(topic,)))  # type: ignore[call-arg]


_TOPIC = uuid.UUID(int=1)


def _request(key: int, version: int, body: Any) -> bytes:
    return _frame(key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\x05bench\0", body)


def other_response(key: int, version: int, port: int) -> bytes | None:
    """What the sink answers to a proxy that asks for versions or brokers; None for what it does not know."""
    schema = load_response_schema(key, version)
    if key == API_VERSIONS:
        api_type = nested(schema, "ApiVersion")
        ranges = {PRODUCE: (3, PRODUCE_VERSION), FETCH: (4, FETCH_VERSION), METADATA: (0, 12), API_VERSIONS: (0, 3)}
        apis = tuple(api_type(api_key=k, min_version=low, max_version=high) for k, (low, high) in ranges.items())
        extra = {"throttle_time": _ms(0)} if version else {}
        return _frame(bytes(4), schema(error_code=_no_error(), api_keys=apis, **extra))  # type: ignore[call-arg]
    if key == METADATA:
        broker = nested(schema, "MetadataResponseBroker")(node_id=1, host="127.0.0.1", port=port)
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


def _no_error() -> Any:
    from kio.schema.errors import ErrorCode

    return ErrorCode.none


def _ms(milliseconds: int) -> Any:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=milliseconds))
