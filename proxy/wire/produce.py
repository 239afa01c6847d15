"""Produce (key 0, versions 0-13): the skim. What is in a request, without its records.

In: the body of a request, whole or in chunks. Out: acks, and of each partition the size of its records and the header
of its batch. Records are neither decoded, decompressed nor copied. Source: ProduceRequest.json of Apache Kafka 4.3; the
batch header is that of magic 2 (KIP-98). Since version 3 a partition holds exactly one such batch; older versions and
magics give sizes only."""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from librt.strings import read_i16_be, read_i32_be, read_i64_be

from proxy.wire.frames import Place
from proxy.wire.headers import response_body
from proxy.wire.primitives import INT16, INT32, BadBytes, Buffer, array, fixed, int16, int32, int64, skip_tags, span, uvarint
from proxy.wire.walk import DONE, SHORT, Reading, TopicReader, Walk, Window, read_tags, read_text, topic_head

if TYPE_CHECKING:
    from mypy_extensions import i64

VERSIONS: Final = (0, 13)
FIRST_COMPACT: Final = 9
FIRST_TOPIC_ID: Final = 13
FIRST_MESSAGE: Final = 8
"""the first version whose response says why a batch was refused (KIP-467)"""
BATCH: Final = Struct(">16xb26xqhii")
"""magic, producer id, producer epoch, base sequence, number of records: the first 61 bytes of a batch"""
_ACKS_TIMEOUT: Final[i64] = 2 + 4
_NAME_NEED: Final = 300
MAX_TOPICS: Final = 100_000
MAX_UNUSUAL: Final = 200_000
"""parts of a request (partitions, ends of topics) that are not read in the plain loop, but for the ends of pieces: what no producer
sends, as a partition without a batch; reading this many takes some tenths of a second"""
LEAST: Final[i64] = 61
"""bytes of a batch without records, up to where the first record begins: `BATCH`"""
_PARTITION_NEED: Final[i64] = 4 + 5 + LEAST
NO_ID_YET: Final[i64] = -(1 << 62)
"""no batch was looked at, so no producer id is the same as the last"""
MAX_PRODUCER_IDS: Final = 10
"""of one request; a producer has one"""
MAGIC_AT: Final[i64] = 16
PRODUCER_ID_AT: Final[i64] = 43
COUNT_AT: Final[i64] = 57


class Batch(NamedTuple):
    """The records of one partition, in a request."""

    partition: int
    size: int
    """bytes"""
    producer_id: int
    """-1 of a producer without one, and where the batch has no header of magic 2"""
    epoch: int
    sequence: int
    """of its first record"""
    records: int | None
    """None where it has no header of magic 2"""
    start: int
    """where the partition begins in the body of the request, and where its records end"""
    stop: int


