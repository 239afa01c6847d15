"""Requests that stand one behind the other in a read and are alike, and the answers to them.

In: reads, and what earlier requests of the connection looked like. Out: how many requests or answers from a position on are like
those, and what these requests carry together. Requests of which only the header matters have the same API, version and client id
(`unread_requests`). Of Produce it is the commonest request, one batch of one partition: what stands before the size of its records
(client id, transactional id, acks, timeout, topic, partition) is the same every time. It is compared as a whole, so that a request
is only ever taken for what it is.

This is where most requests pass, so it is written for mypyc: integers are `i64`, which take no objects, and each position is
checked against the end of the read before anything is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.wire.frames import Frame
from proxy.wire.headers import CLIENT_ID_AT
from proxy.wire.primitives import int16, int32, int64
from proxy.wire.produce import (
    COUNT_AT,
    FIRST_COMPACT,
    LEAST,
    MAGIC_AT,
    PRODUCER_ID_AT,
    Skim,
    base_offset_at,
    numbers_size,
    records_at,
    went_well,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

MAX_REMEMBERED: Final = 256
"""Partitions of a connection whose requests are remembered."""
MAX_LENGTHS: Final = 4
"""Different lengths of what they begin with, as topics have names of different lengths."""


class Shape:
    """What the requests of one connection to one partition have in common, and what the broker's answers to them have."""

    __slots__ = ("_head", "_numbers", "_offsets_at", "_tail", "acks", "answer_size", "beginning", "topic", "version")

    def __init__(self, beginning: bytes, topic: bytes, acks: int, version: int) -> None:
        self.beginning, self.topic, self.acks, self.version = beginning, topic, acks, version
        self.answer_size: i64 = 0
        """bytes of an answer; 0 while none is known"""
        self._offsets_at: i64 = 0
        self._numbers: i64 = numbers_size(version)
        self._head = self._tail = b""
        """what stands before and behind the offsets of an answer, its size and correlation id left out"""

    def learn(self, data: bytes, start: int, end: int) -> None:
        """This is an answer; remember it if all was written and nothing else is told in it."""
        at = base_offset_at(data, start, end, self.version) if went_well(data, start, end, self.version) else -1
        if at > 0:
            self.answer_size, self._offsets_at = end - start, at - start
            self._head, self._tail = data[start + 8 : at], data[at + self._numbers : end]

    def answers(self, data: bytes, start: i64, correlation_id: i64, most: i64) -> i64:
        """Bytes of the answers at `start` that are like the one that was learned: up to `most`, the first to the request with this
        id, each of the following to the one behind it."""
        size, pos = self.answer_size, start
        if not size:
            return 0
        offsets, stop = self._offsets_at, self._offsets_at + self._numbers
        last = min(start + most * size, len(data)) - size
        while pos <= last:
            if int32(data, pos) != size - 4 or int32(data, pos + 4) != correlation_id:
                break
            if data[pos + 8 : pos + offsets] != self._head or data[pos + stop : pos + size] != self._tail:
                break
            correlation_id += 1
            pos += size
        return pos - start


class Run:
    """Requests that are alike, at data[start:stop]: their version, their number, the first one's correlation id (each of the
    following has the next). `shape`: of what their answers are like, None where each is looked at."""

    __slots__ = ("correlation_id", "count", "data", "shape", "start", "stop", "version")

    def __init__(self, shape: Shape | None, version: i64, data: bytes, start: i64) -> None:
        self.shape, self.data = shape, data
        self.version: i64 = version
        self.start: i64 = start
        self.stop: i64 = start
        self.count: i64 = 0
        self.correlation_id: i64 = 0


def unread_requests(data: bytes, start: i64, most: i64, largest: i64, client_id: bytes) -> Run | None:
    """The requests at `start` that are whole and have the API and version of the first and this client id, as the header has it:
    up to `most` of `largest` bytes each; None if there is none. Nothing else of them is looked at."""
    end: i64 = len(data)
    body: i64 = CLIENT_ID_AT + len(client_id)
    if end - start < body:
        return None
    kind = int32(data, start + 4)
    found = Run(None, int16(data, start + 6), data, start)
    while found.count < most and end - found.stop >= body:
        at = found.stop
        stop = at + 4 + int32(data, at)
        number = int32(data, at + 8)
        if stop > end or stop - at < body or stop - at > largest or data[at + CLIENT_ID_AT : at + body] != client_id:
            break
        if not found.count:
            found.correlation_id = number
        elif int32(data, at + 4) != kind or number != found.correlation_id + found.count:
            break
        found.count += 1
        found.stop = stop
    return found if found.count else None


class ProduceRun(Run):
    """Such requests to one partition, the bytes and records that they carry. `sizes`: bytes of the records of each."""

    __slots__ = ("carried", "producer_id", "records", "sizes")

    def __init__(self, shape: Shape, data: bytes, start: i64) -> None:
        super().__init__(shape, shape.version, data, start)
        self.producer_id: i64 = 0
        self.carried: i64 = 0
        self.records: i64 = 0
        self.sizes: list[int] = []


