"""Produce requests about several partitions, and what their clients are told."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from tests.messages import batch, part_of, read_request, read_response, request, response

Parts = dict[tuple[str, int], bytes]


def records(size: int, producer_id: int = -1, epoch: int = 0, sequence: int = 0) -> bytes:
    """A batch of so many bytes."""
    return batch(1, size, producer_id, epoch, sequence)


def named(version: int, topic: str) -> dict[str, Any]:
    return {"name": topic} if version < 13 else {"topic_id": topic_id(topic)}


def topic_id(topic: str) -> uuid.UUID:
    return uuid.UUID(bytes=topic.encode().ljust(16, b"-"))


def write(parts: Parts, correlation_id: int = 1, version: int = 9, acks: int = -1) -> bytes:
    schema = load_request_schema(0, version)
    data = part_of(schema, "topic_data")
    part = part_of(data, "partition_data")
    topics: dict[str, list[Any]] = {}
    for (topic, index), content in parts.items():
        topics.setdefault(topic, []).append(part(index=index, records=content))
    listed = tuple(data(partition_data=tuple(found), **named(version, topic)) for topic, found in topics.items())
    return request(0, version, correlation_id, acks=acks, transactional_id=None, topic_data=listed)


def written(
    parts: list[tuple[str, int]],
    correlation_id: int = 1,
    version: int = 9,
    throttle_ms: int = 0,
    errors: dict[str, int] | None = None,
) -> bytes:
    """The broker's answer: all of it is written, at offset 100, but for topics (or `topic-partition`) with errors."""
    schema = load_response_schema(0, version)
    topic_schema = part_of(schema, "responses")
    part = part_of(topic_schema, "partition_responses")
    topics: dict[str, list[Any]] = {}
    for topic, index in parts:
        error = (errors or {}).get(topic) or (errors or {}).get(f"{topic}-{index}", 0)
        made = {"index": index, "error_code": ErrorCode(error), "base_offset": -1 if error else 100}
        if version >= 2:
            made["log_append_time"] = None
        if version >= 5:
            made["log_start_offset"] = 0
        if version >= 8:
            made |= {"record_errors": (), "error_message": None}
        topics.setdefault(topic, []).append(part(**made))
    listed = tuple(topic_schema(partition_responses=tuple(found), **named(version, topic)) for topic, found in topics.items())
    given: dict[str, Any] = {"node_endpoints": ()} if version >= 10 else {}
    return response(0, version, correlation_id, responses=listed, throttle_time=timedelta(milliseconds=throttle_ms), **given)


def asked(frame: bytes, version: int = 9) -> list[tuple[str, int]]:
    """The partitions of a request, as the broker sees them."""
    entity = read_request(0, version, frame)
    return [(_name(topic, version), part.index) for topic in entity.topic_data for part in topic.partition_data]


def told(frame: bytes, version: int = 9) -> dict[tuple[str, int], tuple[int, str | None]]:
    """What a client is told of each partition: (error code, message)."""
    entity = read_response(0, version, frame)
    return {
        (_name(topic, version), part.index): (int(part.error_code), getattr(part, "error_message", None))
        for topic in entity.responses
        for part in topic.partition_responses
    }


def throttle(frame: bytes, version: int = 9) -> float:
    """Seconds."""
    seconds: float = read_response(0, version, frame).throttle_time.total_seconds()
    return seconds


def _name(topic: Any, version: int) -> str:
    found: str = topic.name if version < 13 else topic.topic_id.bytes.rstrip(b"-").decode()
    return found
