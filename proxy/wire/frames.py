"""Cutting a stream of bytes into whole request frames, without joining chunks.

In: what was read. Out: frames, each as a place in a read, with a list of chunks when it came in several. A length that
cannot be is said as soon as its four bytes are there; nothing is allocated for what a length claims."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.wire.headers import SHORTEST_REQUEST
from proxy.wire.primitives import INT32, BadBytes, Buffer

HEADER_ROOM = 512
"""The first piece of a frame that comes in pieces is at least this long, so that its header stands in one buffer.
Shorter ends of reads are put in front of the next read: the only copies, and rare, as reads are large."""


Frame = tuple[bytes, int, int, list[Buffer] | None]
"""(buf, start, end, chunks): a whole frame, its 4-byte size included, at buf[start:end]; or, when it came in pieces, in
`chunks`, of which the first is buf[start:end]. A plain tuple, as there is one per request."""

Place = tuple[bytes, int, int]
"""(buffer, start, end)"""

SMALL_PIECE = 4096
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


def _starts(chunks: list[Buffer]) -> list[Place]:
    """All but the first of them stand where a read starts, the first where one ends."""
    return [(_read_of(chunk), 0, len(chunk)) for chunk in chunks[1:]]


def _read_of(chunk: Buffer) -> bytes:
    read = chunk.obj if isinstance(chunk, memoryview) else chunk
    assert isinstance(read, bytes)
    return read


class FrameCutter:
    """The requests of one connection. `max_frame` in bytes, the size field not counted."""

    __slots__ = ("_chunks", "_data", "_first", "_in_chunks", "_missing", "_pos", "_short", "begun", "max_frame", "shortest")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self.shortest = SHORTEST_REQUEST
        self.begun = 0
        """how many frames began that were not whole with the read in which they began"""
        self._short = b""
        self._chunks: list[Buffer] = []
        self._in_chunks = 0  # bytes; adding them up at every read would take longer and longer
        self._first: Place = (b"", 0, 0)  # where the first of them stands
        self._missing = 0
        self._data = b""
        self._pos = 0

    def cut(self, data: Buffer) -> Iterator[Frame]:
        """The frames that are whole with these bytes. All that do not come in pieces stand in the same buffer.

        Stop early and `rest` is what was not yet looked at; go through to the end and the cutter keeps what is left.
        `BadBytes` for an impossible length."""
        data = bytes(data)  # no copy, as sockets give bytes; what waited for a mute may be part of a read
        pos, joined = 0, bool(self._short)
        if self._missing:
            pos = self._continue(data)
            if self._missing:
                return
            chunks, self._chunks = self._chunks, []
            self._in_chunks = 0
            self._data, self._pos = data, pos
            buf, start, end = self._first
            self._first = (b"", 0, 0)
            yield buf, start, end, chunks
        elif joined:
            data, self._short = self._short + data, b""
        size = len(data)
        self._data = data
        while size - pos >= 4:
            length = INT32.unpack_from(data, pos)[0]
            if not self.shortest <= length <= self.max_frame:
                self._refuse(length)
            end = pos + 4 + length
            if end > size:
                break
            self._pos = end
            yield data, pos, end, None
            pos = end
        if pos < size:
            if pos or not joined:
                self.begun += 1
            self._keep(data, pos, size)
        self._data = b""

    def rest(self) -> Buffer:
        """What of the last read lies behind the frame that was handed out last. The cutter forgets it."""
        data, self._data = self._data, b""
        return memoryview(data)[self._pos :]

    @property
    def waiting(self) -> bool:
        """Has a frame begun that is not whole?"""
        return bool(self._missing or self._short)

    @property
    def in_pieces(self) -> bool:
        """Has a frame begun that already took more than one read?"""
        return len(self._chunks) > 1

    @property
    def gathered(self) -> int:
        """Bytes held of a frame that is not whole."""
        return self._in_chunks + len(self._short)

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

    def _keep(self, data: bytes, pos: int, size: int) -> None:
        if size - pos < HEADER_ROOM or size - pos < HEADER_ROOM + (data[pos + 12] << 8 | data[pos + 13]) % 0x8000:
            self._short = data[pos:]
        else:
            self._missing = 4 + INT32.unpack_from(data, pos)[0] - (size - pos)
            self._chunks.append(memoryview(data)[pos:])
            self._in_chunks = size - pos
            self._first = (data, pos, size)

    def _refuse(self, length: int) -> None:
        if length < self.shortest:
            raise BadBytes(f"a request of {length} bytes: this is not the Kafka protocol")
        raise BadBytes(f"a request of {length} bytes, more than the limit of {self.max_frame}, or not the Kafka protocol")