class Skim(TopicReader):
    """A Produce request."""

    # fmt: off
    __slots__ = (
        "_batches", "_met", "acks", "batches", "exact", "partition_count", "producer_ids", "topics_at", "walk",
    )
    # fmt: on

    def __init__(self, version: int, details: bool, producer_ids: bool) -> None:
        super().__init__(version >= FIRST_COMPACT, version >= FIRST_TOPIC_ID)
        self.acks = -1
        self.exact = False
        """nothing stands behind the body"""
        self.partition_count = 0
        self.topics_at = 0
        """where the topics begin in the body, if `batches` are wanted"""
        self.walk: Walk | None = None
        self.batches: list[list[Batch]] | None = [] if details else None
        """of each topic, if they are wanted"""
        self.producer_ids: list[int] | None = [] if producer_ids else None
        """of all batches, if wanted: each once, `MAX_PRODUCER_IDS` and one more at most; -1 of batches without one"""
        self._batches: list[Batch] = []
        self._met: i64 = NO_ID_YET  # the id of the last batch: mostly the next has the same

    def finish(self) -> None:
        super().finish()
        if self.batches is not None:
            self.batches.append(self._batches)
            self._batches = []

    def partitions(self, buf: bytes, pos: i64, end: i64) -> i64:
        """As long as each has a batch of magic 2 and no tagged fields. The loop in which large requests are read."""
        left: i64 = self.left
        last: i64 = end - _PARTITION_NEED
        carried: i64 = 0
        records: i64 = 0
        met: i64 = self._met
        compact, ids, details = self.compact, self.producer_ids, self.batches is not None
        while left > 0 and pos <= last:
            head: int = read_i32_be(buf, pos + 4)
            word: i64 = head
            if compact and word & 0x80808000 == 0x80800000:  # a length of three bytes, as that of 16 KiB, or of two: at a glance
                size, start = (word >> 24 & 0x7F | word >> 9 & 0x3F80 | word << 6 & 0x1FC000) - 1, pos + 7
            elif compact and word & 0x80800000 == 0x80000000:
                size, start = (word >> 24 & 0x7F | word >> 9 & 0x3F80) - 1, pos + 6
            else:
                size, start = records_size(buf, pos + 4, end, compact)
            stop = start + size
            if size < LEAST or (compact and (stop >= end or buf[stop] != 0)) or buf[start + MAGIC_AT] != 2:
                break
            number: int = read_i32_be(buf, start + COUNT_AT)
            count: i64 = number
            if count < 0:
                break
            if details:
                self._note(buf, pos, start, end, size, count)
            if ids is not None:
                producer_id = read_i64_be(buf, start + PRODUCER_ID_AT)
                if producer_id != met:
                    met = producer_id
                    self._meet(ids, producer_id)
            carried += size
            records += count
            left -= 1
            pos = stop + 1 if compact else stop
        self.partition_count += self.left - left
        self.size += carried
        self.records += records
        self.left = left
        return pos

    def ahead(self, buf: bytes, pos: i64, end: i64) -> i64:
        """Count a partition whose records are not all there yet; where they will end, or `SHORT` if too little of it is there."""
        if self.left <= 0 or end - pos < _PARTITION_NEED:
            return SHORT
        self.left -= 1
        return self._any(buf, pos, end)

    def partition(self, window: Window) -> Generator[tuple[int, int], Window, Window]:
        buf, pos, end = window
        if end - pos < _PARTITION_NEED:
            buf, pos, end = yield pos, _PARTITION_NEED
        pos = self._any(buf, pos, end)
        if self.compact:
            buf, pos, end = yield from read_tags((buf, pos, end))
        return buf, pos, end

    def _any(self, buf: bytes, pos: i64, end: i64) -> i64:
        """Read a partition, whatever its records are; the position behind them, which may lie behind the window."""
        if end - pos < 5:
            raise BadBytes("a Produce request ends too early")
        size, start = records_size(buf, pos + 4, end, self.compact)
        count = record_count(buf, start) if size >= BATCH.size and end - start >= BATCH.size else -1
        if self.batches is not None:
            self._note(buf, pos, start, end, size, count)
        if self.producer_ids is not None and size >= BATCH.size and end - start >= BATCH.size and buf[start + MAGIC_AT] == 2:
            self._meet(self.producer_ids, int64(buf, start + PRODUCER_ID_AT))
        self.partition_count += 1
        self.size += size
        self.records += max(count, 0)
        return start + size

    def _meet(self, ids: list[int], producer_id: i64) -> None:
        """Add the producer id of a batch."""
        self._met = producer_id
        if len(ids) <= MAX_PRODUCER_IDS and producer_id not in ids:
            ids.append(producer_id)

    def _note(self, buf: bytes, pos: int, start: int, end: int, size: int, count: int) -> None:
        """List the batch at `start` of the partition at `pos`."""
        assert self.walk is not None
        base = self.walk.base
        index, at, stop = INT32.unpack_from(buf, pos)[0], base + pos, base + start + size
        if size >= BATCH.size and end - start >= BATCH.size and buf[start + MAGIC_AT] == 2:
            _, producer_id, epoch, sequence, _ = BATCH.unpack_from(buf, start)
            self._batches.append(Batch(index, size, producer_id, epoch, sequence, count if count >= 0 else None, at, stop))
        else:
            self._batches.append(Batch(index, size, -1, -1, -1, None, at, stop))


