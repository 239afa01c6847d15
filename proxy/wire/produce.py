"""Produce (key 0, versions 0-13): the skim. What is in a request, without its records.

In: the body of a request, whole or in chunks. Out: acks, and of each partition the size of its records and the header
of its batch. Records are neither decoded, decompressed nor copied. Source: ProduceRequest.json of Apache Kafka 4.3; the
batch header is that of magic 2 (KIP-98). Since version 3 a partition holds exactly one such batch; older versions and
magics give sizes only."""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Final, NamedTuple

from proxy.wire.frames import Frame
from proxy.wire.headers import response_body
from proxy.wire.primitives import INT32, BadBytes, Buffer, array, skip_tags, span, uvarint
from proxy.wire.walk import Reading, Walk, Window, read_tags, read_text, read_topic

VERSIONS: Final = (0, 13)
FIRST_COMPACT: Final = 9
FIRST_TOPIC_ID: Final = 13
BATCH: Final = Struct(">16xb26xqhii")
"""magic, producer id, producer epoch, base sequence, number of records: the first 61 bytes of a batch"""
_ACKS_TIMEOUT: Final = Struct(">hi")
_NAME_NEED: Final = 300
MAX_REMEMBERED: Final = 256
"""partitions of a connection whose requests are remembered"""
_PARTITION_NEED: Final = 4 + 5 + BATCH.size


class Batch(NamedTuple):
    """The records of one partition. `size` in bytes; `records` is None, and the producer id -1, where the batch has no
    header of magic 2."""

    partition: int
    size: int
    producer_id: int
    epoch: int
    base_sequence: int
    records: int | None


class Skim:
    """A Produce request: `topics` are (name as UTF-8, or topic id as 16 bytes from version 13 on; its batches)."""

    __slots__ = ("acks", "exact", "topics")

    def __init__(self) -> None:
        self.acks = -1
        self.exact = False
        """nothing stands behind the body"""
        self.topics: list[tuple[bytes, list[Batch]]] = []


def skim(chunks: list[tuple[Buffer, int, int]], version: int) -> Skim:
    """Skim the body that is made of these (buffer, start, end), or raise `BadBytes`."""
    found = Skim()
    total = sum(end - start for _, start, end in chunks)
    walk = Walk(_read(found, version), total)
    for buf, start, end in chunks:
        walk.feed(buf, start, end)
    if not walk.done:
        raise BadBytes("a Produce request ends too early")
    found.exact = walk.at == total
    return found


def _read(found: Skim, version: int) -> Reading:
    compact = version >= FIRST_COMPACT
    window: Window = yield 0, _NAME_NEED
    if version >= 3:
        window, _ = yield from read_text(window, compact)  # transactional id
    buf, pos, end = window
    if end - pos < _NAME_NEED:
        buf, pos, end = yield pos, _NAME_NEED
    if end - pos < _ACKS_TIMEOUT.size:
        raise BadBytes("a Produce request ends too early")
    found.acks = _ACKS_TIMEOUT.unpack_from(buf, pos)[0]
    topics, pos = array(buf, pos + _ACKS_TIMEOUT.size, end, compact, 0)
    for _ in range(topics):
        buf, pos, end = yield from _topic(found, version, (buf, pos, end))
    if compact:
        buf, pos, end = yield from read_tags((buf, pos, end))
    if pos > end:
        _, pos, _ = yield pos, 0  # the last records have to be there
    return pos


def _topic(found: Skim, version: int, window: Window) -> Generator[tuple[int, int], Window, Window]:
    compact = version >= FIRST_COMPACT
    (buf, pos, end), topic, partitions = yield from read_topic(window, compact, version >= FIRST_TOPIC_ID)
    batches: list[Batch] = []
    found.topics.append((topic, batches))
    for _ in range(partitions):
        if end - pos < _PARTITION_NEED:
            buf, pos, end = yield pos, _PARTITION_NEED
        batch, pos = _batch(buf, pos, end, compact)
        batches.append(batch)
        if compact:
            if pos < end and buf[pos] == 0:
                pos += 1
            else:
                buf, pos, end = yield from read_tags((buf, pos, end))
    if compact:
        buf, pos, end = yield from read_tags((buf, pos, end))
    return buf, pos, end


def _batch(buf: Buffer, pos: int, end: int, compact: bool) -> tuple[Batch, int]:
    """The batch whose partition index is at `pos`, and the position behind its records, which may lie behind the window."""
    if end - pos < 5:
        raise BadBytes("a Produce request ends too early")
    size, start = records_size(buf, pos + 4, end, compact)
    if size >= BATCH.size and end - start >= BATCH.size:
        magic, producer_id, epoch, sequence, count = BATCH.unpack_from(buf, start)
        if magic == 2:
            index = INT32.unpack_from(buf, pos)[0]
            return Batch(index, size, producer_id, epoch, sequence, count if count >= 0 else None), start + size
    return Batch(INT32.unpack_from(buf, pos)[0], size, -1, -1, -1, None), start + size


