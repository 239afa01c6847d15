"""Fetch (key 1, versions 0-18): what a response carries, read while it streams through.

In: the body of a response in chunks as they come. Out: bytes of records per topic, and whether it names node endpoints
(KIP-951), which stand at its very end. Records are neither decoded nor copied. Source: FetchResponse.json of Apache
Kafka 4.3, and of 3.9 for versions below 4."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from proxy.wire.primitives import BadBytes, array
from proxy.wire.produce import records_size
from proxy.wire.walk import Reading, Window, read_tags, read_topic

VERSIONS: Final = (0, 18)
FIRST_COMPACT: Final = 12
FIRST_TOPIC_ID: Final = 13
_HEAD_NEED: Final = 4 + 2 + 4 + 5
_ABORTED_SIZE: Final = 16


class FetchSums:
    """What a response carries: (topic name as UTF-8, or its id as 16 bytes) -> bytes of records, 0 included."""

    __slots__ = ("root_tags", "topics")

    def __init__(self) -> None:
        self.topics: dict[bytes, int] = {}
        self.root_tags = 0
        """tagged fields of the response itself, in a section at its end; node endpoints are one"""


def read_fetch(found: FetchSums, version: int, body: int) -> Reading:
    """The reading of a response whose body starts `body` bytes behind its start, for `Walk`. It ends where the tagged
    fields of the response start."""
    compact = version >= FIRST_COMPACT
    head = (4 if version >= 1 else 0) + (6 if version >= 7 else 0)  # throttle time; error code and session id
    buf, pos, end = yield body, _HEAD_NEED
    topics, pos = array(buf, pos + head, end, compact, 0)
    for _ in range(topics):
        buf, pos, end = yield from _topic(found, version, (buf, pos, end))
    if not compact:
        if pos > end:
            _, pos, _ = yield pos, 0  # the last records have to be there
        return pos
    if end - pos < 1:
        buf, pos, end = yield pos, 1
    if pos >= end:
        raise BadBytes("a Fetch response ends too early")
    found.root_tags = buf[pos]
    return pos


def _topic(found: FetchSums, version: int, window: Window) -> Generator[tuple[int, int], Window, Window]:
    compact = version >= FIRST_COMPACT
    (buf, pos, end), topic, partitions = yield from read_topic(window, compact, version >= FIRST_TOPIC_ID)
    # partition, error code, high watermark, last stable offset, log start offset
    fixed = 4 + 2 + 8 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)
    carried = 0
    for _ in range(partitions):
        if end - pos < fixed + 14:
            buf, pos, end = yield pos, fixed + 14
            if end - pos <= fixed:
                raise BadBytes("a Fetch response ends too early")
        pos += fixed
        if version >= 4:
            if compact and buf[pos] <= 1:  # none, or null
                pos += 1
            else:
                buf, pos, end = yield from _skip_aborted((buf, pos, end), compact)
        if version >= 11:
            pos += 4  # preferred read replica
        if end - pos < 5:
            buf, pos, end = yield pos, 5
        size, pos = records_size(buf, pos, end, compact)
        carried += size
        pos += size
        if compact:
            if pos < end and buf[pos] == 0:
                pos += 1
            else:
                buf, pos, end = yield from read_tags((buf, pos, end))
    found.topics[topic] = found.topics.get(topic, 0) + carried
    if compact:
        buf, pos, end = yield from read_tags((buf, pos, end))
    return buf, pos, end


def blank_tags(size: int) -> bytes:
    """A section of tagged fields, `size` >= 3 bytes long, that says nothing: one field, whose tag nobody uses, full of zeros."""
    if size - 3 < 0x80:
        return bytes([1, _UNUSED_TAG, size - 3]) + bytes(size - 3)
    length = size - 6  # of a length that takes four bytes, however small it is
    groups = [length >> shift & 0x7F for shift in (0, 7, 14, 21)]
    return bytes([1, _UNUSED_TAG, *(group | 0x80 for group in groups[:3]), groups[3]]) + bytes(length)


_UNUSED_TAG: Final = 0x7F


def _skip_aborted(window: Window, compact: bool) -> Generator[tuple[int, int], Window, Window]:
    buf, pos, end = window
    count, pos = array(buf, pos, end, compact, 0)
    if not compact:
        return buf, pos + max(count, 0) * _ABORTED_SIZE, end
    for _ in range(count):
        buf, pos, end = yield from read_tags((buf, pos + _ABORTED_SIZE, end))
    return buf, pos, end