def skim(pieces: list[Place], version: int, *, details: bool = False, producer_ids: bool = False) -> Skim:
    """Skim the body that is made of these pieces, or raise `BadBytes`. `details`: list the batches too; `producer_ids`: their
    producer ids."""
    if not details:
        found = Skim(version, details, producer_ids)
        if _usual(found, pieces, version):
            return found
    found = Skim(version, details, producer_ids)
    total = 0
    for _, start, end in pieces:
        total += end - start
    walk = Walk(_read(found, version), total)
    if details:
        found.walk = walk
    for buf, start, end in pieces:
        walk.feed(buf, start, end)
    if not walk.done:
        raise BadBytes("a Produce request ends too early")
    found.exact = walk.at == total
    found.walk = None  # a cycle
    return found


def _usual(found: Skim, pieces: list[Place], version: int) -> bool:
    """Read a body that holds nothing unusual and whose pieces end in records or between partitions; False if it is another, and
    then only a part of it may be read. No walk, which costs more than all this."""
    at = 0
    buf, pos, end = pieces[0]
    try:
        if version >= 3:
            _, pos = span(buf, pos, end, found.compact)  # transactional id
        pos = _begin(found, buf, pos, end)
    except BadBytes:
        if len(pieces) > 1:  # the first one may just be short of it
            return False
        raise
    while True:
        at, pos = _onward(pieces, at, pos)
        buf, _, end = pieces[at]
        pos = found.usual(buf, pos, end)
        if found.done:
            break
        if pos < end:
            pos = found.ahead(buf, pos, end)
            if pos < end:
                return False
            if found.compact:
                at, pos = _onward(pieces, at, pos)
                if not _no_tags(pieces[at], pos):
                    return False
                pos += 1
        elif at + 1 == len(pieces):
            return False
    at, pos = _onward(pieces, at, pos)
    if found.compact:
        if not _no_tags(pieces[at], pos):
            return False
        pos += 1
    _, _, end = pieces[at]
    found.exact = pos == end and at + 1 == len(pieces)
    return pos <= end


def _onward(pieces: list[Place], at: i64, pos: i64) -> tuple[i64, i64]:
    """(piece, position in it) of a position that lies behind the end of piece `at`, or in it. Behind the last one it stays so."""
    _, _, end = pieces[at]
    while pos >= end and at + 1 < len(pieces):
        behind = pos - end
        at += 1
        _, pos, end = pieces[at]
        pos += behind
    return at, pos


def _no_tags(piece: Place, pos: i64) -> bool:
    """Is there a section of tagged fields at this position that holds none?"""
    buf, _, end = piece
    return pos < end and buf[pos] == 0


def _begin(found: Skim, buf: bytes, pos: i64, end: i64) -> i64:
    """Acks and timeout are at `pos`; the position behind the number of topics."""
    if end - pos < _ACKS_TIMEOUT:
        raise BadBytes("a Produce request ends too early")
    found.acks = int16(buf, pos)
    pos = found.start(buf, pos + _ACKS_TIMEOUT, end)
    if found.topics_left > MAX_TOPICS:
        raise BadBytes(f"a Produce request of {found.topics_left} topics; {MAX_TOPICS} is the limit")
    return pos