def records_size(buf: Buffer, pos: int, end: int, compact: bool) -> tuple[int, int]:
    """(size in bytes, 0 when null; where they start) of a partition's records. What they take need not be in the window."""
    if compact:
        size, start = uvarint(buf, pos, end)
        size -= 1
    else:
        if end - pos < 4:
            raise BadBytes("a length is cut off")
        size, start = INT32.unpack_from(buf, pos)[0], pos + 4
    if size < -1:
        raise BadBytes(f"records of length {size}")
    return max(size, 0), start


Alike = tuple[bytes, int, int, int, int, int, int, int]
"""topic, acks, then the fields of its one `Batch`. A plain tuple, as there is one per request."""


class Remembered:
    """What the requests of one connection begin with, so that the next that begins alike need not be read byte by byte.

    Only for the commonest request, one batch of one partition: what stands before the size of its records (transactional
    id, acks, timeout, topic, partition) is the same every time. It is compared as a whole, so that a request is only ever
    taken for what it is.
    """

    __slots__ = ("_known", "_length", "_version", "compact")

    def __init__(self, version: int) -> None:
        self.compact = version >= FIRST_COMPACT
        self._version = version
        self._length = 0
        self._known: dict[Buffer, tuple[bytes, int, int]] = {}

    def look(self, frame: Frame, pos: int) -> Alike | None:
        """What the request whose header ends at `pos` holds; None when it is not alike."""
        buf, start, end, chunks = frame
        there = end  # how far buf goes
        if chunks is not None:
            end = start + sum(map(len, chunks))
        start = pos + self._length
        known = self._known.get(buf[pos:start])
        if known is None or there - start < BATCH.size + 5:
            return None
        if self.compact:
            size, start = uvarint(buf, start, there)
            size -= 1
            tail = buf[end - 3 : end] if chunks is None else chunks[-1][-3:]
            if start + size + 3 != end or tail != b"\0\0\0":
                return None
        else:
            size = INT32.unpack_from(buf, start)[0]
            start += 4
            if start + size != end:
                return None
        magic, producer_id, epoch, sequence, count = BATCH.unpack_from(buf, start)
        if magic != 2 or count < 0 or size < BATCH.size:
            return None
        topic, acks, index = known
        return topic, acks, index, size, producer_id, epoch, sequence, count

    def remember(self, frame: Frame, pos: int, found: Skim) -> None:
        """A request that was read in full, in one piece; taken only if looking at it gives what reading it gave."""
        if not found.exact or len(found.topics) != 1 or len(found.topics[0][1]) != 1:
            return
        topic, (batch,) = found.topics[0]
        buf, _, end, _ = frame
        length = _records_at(buf, pos, end, self._version) - pos
        if length != self._length or len(self._known) >= MAX_REMEMBERED:
            self._known.clear()
            self._length = length
        key = bytes(buf[pos : pos + length])
        self._known[key] = (topic, found.acks, batch.partition)
        if self.look(frame, pos) != (topic, found.acks, *batch):
            del self._known[key]


def _records_at(buf: Buffer, pos: int, end: int, version: int) -> int:
    """Where the size of the records of the first partition stands, given where the client id ends."""
    compact = version >= FIRST_COMPACT
    if compact:
        pos = skip_tags(buf, pos, end)
    if version >= 3:
        _, pos = span(buf, pos, end, compact)
    _, pos = array(buf, pos + _ACKS_TIMEOUT.size, end, compact, 0)
    if version >= FIRST_TOPIC_ID:
        pos += 16
    else:
        _, pos = span(buf, pos, end, compact)
    _, pos = array(buf, pos, end, compact, 0)
    return pos + 4


def base_offset_at(frame: Buffer, start: int, end: int, version: int) -> int:
    """Where base offset, append time and start offset (24 bytes) stand in a response about one partition; -1 when about more."""
    pos = response_body(frame, start, end, 0, version)
    compact = version >= FIRST_COMPACT
    topics, pos = array(frame, pos, end, compact)
    if topics != 1:
        return -1
    if version >= FIRST_TOPIC_ID:
        pos += 16
    else:
        _, pos = span(frame, pos, end, compact)
    partitions, pos = array(frame, pos, end, compact)
    return pos + 6 if partitions == 1 else -1
