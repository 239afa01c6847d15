"""ShareFetch (key 78, versions 1-2, KIP-932): what a response carries, read while it streams through.

In: the body of a response in chunks as they come. Out: bytes of records per topic id, and how many node endpoints it
names; these stand behind all records, before the tagged fields of the response. Records are neither decoded nor copied.
Source: ShareFetchResponse.json of Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from proxy.wire.fetch import blank_tags
from proxy.wire.primitives import BadBytes, array
from proxy.wire.produce import records_size
from proxy.wire.walk import DONE, Reading, TopicPart, Window, read_tags, read_text, read_topic

VERSIONS: Final = (1, 2)
_HEAD: Final = 4 + 2
"""throttle time, error code; the error message follows"""
_PARTITION: Final = 4 + 2
"""partition, error code; the error message follows"""
_ACQUIRED: Final = 8 + 8 + 2
"""first offset, last offset, delivery count; tagged fields follow"""
_LENGTH_NEED: Final = 5
_SHORTEST_ENDPOINT: Final = 4 + 1 + 4 + 1 + 1


class ShareFetchSums:
    """What a response carries of each topic, by its id."""

    __slots__ = ("endpoints", "topics")

    def __init__(self) -> None:
        self.topics: list[TopicPart] = []
        self.endpoints = 0
        """node endpoints at its end"""


def read_share_fetch(found: ShareFetchSums, body: int) -> Reading:
    """The reading of a response whose body starts `body` bytes behind its start, for `Walk`. It ends where the node
    endpoints start."""
    buf, pos, end = yield body, _HEAD + 1
    (buf, pos, end), _ = yield from read_text((buf, pos + _HEAD, end), compact=True)
    pos += 4  # acquisition lock timeout
    if end - pos < _LENGTH_NEED:
        buf, pos, end = yield pos, _LENGTH_NEED
    topics, pos = array(buf, pos, end, compact=True, least=0)
    for _ in range(topics):
        buf, pos, end = yield from _topic(found, (buf, pos, end))
    if end - pos < _LENGTH_NEED:
        buf, pos, end = yield pos, _LENGTH_NEED
    endpoints, _ = array(buf, pos, end, compact=True, least=0)
    found.endpoints = max(endpoints, 0)
    yield pos, DONE


def _topic(found: ShareFetchSums, window: Window) -> Generator[tuple[int, int], Window, Window]:
    window, topic, partitions = yield from read_topic(window, compact=True, by_id=True)
    carried = 0
    for _ in range(partitions):
        window, size = yield from _partition(window)
        carried += size
    found.topics.append(TopicPart(topic, carried))
    return (yield from read_tags(window))


def _partition(window: Window) -> Generator[tuple[int, int], Window, tuple[Window, int]]:
    """(window behind it, bytes of its records)."""
    buf, pos, end = window
    (buf, pos, end), _ = yield from read_text((buf, pos + _PARTITION, end), compact=True)
    (buf, pos, end), _ = yield from read_text((buf, pos + 2, end), compact=True)  # error code and message of acknowledgements
    buf, pos, end = yield from read_tags((buf, pos + 8, end))  # current leader: id, epoch
    if end - pos < _LENGTH_NEED:
        buf, pos, end = yield pos, _LENGTH_NEED
    size, pos = records_size(buf, pos, end, compact=True)
    pos += size
    if end - pos < _LENGTH_NEED:
        buf, pos, end = yield pos, _LENGTH_NEED
    acquired, pos = array(buf, pos, end, compact=True, least=0)
    for _ in range(acquired):
        buf, pos, end = yield from read_tags((buf, pos + _ACQUIRED, end))
    return (yield from read_tags((buf, pos, end))), size


def blank_endpoints(size: int) -> bytes:
    """`size` bytes to stand in the place of node endpoints and of the tagged fields behind them: no endpoint, and one
    tagged field that is not in use."""
    if size < 1 + _SHORTEST_ENDPOINT + 1:
        raise BadBytes(f"node endpoints in {size} bytes")
    return b"\1" + blank_tags(size - 1)