class Requests:
    """What the requests of one connection begin with, in one version. `claimed`: the client id that stands in them, as the header
    has it."""

    __slots__ = ("_known", "_lengths", "_version", "claimed", "compact")

    def __init__(self, version: int) -> None:
        self.compact = version >= FIRST_COMPACT
        self._version: i64 = version
        self._lengths: list[int] = []
        self._known: dict[bytes, Shape] = {}
        self.claimed = b""

    def run(self, data: bytes, start: i64, most: i64, largest: i64) -> ProduceRun | None:
        """The requests at `start` that are whole and alike, up to `most` of `largest` bytes each; None if there is none."""
        end: i64 = len(data)
        shape = self._shape(data, start, end)
        if shape is None:
            return None
        found = ProduceRun(shape, data, start)
        beginning = shape.beginning
        behind: i64 = CLIENT_ID_AT + len(beginning)
        while found.count < most and end - found.stop > behind + LEAST:
            at = found.stop
            stop = at + 4 + int32(data, at)
            if (
                stop > end
                or stop - at > largest
                or int32(data, at + 4) != self._version
                or data[at + CLIENT_ID_AT : at + behind] != beginning
            ):
                break
            if self.compact and (stop < at + behind + 3 or data[stop - 1] | data[stop - 2] | data[stop - 3]):
                break
            if not self._add(found, data, at, at + behind, end, stop):
                break
            found.stop = stop
        return found if found.count else None

    def one(self, frame: Frame) -> ProduceRun | None:
        """This request, which may have come in pieces; None if it is not like earlier ones."""
        data, at, there, chunks = frame
        shape = self._shape(data, at, there)
        if shape is None:
            return None
        stop = there if chunks is None else at + sum(map(len, chunks))
        behind = at + CLIENT_ID_AT + len(shape.beginning)
        found = ProduceRun(shape, data, at)
        if self.compact and (data[there - 3 : there] if chunks is None else chunks[-1][-3:]) != b"\0\0\0":
            return None
        if there - behind <= LEAST or not self._add(found, data, at, behind, there, stop):
            return None
        return found

    def _shape(self, data: bytes, start: i64, end: i64) -> Shape | None:
        """Of the request at `start`, by how it begins."""
        for length in self._lengths:
            if end - start >= CLIENT_ID_AT + length:
                shape = self._known.get(data[start + CLIENT_ID_AT : start + CLIENT_ID_AT + length])
                if shape is not None:
                    return shape
        return None

    def _add(self, found: ProduceRun, data: bytes, at: i64, pos: i64, there: i64, stop: i64) -> bool:
        """Add the request at data[at:stop], the size of whose records stands at `pos`, unless it is no further one of the run. What
        is there ends at `there`, more than `LEAST` bytes behind `pos`."""
        size: i64 = 0
        if self.compact:
            shift: i64 = 0
            while True:
                byte: i64 = data[pos]
                pos += 1
                size |= (byte & 0x7F) << shift
                if byte < 0x80:
                    break
                shift += 7
                if shift > 28:
                    return False
            size -= 1
            if pos + size + 3 != stop:
                return False
        else:
            size = int32(data, pos)
            pos += 4
            if pos + size != stop:
                return False
        if size < LEAST or there - pos < LEAST or data[pos + MAGIC_AT] != 2:
            return False
        records: i64 = int32(data, pos + COUNT_AT)
        correlation_id: i64 = int32(data, at + 8)
        producer_id: i64 = int64(data, pos + PRODUCER_ID_AT)
        if records < 0:
            return False
        if not found.count:
            found.correlation_id, found.producer_id = correlation_id, producer_id
        elif correlation_id != found.correlation_id + found.count or producer_id != found.producer_id:
            return False
        found.count += 1
        found.carried += size
        found.records += records
        found.sizes.append(size)
        return True

    def remember(self, frame: Frame, header_stop: int, found: Skim, claimed: bytes) -> None:
        """A request that was read in full, in one piece; taken only if looking at it gives what reading it gave."""
        if claimed is not self.claimed:
            self._forget()
            self.claimed = claimed
        if not found.exact or found.partition_count != 1 or len(found.topics) != 1:
            return
        part = found.topics[0]
        data, start, end, _ = frame
        beginning = data[start + CLIENT_ID_AT : records_at(data, header_stop, end, self._version)]
        length = len(beginning)
        if len(self._known) >= MAX_REMEMBERED or (length not in self._lengths and len(self._lengths) >= MAX_LENGTHS):
            self._forget()
        if length not in self._lengths:
            self._lengths.append(length)
        self._known[beginning] = Shape(beginning, part.topic, found.acks, self._version)
        alike = self.one(frame)
        if (
            alike is None
            or alike.shape is None
            or alike.shape.topic != part.topic
            or (alike.carried, alike.records) != (part.size, part.records)
        ):
            del self._known[beginning]

    def _forget(self) -> None:
        self._known.clear()
        self._lengths.clear()
