"""The requests of each case, and what the sink answers, made with kio. In: a case's name. Out: bytes, and files for the sink."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from pathlib import Path
from typing import Final

from kio.schema.errors import ErrorCode

from loadtest.entities import milliseconds, record_batch, request_frame, response_frame

CLIENT_ID: Final = "bench"
FETCHED: Final = uuid.UUID(int=1)
"""The id of t0; those of the others follow."""
PRODUCE, FETCH, METADATA, API_VERSIONS, LOG_DIRS, CLUSTER = 0, 1, 3, 18, 35, 60
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION, API_VERSIONS_VERSION, LOG_DIRS_VERSION, CLUSTER_VERSION = 9, 16, 12, 3, 4, 0
TOPICS: Final = 10
"""Topics of the sink, t0 and so on, with as many partitions each."""
PRODUCER_ID: Final = 0x5EED_1DE0_CAFE_F00D
"""Bytes that a request has nowhere else. The load puts the number of its connection there."""


@dataclass(frozen=True, slots=True)
class Case:
    """`size` in bytes of the records of one partition; `topics` with as many partitions each; `connections` with `depth`
    requests in flight each or, if there is a `rate`, that number of requests per second in all, at even intervals. The batches of
    `idempotent` producers have a producer id and a sequence, which the load sets."""

    key: int
    size: int
    connections: int
    depth: int
    topics: int = 1
    rate: int | None = None
    idempotent: bool = False

    def request(self) -> bytes:
        """With correlation id 0."""
        return _produce_request(self.topics, self.size, self.idempotent) if self.key == PRODUCE else _fetch_request()

    def answer(self) -> bytes:
        """With correlation id 0."""
        return _produce_response(self.topics) if self.key == PRODUCE else _fetch_response(self.size)

    def producer_offsets(self) -> list[int]:
        """Where the request has producer ids, each followed by epoch and base sequence; none unless the producer is idempotent."""
        parts = self.request().split(PRODUCER_ID.to_bytes(8, "big")) if self.idempotent else []
        ends = accumulate(len(part) + 8 for part in parts[:-1])
        return [end - 8 for end in ends]


IN_FLIGHT_AT_A_RATE = 256
"""The most requests of a connection that wait for answers. Further ones wait to be sent, which counts as time to the answer."""
CASES = {
    "produce-100": Case(PRODUCE, 10, 8, 5),
    "produce-16k": Case(PRODUCE, 16 << 10, 8, 5),
    "produce-64k": Case(PRODUCE, 64 << 10, 4, 4),
    "produce-1m": Case(PRODUCE, 1 << 20, 4, 2),
    "produce-10x10": Case(PRODUCE, 1 << 10, 4, 3, topics=10),
    "fetch-64k": Case(FETCH, 64 << 10, 8, 2),
    "fetch-1m": Case(FETCH, 1 << 20, 4, 2),
    "idempotent-100": Case(PRODUCE, 10, 8, 5, idempotent=True),
    "idempotent-16k": Case(PRODUCE, 16 << 10, 8, 5, idempotent=True),
    "idempotent-10x10": Case(PRODUCE, 1 << 10, 4, 3, topics=10, idempotent=True),
    "paced-100": Case(PRODUCE, 10, 8, IN_FLIGHT_AT_A_RATE, rate=2000),
    "paced-16k": Case(PRODUCE, 16 << 10, 8, IN_FLIGHT_AT_A_RATE, rate=2000),
}


def write_responses(folder: Path, cases: list[str], port: int) -> None:
    """The files of a sink at this port: `KEY` for each API that has a case, `KEY.VERSION` for what a proxy asks brokers."""
    answers = dict.fromkeys((PRODUCE, FETCH), CASES[cases[0]].answer()) | {CASES[case].key: CASES[case].answer() for case in cases}
    for key, answer in answers.items():
        (folder / str(key)).write_bytes(answer)
    asked = (
        (API_VERSIONS, 0, API_VERSIONS_VERSION),
        (METADATA, 0, METADATA_VERSION),
        (LOG_DIRS, LOG_DIRS_VERSION, LOG_DIRS_VERSION),
        (CLUSTER, CLUSTER_VERSION, CLUSTER_VERSION),
    )
    for key, lowest, highest in asked:
        for version in range(lowest, highest + 1):
            (folder / f"{key}.{version}").write_bytes(_other_response(key, version, port))


@cache
def _produce_request(topics: int, size: int, idempotent: bool) -> bytes:
    """Topics with this number of partitions each; a record has this number of bytes."""
    batch = partial(record_batch, producer_id=PRODUCER_ID, epoch=0, sequence=0) if idempotent else record_batch
    partitions = [{"index": i, "records": batch(bytes(size))} for i in range(topics)]
    data = [{"name": f"t{i}", "partition_data": partitions} for i in range(topics)]
    return request_frame(PRODUCE, PRODUCE_VERSION, 0, CLIENT_ID, acks=-1, timeout=milliseconds(30_000), topic_data=data)


@cache
def _produce_response(topics: int) -> bytes:
    partitions = [{"index": i, "error_code": ErrorCode.none, "base_offset": 1} for i in range(topics)]
    answers = [{"name": f"t{i}", "partition_responses": partitions} for i in range(topics)]
    return response_frame(PRODUCE, PRODUCE_VERSION, responses=answers)


@cache
def _fetch_request() -> bytes:
    topic = {"topic_id": FETCHED, "partitions": [{"partition_max_bytes": 1 << 20}]}
    return request_frame(FETCH, FETCH_VERSION, 0, CLIENT_ID, max_wait=milliseconds(500), min_bytes=1, topics=[topic])


@cache
def _fetch_response(size: int) -> bytes:
    partition = {"error_code": ErrorCode.none, "high_watermark": 1, "records": record_batch(bytes(size))}
    topic = {"topic_id": FETCHED, "partitions": [partition]}
    return response_frame(FETCH, FETCH_VERSION, error_code=ErrorCode.none, responses=[topic])


def _topics() -> list[dict[str, object]]:
    """All that there are: a real broker tells of them."""
    partitions = [{"error_code": ErrorCode.none, "partition_index": i, "leader_id": 1} for i in range(TOPICS)]
    return [
        {"error_code": ErrorCode.none, "name": f"t{i}", "topic_id": uuid.UUID(int=FETCHED.int + i), "partitions": partitions}
        for i in range(TOPICS)
    ]


def _other_response(key: int, version: int, port: int) -> bytes:
    """What the sink at this port answers to a proxy that asks for versions, brokers or log dirs."""
    if key == METADATA:
        return response_frame(key, version, brokers=[{"node_id": 1, "host": "127.0.0.1", "port": port}], topics=_topics())
    if key == CLUSTER:
        brokers = [{"broker_id": 1, "host": "127.0.0.1", "port": port}]
        return response_frame(key, version, error_code=ErrorCode.none, cluster_id="bench", controller_id=1, brokers=brokers)
    if key == LOG_DIRS:
        return response_frame(key, version, error_code=ErrorCode.none, results=[{"error_code": ErrorCode.none, "log_dir": "/data"}])
    ranges = {
        PRODUCE: (3, PRODUCE_VERSION),
        FETCH: (4, FETCH_VERSION),
        METADATA: (0, METADATA_VERSION),
        API_VERSIONS: (0, API_VERSIONS_VERSION),
        LOG_DIRS: (LOG_DIRS_VERSION, LOG_DIRS_VERSION),
        CLUSTER: (CLUSTER_VERSION, CLUSTER_VERSION),
    }
    apis = [{"api_key": k, "min_version": low, "max_version": high} for k, (low, high) in ranges.items()]
    return response_frame(key, version, error_code=ErrorCode.none, api_keys=apis)
