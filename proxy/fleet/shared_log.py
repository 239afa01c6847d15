"""A log that proxies append to and all read, in one order for each of its partitions. `proxy.upstream.ledger_topic` is one, and the
store on it is `log_store`. Failures are `TopicError`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol

UPDATES: Final = 0
"""The partition of updates of totals and snapshots of them: read from the last snapshot on."""
EVENTS: Final = 1
"""The partition of events: read from a time on."""
PARTITIONS: Final = 2


class LogRecord(NamedTuple):
    """`written_at`: seconds, by the clock of the log."""

    offset: int
    written_at: float
    value: bytes


class Page(NamedTuple):
    """Records in their order, and the offset to read on from."""

    records: Sequence[LogRecord]
    next_offset: int


class SharedLog(Protocol):
    """A client of the log that is connected."""

    async def ends(self, partition: int) -> tuple[int, int]:
        """The offset of the first record that is kept, and that of the next one to be written."""

    async def offset_at(self, partition: int, time: float) -> int:
        """The offset of the first record that was written at this time or later; that of the next one if there is none."""

    async def read(self, partition: int, offset: int, limit: int, wait: float) -> Page:
        """Records from this offset on. If there are none, wait for one, at most `wait` seconds."""

    async def append(self, partition: int, value: bytes) -> int:
        """Write a record; its offset. After an error it may be in the log all the same, also later, and more than once."""

    async def verify(self) -> None:
        """Raise an error if this is not the log any more that was opened."""


class LogSource(Protocol):
    """Connects to the log."""

    name: str

    def opened(self) -> AbstractAsyncContextManager[SharedLog]:
        """The log, created if there is none, while it is used."""
