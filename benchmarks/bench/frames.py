"""The requests of each case, and what the sink answers, made with kio. In: a case's name. Out: bytes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache
from typing import Final

from kio.schema.errors import ErrorCode

from loadtest.entities import milliseconds, record_batch, request_frame, response_frame

CLIENT_ID: Final = "bench"
_TOPIC: Final = uuid.UUID(int=1)
PRODUCE, FETCH, API_VERSIONS, METADATA = 0, 1, 18, 3
PRODUCE_VERSION, FETCH_VERSION = 9, 16


@dataclass(frozen=True, slots=True)
class Case:
    """`size` in bytes of the records of one partition; `topics` with as many partitions each; `connections` with `depth`
    requests in flight each or, if there is a `rate`, that number of requests per second in all, at even intervals."""

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
    """Topics with this number of partitions each; a record has this number of bytes."""
    partitions = [{"index": i, "records": record_batch(bytes(size))} for i in range(topics)]
    data = [{"name": f"t{i}", "partition_data": partitions} for i in range(topics)]
    return request_frame(PRODUCE, PRODUCE_VERSION, 0, CLIENT_ID, acks=-1, timeout=milliseconds(30_000), topic_data=data)


@cache
def _produce_response(topics: int) -> bytes:
    partitions = [{"index": i, "error_code": ErrorCode.none, "base_offset": 1} for i in range(topics)]
    answers = [{"name": f"t{i}", "partition_responses": partitions} for i in range(topics)]
    return response_frame(PRODUCE, PRODUCE_VERSION, responses=answers)


@cache
def _fetch_request() -> bytes:
    topic = {"topic_id": _TOPIC, "partitions": [{"partition_max_bytes": 1 << 20}]}
    return request_frame(FETCH, FETCH_VERSION, 0, CLIENT_ID, max_wait=milliseconds(500), min_bytes=1, topics=[topic])


@cache
def _fetch_response(size: int) -> bytes:
    partition = {"error_code": ErrorCode.none, "high_watermark": 1, "records": record_batch(bytes(size))}
    topic = {"topic_id": _TOPIC, "partitions": [partition]}
    return response_frame(FETCH, FETCH_VERSION, error_code=ErrorCode.none, responses=[topic])


def other_response(key: int, version: int, port: int) -> bytes | None:
    """What the sink answers to a proxy that asks for versions or brokers; None for what it does not know."""
    if key == API_VERSIONS:
        ranges = {PRODUCE: (3, PRODUCE_VERSION), FETCH: (4, FETCH_VERSION), METADATA: (0, 12), API_VERSIONS: (0, 3)}
        apis = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in ranges.items()]
        return response_frame(key, version, error_code=ErrorCode.none, api_keys=apis)
    if key == METADATA:
        return response_frame(key, version, brokers=[{"node_id": 1, "host": "127.0.0.1", "port": port}])
    return None
