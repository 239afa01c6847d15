"""Cutting a stream of bytes into whole request frames, without joining chunks.

In: what was read. Out: frames, each as a place in a buffer or as a list of chunks. A length that cannot be is said as
soon as its four bytes are there; nothing is allocated for what a length claims."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.wire.headers import SHORTEST_REQUEST
from proxy.wire.primitives import INT32, BadBytes, Buffer

HEADER_ROOM = 512
"""The first piece of a frame that comes in pieces is at least this long, so that its header stands in one buffer.
Shorter ends of reads are put in front of the next read: the only copies, and rare, as reads are large."""


Frame = tuple[Buffer, int, int, list[Buffer] | None]
"""(buf, start, end, chunks): a whole frame, its 4-byte size included, at buf[start:end]; or, when it came in pieces, in
`chunks`, of which `buf` is the first. A plain tuple, as there is one per request."""


SMALL_PIECE = 4096
"""Pieces that are shorter together are joined, so that a client that sends byte by byte does not make an object of each byte."""


class FrameCutter:
    """The requests of one connection. `max_frame` in bytes, the size field not counted."""

    __slots__ = ("_chunks", "_data", "_missing", "_pos", "_short", "begun", "max_frame", "shortest")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self.shortest = SHORTEST_REQUEST
        self.begun = 0
        """how many frames began that were not whole with the read in which they began"""
        self._short = b""
        self._chunks: list[Buffer] = []
        self._missing = 0
        self._data: Buffer = b""
        self._pos = 0

    def cut(self, data: Buffer) -> Iterator[Frame]:
        """The frames that are whole with these bytes. All that do not come in pieces stand in the same buffer.

        Stop early and `rest` is what was not yet looked at; go through to the end and the cutter keeps what is left.
        `BadBytes` for an impossible length."""
        pos, joined = 0, bool(self._short)
        if self._missing:
            pos = self._continue(data)
            if self._missing:
                return
            chunks, self._chunks = self._chunks, []
            self._data, self._pos = data, pos
            yield chunks[0], 0, len(chunks[0]), chunks
        elif joined:
            data, self._short = self._short + bytes(data), b""
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
        return sum(map(len, self._chunks)) + len(self._short)

    def _continue(self, data: Buffer) -> int:
        """Take what is missing of a frame; how much of data that is."""
        size = len(data)
        if size <= self._missing:
            if size < SMALL_PIECE and len(self._chunks) > 1 and len(self._chunks[-1]) + size <= SMALL_PIECE:
                self._chunks[-1] = bytes(self._chunks[-1]) + bytes(data)
            else:
                self._chunks.append(data)
            self._missing -= size
            return size
        stop, self._missing = self._missing, 0
        self._chunks.append(memoryview(data)[:stop])
        return stop

    def _keep(self, data: Buffer, pos: int, size: int) -> None:
        tail = memoryview(data)[pos:]
        if size - pos < HEADER_ROOM or size - pos < HEADER_ROOM + (data[pos + 12] << 8 | data[pos + 13]) % 0x8000:
            self._short = bytes(tail)
        else:
            self._missing = 4 + INT32.unpack_from(data, pos)[0] - (size - pos)
            self._chunks.append(tail)

    def _refuse(self, length: int) -> None:
        if length < self.shortest:
            raise BadBytes(f"a request of {length} bytes: this is not the Kafka protocol")
        raise BadBytes(f"a request of {length} bytes, more than the limit of {self.max_frame}, or not the Kafka protocol")
