"""What goes to one side of a connection together: each call of the system costs as much as some small requests.

In: parts of reads, and other bytes, in their order. Out: one list for the socket. Parts of a read that follow each other are one
piece, and nothing is copied."""

from __future__ import annotations

from collections.abc import Callable

from proxy.wire.primitives import Buffer

Send = Callable[[list[Buffer]], None]


class Outgoing:
    """What was not sent yet to where `to` sends."""

    __slots__ = ("_pieces", "_read", "_start", "_stop", "to")

    def __init__(self, to: Send) -> None:
        self.to = to
        self._pieces: list[Buffer] = []
        self._read, self._start, self._stop = b"", 0, 0  # behind them, self._read[self._start : self._stop]

    def part(self, read: bytes, start: int, stop: int) -> None:
        """read[start:stop] goes on as it is."""
        if start >= stop:
            return
        if read is not self._read or start != self._stop:
            self._end_part()
            self._read, self._start = read, start
        self._stop = stop

    def add(self, pieces: list[Buffer]) -> None:
        """These go on."""
        self._end_part()
        self._pieces += pieces

    def send(self) -> None:
        """Send it."""
        self._end_part()
        if self._pieces:
            pieces, self._pieces = self._pieces, []
            self.to(pieces)

    def _end_part(self) -> None:
        read, start, stop = self._read, self._start, self._stop
        if start < stop:
            self._pieces.append(read if stop - start == len(read) else memoryview(read)[start:stop])
            self._read, self._start, self._stop = b"", 0, 0


def nowhere(pieces: list[Buffer]) -> None:
    """Where bytes go when the side is gone."""