def _read(found: Skim, version: int) -> Reading:
    window: Window = yield 0, _NAME_NEED
    if version >= 3:
        window, _ = yield from read_text(window, found.compact)  # transactional id
    buf, pos, end = window
    if end - pos < _NAME_NEED:
        buf, pos, end = yield pos, _NAME_NEED
    if found.walk is not None:
        found.topics_at = found.walk.base + pos + _ACKS_TIMEOUT
    pos = _begin(found, buf, pos, end)
    unusual = 0
    while True:
        pos = found.usual(buf, pos, end)
        if found.done:
            break
        unusual += 1
        if unusual > MAX_UNUSUAL:
            raise BadBytes(f"a Produce request with more than {MAX_UNUSUAL} partitions without a batch")
        buf, pos, end = yield from found.careful((buf, pos, end))
    if found.compact:
        buf, pos, end = yield from read_tags((buf, pos, end))
    if pos > end:
        _, pos, _ = yield pos, 0  # the last records have to be there
    yield pos, DONE


def record_count(buf: bytes, at: i64) -> i64:
    """The number of records of the batch at `at`, whose header has to be there; negative when it is not of magic 2."""
    if buf[at + MAGIC_AT] != 2:  # one expression of both would make an object of the number
        return -1
    return int32(buf, at + COUNT_AT)


def records_size(buf: bytes, pos: i64, end: i64, compact: bool) -> tuple[i64, i64]:
    """(size in bytes, 0 when null; where they start) of a partition's records. What they take need not be in the window."""
    size: i64 = 0
    start: i64 = 0
    if compact:
        size, start = uvarint(buf, pos, end)
        size -= 1
    else:
        if end - pos < 4:
            raise BadBytes("a length is cut off")
        size, start = int32(buf, pos), pos + 4
    if size < -1:
        raise BadBytes(f"records of length {size}")
    return max(size, 0), start


def records_at(buf: Buffer, pos: int, end: int, version: int) -> int:
    """Where the size of the records of the first partition stands, given where the client id ends."""
    compact = version >= FIRST_COMPACT
    if compact:
        pos = skip_tags(buf, pos, end)
    if version >= 3:
        _, pos = span(buf, pos, end, compact)
    _, pos = array(buf, pos + _ACKS_TIMEOUT, end, compact, 0)
    if version >= FIRST_TOPIC_ID:
        pos += 16
    else:
        _, pos = span(buf, pos, end, compact)
    _, pos = array(buf, pos, end, compact, 0)
    return pos + 4


def went_well(frame: bytes, start: i64, end: i64, version: int) -> bool:
    """Is this a response in which every partition was written and nothing else is told: no error, no message, no node endpoints?
    False where that cannot be told at a glance."""
    pos: i64 = response_body(frame, start, end, 0, version)
    compact = version >= FIRST_COMPACT
    topics, pos = array(frame, pos, end, compact)
    size: i64 = answer_size(version)
    while topics > 0:  # nothing is called `_` here, as that takes an object of each number
        topics -= 1
        if version >= FIRST_TOPIC_ID:
            pos = fixed(pos, 16, end)
        else:
            _name, pos = span(frame, pos, end, compact)
        partitions, pos = array(frame, pos, end, compact, 0)
        stop = pos
        if partitions > 0:
            stop += partitions * size
        if stop > end or (compact and stop == end) or not _all_written(frame, pos, stop, size, version):
            return False
        pos = stop
        if compact:
            if frame[pos] != 0:
                return False
            pos += 1
    pos += 4 if version >= FIRST_THROTTLE else 0
    return pos + 1 == end and frame[pos] == 0 if compact else pos == end


def _all_written(frame: bytes, pos: i64, stop: i64, size: i64, version: int) -> bool:
    """Have these partitions no error, and nothing behind their numbers: no record errors, no message, no tagged fields?"""
    behind: i64 = 6 + numbers_size(version)
    compact, told_why = version >= FIRST_COMPACT, version == FIRST_MESSAGE
    while pos < stop:
        code: int = read_i16_be(frame, pos + 4)
        if code:
            return False
        if compact:  # no record errors, null or an empty array; no message; no tagged fields. One byte more is there at least
            four: int = read_i32_be(frame, pos + behind)
            rest: i64 = four
            if rest & _SOMETHING:
                return False
        elif told_why and (int32(frame, pos + behind) or int16(frame, pos + behind + 4) != -1):
            return False
        pos += size
    return True


