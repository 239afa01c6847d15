"""Reading a frame that comes in pieces, without joining them and without waiting for the whole.

In: the chunks of one frame, in order. Out: calls of a generator that reads them. The generator yields `(position,
need)`: "go on at this position of the window I was given (which may lie far behind its end: what is between is
skipped), and give me `need` bytes in one piece". It is sent `(buffer, position, end)`, with fewer than `need` bytes
only where the frame ends, and yields the position where it is done with the need `DONE`: returning it would be an exception
for each frame. Only bytes that straddle two chunks are copied.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from proxy.wire.primitives import BadBytes, Buffer, array, as_bytes, few, fixed, span, uvarint

if TYPE_CHECKING:
    from mypy_extensions import i64

Window = tuple[bytes, int, int]
Reading = Generator[tuple[int, int], Window, None]

DONE: Final = -1
"""the need of a reading that is done"""

LONGEST_STRING: Final = 3 + 0x8000
"""bytes that a string takes at most, its length included"""
SHORT: Final = -2
"""in place of a position or a number: the window ends before what was to be read"""


class Walk:
    """One frame being read. `total` is the number of bytes it has from where the reading starts."""

    __slots__ = ("_carry", "_need", "_reading", "_seen", "_total", "at", "base", "done")

    def __init__(self, reading: Reading, total: int) -> None:
        self._reading = reading
        self._total = total
        self._seen = 0
        self._carry = b""
        self.base = 0
        """where the window that is being read starts: a position in the window plus this is one in the frame"""
        self.done = False
        # where the reading goes on, counted from the start of the frame; when it is done, where that was
        self.at, self._need = next(reading)

    def feed(self, buf: Buffer, start: int, end: int) -> None:
        """The next bytes of the frame are buf[start:end]. `BadBytes` when they are not what the reading expects."""
        buf = as_bytes(buf)
        base = self._seen - start  # position in the frame = base + position in buf
        self._seen += end - start
        while not self.done:
            need = min(self._need, self._total - self.at)
            if need < 0:
                raise BadBytes(f"{-need} bytes more than the frame has")
            if self.at + need > self._seen:
                if self.at < self._seen:
                    self._carry += buf[max(self.at - base, start) : end]
                return
            if not self._carry:
                self._step(buf, self.at - base, end, base)
                continue
            # what straddles chunks is put together, and what the reading leaves of it is carried on
            at, window = self.at, self._carry + buf[start : self.at + need - base]
            start = at + len(window) - base
            self._step(window, 0, len(window), at)
            self._carry = window[self.at - at :]

    def _step(self, window: bytes, pos: int, end: int, base: int) -> None:
        self.base = base
        pos, need = self._reading.send((window, pos, end))
        self.at, self._need = base + pos, need
        self.done = need == DONE


def read_text(window: Window, compact: bool) -> Generator[tuple[int, int], Window, tuple[Window, int]]:
    """A string at the window's position: (window behind it, where it starts), start -1 when it is null."""
    buf, pos, end = window
    try:
        start, stop = span(buf, pos, end, compact)
    except BadBytes:  # the window may just be short of it
        stop = SHORT
    if stop == SHORT:  # not in the handler: a compiled generator that waits in one leaves its exception with its caller
        buf, pos, end = yield pos, LONGEST_STRING
        start, stop = span(buf, pos, end, compact)
    return (buf, stop, end), start


def read_topic(window: Window, compact: bool, by_id: bool) -> Generator[tuple[int, int], Window, tuple[Window, bytes, int]]:
    """(window behind it, topic, number of its partitions): a name as UTF-8, empty when null, or an id as 16 bytes."""
    buf, pos, end = window
    if end - pos < _NAME_NEED:
        buf, pos, end = yield pos, _NAME_NEED
    try:
        topic, partitions, pos = topic_head(buf, pos, end, compact, by_id)
    except BadBytes:  # the window may just be short of it
        partitions = SHORT
    if partitions == SHORT:
        buf, pos, end = yield pos, LONGEST_STRING + 5
        topic, partitions, pos = topic_head(buf, pos, end, compact, by_id)
    return (buf, pos, end), topic, partitions


