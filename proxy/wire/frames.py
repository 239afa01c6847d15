"""Cutting a stream of bytes into whole request frames, without joining chunks.

In: what was read. Out: frames, each as a place in a read, with a list of chunks when it came in several. A length that
cannot be is said as soon as its four bytes are there; nothing is allocated for what a length claims."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from proxy.wire.headers import SHORTEST_REQUEST
from proxy.wire.primitives import BadBytes, Buffer, as_bytes, int32

if TYPE_CHECKING:
    from mypy_extensions import i64

HEADER_ROOM: Final = 512
"""The first piece of a frame that comes in pieces is at least this long, so that its header stands in one buffer.
Shorter ends of reads are put in front of the next read: the only copies, and rare, as reads are large."""


Frame = tuple[bytes, int, int, list[Buffer] | None]
"""(buf, start, end, chunks): a whole frame, its 4-byte size included, at buf[start:end]; or, when it came in pieces, in
`chunks`, of which the first is buf[start:end]. A plain tuple, as there is one per request."""

Place = tuple[bytes, int, int]
"""(buffer, start, end)"""

SMALL_PIECE: Final = 4096
"""Pieces that are shorter together are joined, so that a client that sends byte by byte does not make an object of each byte."""


def places(frame: Frame, pos: int) -> list[Place]:
    """The frame from `pos` on, which is in its first chunk, as places in reads. Nothing is copied."""
    buf, _, end, chunks = frame
    found = [(buf, pos, end)]
    if chunks is not None:
        found += _starts(chunks)
    return found


def places_of(chunks: list[Buffer]) -> list[Place]:
    """The same for a response, of which there are only its chunks."""
    first = chunks[0]
    whole = _read_of(first)
    return [(whole, len(whole) - len(first), len(whole)), *_starts(chunks)]


def size_of(frame: Frame) -> int:
    """Bytes of a whole frame, its 4-byte size included."""
    _, start, end, chunks = frame
    return end - start if chunks is None else sum(map(len, chunks))


def _starts(chunks: list[Buffer]) -> list[Place]:
    """All but the first of them stand where a read starts, the first where one ends."""
    return [(_read_of(chunk), 0, len(chunk)) for chunk in chunks[1:]]


def _read_of(chunk: Buffer) -> bytes:
    read = chunk.obj if isinstance(chunk, memoryview) else chunk
    assert isinstance(read, bytes)
    return read


class FrameCutter:
    """The requests of one connection. `max_frame` in bytes, the size field not counted.

    `feed` takes reads, `next` hands out one whole frame after the other. What was read and not handed out stays here, in the
    buffers that it came in, so a reader that stops in the middle goes on there, and no byte is looked at or copied twice."""

    __slots__ = (
        "_again",
        "_chunks",
        "_first",
        "_in_chunks",
        "_joined",
        "_missing",
        "_reads",
        "_short",
        "begun",
        "data",
        "max_frame",
        "pos",
        "shortest",
        "unread",
    )

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self.shortest = SHORTEST_REQUEST
        self.begun = 0
        """how many frames began that were not whole with the read in which they began"""
        self.unread = 0
        """bytes that were fed and not yet handed out, or kept as the beginning of a frame that is not whole"""
        self._reads: deque[bytes] = deque()
        self.data = b""
        """the read that is cut now, up to `pos`"""
        self.pos: i64 = 0
        self._joined = False  # it begins with the end of the read before
        self._again: Frame | None = None
        self._short = b""
        self._chunks: list[Buffer] = []
        self._in_chunks = 0  # bytes; adding them up at every read would take longer and longer
        self._first: Place = (b"", 0, 0)  # where the first of them stands
        self._missing = 0

    def feed(self, data: Buffer) -> None:
        """More was read."""
        self.unread += len(data)
        read = as_bytes(data)
        if self._reads or self.pos < len(self.data) or self._missing or self._again is not None:
            self._reads.append(read)
        else:
            self.pos = 0
            self._open(read)

    def next(self) -> Frame | None:
        """The next whole frame; None when more has to be read for it. `BadBytes` for an impossible length."""
        if self._again is not None:
            again, self._again = self._again, None
            self.unread -= size_of(again)
            return again
        while True:
            data, pos = self.data, self.pos
            left = len(data) - pos
            if left >= 4:
                length = int32(data, pos)
                if not self.shortest <= length <= self.max_frame:
                    self._refuse(length)
                size = length + 4
                if size <= left:
                    self.unread -= size
                    if size == left:
                        self.data, self.pos = b"", 0  # nothing of it stays, as it may hold a secret
                    else:
                        self.pos = pos + size
                    return data, pos, pos + size, None
            if left:
                if pos or not self._joined:
                    self.begun += 1
                self.unread -= left
                self._keep(data, pos)
            self.data, self.pos = b"", 0
            if not self._reads:
                return None
            whole = self._open(self._reads.popleft())
            if whole is not None:
                return whole

    def in_read(self) -> bool:
        """Does the next frame begin in the read `data`, at `pos`? False where it began in an earlier one, or there is none."""
        if self._missing or self._again is not None:
            return False
        if self.pos == len(self.data):
            self.data, self.pos = b"", 0
            if not self._reads:
                return False
            self._open(self._reads.popleft())
        return True

    def skip(self, stop: int) -> None:
        """The frames up to this position of that read are handed out."""
        self.unread -= stop - self.pos
        if stop == len(self.data):
            self.data, self.pos = b"", 0
        else:
            self.pos = stop

    def put_back(self, frame: Frame) -> None:
        """Hand out this frame, which came last, once more."""
        self._again = frame
        self.unread += size_of(frame)

    def forget(self, *, keep_last: bool = False) -> None:
        """Drop what was read and not handed out; with `keep_last` all but a frame that was put back."""
        self._reads.clear()
        self.data, self.pos = b"", 0
        if not keep_last:
            self._again = None
        self.unread = 0 if self._again is None else size_of(self._again)

    @property
    def waiting(self) -> bool:
        """True if a frame has begun and is not complete."""
        return bool(self._missing or self._short)

    @property
    def in_pieces(self) -> bool:
        """True if a frame has begun that already took more than one read."""
        return len(self._chunks) > 1

    @property
    def gathered(self) -> int:
        """Bytes held of a frame that is not whole."""
        return self._in_chunks + len(self._short)

    def _open(self, data: bytes) -> Frame | None:
        """Begin to cut the next read; the frame that it completes, if there is one."""
        if self._missing:
            pos = self._continue(data)
            self.unread -= pos
            if self._missing:
                return None
            chunks, self._chunks = self._chunks, []
            self._in_chunks = 0
            self.data, self.pos, self._joined = data, pos, False
            buf, start, end = self._first
            self._first = (b"", 0, 0)
            return buf, start, end, chunks
        self._joined = bool(self._short)
        if self._joined:
            self.unread += len(self._short)
            data, self._short = self._short + data, b""
        self.data = data
        return None

    def _continue(self, data: bytes) -> int:
        """Take what is missing of a frame; how much of data that is."""
        size = len(data)
        if size <= self._missing:
            if size < SMALL_PIECE and len(self._chunks) > 1 and len(self._chunks[-1]) + size <= SMALL_PIECE:
                self._chunks[-1] = bytes(self._chunks[-1]) + data
            else:
                self._chunks.append(data)
            self._missing -= size
            self._in_chunks += size
            return size
        stop, self._missing = self._missing, 0
        self._chunks.append(memoryview(data)[:stop])
        return stop

    def _keep(self, data: bytes, pos: int) -> None:
        size = len(data)
        if size - pos < HEADER_ROOM or size - pos < HEADER_ROOM + (data[pos + 12] << 8 | data[pos + 13]) % 0x8000:
            self._short = data[pos:]
        else:
            self._missing = 4 + int32(data, pos) - (size - pos)
            self._chunks.append(memoryview(data)[pos:])
            self._in_chunks = size - pos
            self._first = (data, pos, size)

    def _refuse(self, length: int) -> None:
        if length < self.shortest:
            raise BadBytes(f"a request of {length} bytes: this is not the Kafka protocol")
        raise BadBytes(f"a request of {length} bytes, more than the limit of {self.max_frame}, or not the Kafka protocol")
