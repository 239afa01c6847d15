"""Fetch (key 1, versions 0-18): what a response carries, read while it streams through.

In: the body of a response in chunks as they come. Out: bytes of records per topic, how many of them are far behind the end of the
log, and whether it names node endpoints (KIP-951), which stand at its very end. Records are neither decoded nor copied. Source:
FetchResponse.json of Apache Kafka 4.3, and of 3.9 for versions below 4."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from proxy.wire.frames import Place
from proxy.wire.primitives import BadBytes, array, int64
from proxy.wire.produce import records_size
from proxy.wire.walk import DONE, SHORT, Reading, TopicReader, Walk, Window, read_tags

if TYPE_CHECKING:
    from mypy_extensions import i64

VERSIONS: Final = (0, 18)
FIRST_COMPACT: Final = 12
FIRST_TOPIC_ID: Final = 13
_HEAD_NEED: Final = 4 + 2 + 4 + 5
_BEHIND_FIXED: Final[i64] = 1 + 4 + 5 + 4
"""what the reading of a partition needs to see behind its fixed fields: no aborted transactions, replica, length of records"""
_ABORTED_SIZE: Final = 16
_HIGH_WATERMARK: Final = 4 + 2
"""where it stands in a partition"""
_OFFSET: Final = 8
"""bytes of an offset; records begin with that of the first one of their batch, which a consumer may have asked for or one behind"""


class FetchSums(TopicReader):
    """What a response carries, in `topics`, those without records included. `cold`: bytes of those partitions whose first record is
    more than `lag` offsets behind the high watermark; -1 does not look."""

    __slots__ = ("_fixed", "_lag", "_version", "cold", "root_tags")

    def __init__(self, version: int, lag: int = -1) -> None:
        super().__init__(version >= FIRST_COMPACT, version >= FIRST_TOPIC_ID)
        self._lag: i64 = lag
        self.cold: i64 = 0
        self.root_tags = 0
        """tagged fields of the response itself, in a section at its end; node endpoints are one"""
        self._version = version
        # partition, error code, high watermark, last stable offset, log start offset
        self._fixed: i64 = 4 + 2 + 8 + (8 if version >= 4 else 0) + (8 if version >= 5 else 0)

    def partitions(self, buf: bytes, pos: i64, end: i64) -> i64:
        """As long as they have no tagged fields and no aborted transactions, which not all versions tell in one byte."""
        if self._version < FIRST_COMPACT:
            return pos
        fixed_size = self._fixed
        last = end - fixed_size - _BEHIND_FIXED
        while self.left > 0 and pos <= last and buf[pos + fixed_size] <= 1:  # none, or null
            size, start = records_size(buf, pos + fixed_size + 5, end, True)  # behind the preferred read replica
            stop = start + size
            if stop >= end or buf[stop] != 0:
                break
            self.size += size
            if self._lag >= 0 and size >= _OFFSET:
                self._look(int64(buf, pos + _HIGH_WATERMARK), int64(buf, start), size)
            self.left -= 1
            pos = stop + 1
        return pos

    def ahead(self, buf: bytes, pos: i64, end: i64) -> i64:
        """Count the last partition of all, whose records are not all there yet; where they will end, or `SHORT` if it is not the
        last one or too little of it is there."""
        fixed_size = self._fixed
        if self.left != 1 or self.topics_left or end - pos < fixed_size + _BEHIND_FIXED + _OFFSET or buf[pos + fixed_size] > 1:
            return SHORT
        size, start = records_size(buf, pos + fixed_size + 5, end, True)
        self.size += size
        if self._lag >= 0 and size >= _OFFSET:
            self._look(int64(buf, pos + _HIGH_WATERMARK), int64(buf, start), size)
        self.left = 0
        self._end()
        return start + size

    def partition(self, window: Window) -> Generator[tuple[int, int], Window, Window]:
        buf, pos, end = window
        if end - pos < self._fixed + _BEHIND_FIXED:
            buf, pos, end = yield pos, self._fixed + _BEHIND_FIXED
            if end - pos <= self._fixed:
                raise BadBytes("a Fetch response ends too early")
        high_watermark = int64(buf, pos + _HIGH_WATERMARK)
        pos += self._fixed
        if self._version >= 4:
            if self.compact and buf[pos] <= 1:  # none, or null
                pos += 1
            else:
                buf, pos, end = yield from _skip_aborted((buf, pos, end), self.compact)
        if self._version >= 11:
            pos += 4  # preferred read replica
        if end - pos < 5:
            buf, pos, end = yield pos, 5
        size, pos = records_size(buf, pos, end, self.compact)
        self.size += size
        if self._lag >= 0 and size >= _OFFSET:
            if end - pos < _OFFSET:
                buf, pos, end = yield pos, _OFFSET
            if end - pos >= _OFFSET:
                self._look(high_watermark, int64(buf, pos), size)
        pos += size
        if self.compact:
            buf, pos, end = yield from read_tags((buf, pos, end))
        return buf, pos, end

    def _look(self, high_watermark: i64, first: i64, size: i64) -> None:
        """The records of a partition begin at this offset."""
        if high_watermark - first > self._lag:
            self.cold += size


def read_fetch(found: FetchSums, version: int, body: int) -> Reading:
    """The reading of a response whose body starts `body` bytes behind its start, for `Walk`. It ends where the tagged
    fields of the response start."""
    buf, pos, end = yield body, _HEAD_NEED
    pos = found.start(buf, pos + _head(version), end)
    while True:
        pos = found.usual(buf, pos, end)
        if found.done:
            break
        buf, pos, end = yield from found.careful((buf, pos, end))
    if not found.compact:
        if pos > end:
            _, pos, _ = yield pos, 0  # the last records have to be there
        yield pos, DONE
        return
    if end - pos < 1:
        buf, pos, end = yield pos, 1
    if pos >= end:
        raise BadBytes("a Fetch response ends too early")
    found.root_tags = buf[pos]
    yield pos, DONE


def _head(version: int) -> int:
    """Bytes before the topics: throttle time; error code and session id."""
    return (4 if version >= 1 else 0) + (6 if version >= 7 else 0)


def usual_sums(buf: bytes, start: i64, end: i64, version: int, body: i64, lag: int = -1) -> FetchSums:
    """What the whole response at buf[start:end] carries, by way of `fetch_sums` if something in it is unusual."""
    if version >= FIRST_COMPACT:
        found = FetchSums(version, lag)
        pos = found.usual(buf, found.start(buf, start + body + _head(version), end), end)
        if found.done and pos < end:
            found.root_tags = buf[pos]
            return found
    return fetch_sums([(buf, start, end)], version, body, lag)


def fetch_sums(pieces: list[Place], version: int, body: int, lag: int = -1) -> FetchSums:
    """What the whole response that is made of these pieces carries."""
    found = FetchSums(version, lag)
    total = 0
    for _, start, end in pieces:
        total += end - start
    walk = Walk(read_fetch(found, version, body), total)
    for buf, start, end in pieces:
        walk.feed(buf, start, end)
    return found


def sums_ahead(buf: bytes, start: i64, size: i64, version: int, body: i64, lag: int = -1) -> FetchSums | None:
    """What a response of `size` bytes carries, of which buf[start:] is there, if that ends in the records of the last partition and
    nothing is told behind them. None where that is not so, or not known yet."""
    if version < FIRST_COMPACT:
        return None
    found = FetchSums(version, lag)
    end: i64 = len(buf)
    try:
        pos = found.usual(buf, found.start(buf, start + body + _head(version), end), end)
        ends = found.ahead(buf, pos, end)
    except BadBytes:  # or the window ends too early
        return None
    return found if ends + TAGS_BEHIND == start + size else None


TAGS_BEHIND: Final[i64] = 3
"""bytes behind the last records if the partition, the topic and the response have no tagged fields: each says so in a byte"""

MAX_BLANK: Final = 1 << 24
"""Bytes; the endpoints of all nodes of a cluster take far fewer, and what a response says of its size is not believed."""


def blank_tags(size: int) -> bytes:
    """A section of tagged fields, `size` >= 3 bytes long, that says nothing: one field, whose tag is not in use, full of zeros."""
    if not 3 <= size <= MAX_BLANK:
        raise BadBytes(f"tagged fields in {size} bytes")
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