def read_tags(window: Window) -> Generator[tuple[int, int], Window, Window]:
    """The window behind a section of tagged fields."""
    buf, pos, end = window
    if end - pos < _TAG_NEED:
        buf, pos, end = yield pos, _TAG_NEED
    count, pos = uvarint(buf, pos, end)
    for _ in range(few(count)):
        if end - pos < _TAG_NEED:
            buf, pos, end = yield pos, _TAG_NEED
        _, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        pos += size
    return buf, pos, end


def topic_head(buf: bytes, pos: i64, end: i64, compact: bool, by_id: bool) -> tuple[bytes, i64, i64]:
    """(topic, number of its partitions, position behind both) of a topic that starts at `pos`: a name as UTF-8, empty when
    null, or an id as 16 bytes. `BadBytes` when the window does not hold all that."""
    start, stop = (pos, fixed(pos, 16, end)) if by_id else span(buf, pos, end, compact)
    partitions, pos = array(buf, stop, end, compact, 0)
    return buf[start:stop] if start >= 0 else b"", partitions, pos


class TopicPart:
    """What a request or a response has of a topic: bytes of records, and their number where they are counted. `topic`: its name as
    UTF-8, or its id as 16 bytes."""

    __slots__ = ("records", "size", "topic")

    def __init__(self, topic: bytes, size: i64, records: i64 = 0) -> None:
        self.topic = topic
        self.size: i64 = size
        self.records: i64 = records


class TopicReader:
    """Topics with their partitions, as Produce requests and Fetch responses have them. `usual` is a plain loop, for what stands
    in one buffer and holds nothing unusual, which nearly all does; `careful` reads one part more, whatever it is. Subclasses
    say what a partition is: they add to `size` and `records`."""

    __slots__ = ("by_id", "compact", "left", "records", "size", "topic", "topics", "topics_left")

    def __init__(self, compact: bool, by_id: bool) -> None:
        self.compact, self.by_id = compact, by_id
        self.topics: list[TopicPart] = []
        """those that were read to their end"""
        self.size: i64 = 0
        self.records: i64 = 0
        """of the topic that is read"""
        self.topics_left: i64 = 0
        """topics that have not begun"""
        self.left: i64 = -1
        """partitions of this topic that are to come; -1 between two topics"""
        self.topic = b""

    def start(self, buf: bytes, pos: i64, end: i64) -> i64:
        """The number of topics is at `pos`; the position behind it."""
        topics, pos = array(buf, pos, end, self.compact, 0)
        self.topics_left = max(topics, 0)
        return pos

    @property
    def done(self) -> bool:
        """True once all topics are read."""
        return self.left < 0 and self.topics_left == 0

    def partitions(self, buf: bytes, pos: i64, end: i64) -> i64:
        """Read partitions that stand in the window and have nothing unusual, and count `left` down; the position behind."""
        raise NotImplementedError

    def partition(self, window: Window) -> Generator[tuple[int, int], Window, Window]:
        """Read one, whatever is in it."""
        raise NotImplementedError

    def finish(self) -> None:
        """All partitions of `topic` are read."""
        self.topics.append(TopicPart(self.topic, self.size, self.records))
        self.size = self.records = 0

    def usual(self, buf: bytes, pos: i64, end: i64) -> i64:
        """Read on as far as that is simple; the position where it is not, or behind the last topic."""
        while True:
            if self.left > 0:
                pos = self.partitions(buf, pos, end)
                if self.left > 0:
                    return pos
            if self.left == 0:
                if self.compact:
                    if pos >= end or buf[pos] != 0:
                        return pos
                    pos += 1
                self._end()
            if self.topics_left == 0:
                return pos
            try:
                self.topic, partitions, pos = topic_head(buf, pos, end, self.compact, self.by_id)
            except BadBytes:  # or the window ends before the topic does
                return pos
            self._begin(partitions)

    def careful(self, window: Window) -> Generator[tuple[int, int], Window, Window]:
        """Read a topic's head, a partition or a topic's end."""
        if self.left > 0:
            window = yield from self.partition(window)
            self.left -= 1
        elif self.left == 0:
            if self.compact:
                window = yield from read_tags(window)
            self._end()
        else:
            window, self.topic, partitions = yield from read_topic(window, self.compact, self.by_id)
            self._begin(partitions)
        return window

    def _begin(self, partitions: i64) -> None:
        self.left = max(partitions, 0)
        self.topics_left -= 1

    def _end(self) -> None:
        self.finish()
        self.left = -1


_TAG_NEED: Final = 10
_NAME_NEED: Final = 300
