"""Reading a frame that comes in pieces, without joining them and without waiting for the whole.

In: the chunks of one frame, in order. Out: calls of a generator that reads them. The generator yields `(position,
need)`: "go on at this position of the window I was given (which may lie far behind its end: what is between is
skipped), and give me `need` bytes in one piece". It is sent `(buffer, position, end)`, with fewer than `need` bytes
only where the frame ends, and returns the position where it is done. Only bytes that straddle two chunks are copied.
"""

from __future__ import annotations

from collections.abc import Generator

from proxy.wire.primitives import BadBytes, Buffer, array, span, uvarint

Window = tuple[Buffer, int, int]
Reading = Generator[tuple[int, int], Window, int]


class Walk:
    """One frame being read. `total` is the number of bytes it has from where the reading starts."""

    __slots__ = ("_carry", "_need", "_reading", "_seen", "_total", "at", "done")

    def __init__(self, reading: Reading, total: int) -> None:
        self._reading = reading
        self._total = total
        self._seen = 0
        self._carry = b""
        self.done = False
        # where the reading goes on, counted from the start of the frame; when it is done, where that was
        self.at, self._need = next(reading)

    def feed(self, buf: Buffer, start: int, end: int) -> None:
        """The next bytes of the frame are buf[start:end]. `BadBytes` when they are not what the reading expects."""
        base = self._seen - start  # position in the frame = base + position in buf
        self._seen += end - start
        while not self.done:
            need = min(self._need, self._total - self.at)
            if need < 0:
                raise BadBytes(f"{-need} bytes more than the frame has")
            if self.at + need > self._seen:
                if self.at < self._seen:
                    self._carry += bytes(buf[max(self.at - base, start) : end])
                return
            if not self._carry:
                self._step(buf, self.at - base, end, base)
                continue
            # what straddles chunks is put together, and what the reading leaves of it is carried on
            at, window = self.at, self._carry + bytes(buf[start : self.at + need - base])
            start = at + len(window) - base
            self._step(window, 0, len(window), at)
            self._carry = window[self.at - at :]

    def _step(self, window: Buffer, pos: int, end: int, base: int) -> None:
        try:
            pos, self._need = self._reading.send((window, pos, end))
        except StopIteration as stop:
            self.done, self.at = True, base + stop.value
        else:
            self.at = base + pos


def read_text(window: Window, compact: bool) -> Generator[tuple[int, int], Window, tuple[Window, int]]:
    """A string at the window's position: (window behind it, where it starts), start -1 when it is null."""
    buf, pos, end = window
    try:
        start, stop = span(buf, pos, end, compact)
    except BadBytes:  # the window may just be short of it: ask for as much as the longest string takes
        buf, pos, end = yield pos, 0x8000 + 3
        start, stop = span(buf, pos, end, compact)
    return (buf, stop, end), start


def read_topic(window: Window, compact: bool, by_id: bool) -> Generator[tuple[int, int], Window, tuple[Window, bytes, int]]:
    """(window behind it, topic, number of its partitions): a name as UTF-8, empty when null, or an id as 16 bytes."""
    buf, pos, end = window
    if end - pos < _NAME_NEED:
        buf, pos, end = yield pos, _NAME_NEED
    if by_id:
        start, pos = pos, pos + 16
    else:
        (buf, pos, end), start = yield from read_text((buf, pos, end), compact)
    topic = bytes(buf[start:pos]) if start >= 0 else b""
    if end - pos < 5:
        buf, pos, end = yield pos, 5
    partitions, pos = array(buf, pos, end, compact, 0)
    return (buf, pos, end), topic, partitions


def read_tags(window: Window) -> Generator[tuple[int, int], Window, Window]:
    """The window behind a section of tagged fields."""
    buf, pos, end = window
    if end - pos < _TAG_NEED:
        buf, pos, end = yield pos, _TAG_NEED
    count, pos = uvarint(buf, pos, end)
    for _ in range(count):
        if end - pos < _TAG_NEED:
            buf, pos, end = yield pos, _TAG_NEED
        _, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        pos += size
    return buf, pos, end


_TAG_NEED = 10
_NAME_NEED = 300