_SOMETHING: Final[i64] = 0xFEFFFF00
"""What is 0 in four bytes that begin with an array, a string and tagged fields if nothing is told there."""


def errors_of(frame: bytes, version: int) -> dict[tuple[bytes, int], int]:
    """The error codes of a whole response frame, 0 of what was written, by topic (UTF-8, or 16 bytes of an id) and partition."""
    end = len(frame)
    pos = response_body(frame, 0, end, 0, version)
    compact = version >= FIRST_COMPACT
    behind = 6 + numbers_size(version)
    found: dict[tuple[bytes, int], int] = {}
    topics, pos = array(frame, pos, end, compact)
    for _ in range(topics):
        topic, partitions, pos = topic_head(frame, pos, end, compact, version >= FIRST_TOPIC_ID)
        for _ in range(partitions):
            after = fixed(pos, behind, end)
            found[topic, INT32.unpack_from(frame, pos)[0]] = INT16.unpack_from(frame, pos + 4)[0]
            pos = _skip_reasons(frame, after, end, compact) if version >= FIRST_MESSAGE else after
        if compact:
            pos = skip_tags(frame, pos, end)
    return found


def _skip_reasons(frame: bytes, pos: int, end: int, compact: bool) -> int:
    """The position behind the record errors, the message and the tagged fields of a partition."""
    errors, pos = array(frame, pos, end, compact)
    for _ in range(errors):
        _, pos = span(frame, fixed(pos, 4, end), end, compact)
        if compact:
            pos = skip_tags(frame, pos, end)
    _, pos = span(frame, pos, end, compact)
    return skip_tags(frame, pos, end) if compact else pos


def numbers_size(version: int) -> int:
    """Bytes of base offset, append time and start offset of a partition in a response, as far as the version has them."""
    return 8 if version < 2 else 16 if version < 5 else 24


def answer_size(version: int) -> int:
    """Bytes of a partition in a response that has nothing to tell of it: index, error code, the numbers, and what is empty behind
    them: record errors and message from version 8 on, tagged fields from version 9 on."""
    return 6 + numbers_size(version) + (3 if version >= FIRST_COMPACT else 6 if version == FIRST_COMPACT - 1 else 0)


def base_offset_at(frame: Buffer, start: int, end: int, version: int) -> int:
    """Where the numbers (`numbers_size`) stand in a response about one partition; -1 when about more."""
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


FIRST_THROTTLE: Final = 1
"""the first version whose response has a throttle time: the last of it, but for tagged fields"""


def throttle_at(frame: Buffer, start: int, end: int, version: int) -> int:
    """Where the throttle time stands in the response frame at `start`; -1 for version 0, which has none."""
    if version < FIRST_THROTTLE:
        return -1
    if version < FIRST_COMPACT:
        return fixed(start, 12, end) and end - 4
    pos = response_body(frame, start, end, 0, version)
    data, behind = bytes(frame), 6 + numbers_size(version)
    topics, pos = array(data, pos, end, True)
    for _ in range(topics):
        _, partitions, pos = topic_head(data, pos, end, True, version >= FIRST_TOPIC_ID)
        for _ in range(partitions):
            pos = _skip_reasons(data, fixed(pos, behind, end), end, True)
        pos = skip_tags(data, pos, end)
    return fixed(pos, 4, end) - 4


def with_throttle(frame: Buffer, version: int, throttle_ms: int) -> bytes:
    """A whole response that tells of a throttle time, the broker's own if that is larger."""
    at = throttle_at(frame, 0, len(frame), version)
    if at < 0 or INT32.unpack_from(frame, at)[0] >= throttle_ms:
        return bytes(frame)
    return b"".join((frame[:at], INT32.pack(throttle_ms), frame[at + 4 :]))
