"""Where quotas are kept that are set while proxies run, as the proxy sees it: the topic itself, or a supervisor that reads it for
its workers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

from proxy.cluster.quota_records import Header, Record


class Written(Protocol):
    """A record that is read."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...


class Reader(Protocol):
    """Receives the records."""

    def begin(self) -> None:
        """All that follows was written from the beginning on."""

    def take(self, records: Sequence[Written]) -> None: ...
    def complete(self, *, nothing_ever: bool) -> Sequence[Record]:
        """This was all; what is taken from now on is new. `nothing_ever`: nothing was ever written. Records to write again, as
        somebody made the topic anew and they were in it."""


class QuotaStore(Protocol):
    """Records to write; records as they come, those of this proxy too, in the order that all proxies see."""

    name: str
    reader: Reader
    settled: asyncio.Event
    """Set once all was read, or could not be read."""

    @property
    def why_not(self) -> str | None:
        """Why nothing can be written now; None when it can."""

    async def run(self) -> None:
        """Read, until cancelled."""

    async def write(self, records: Sequence[Record]) -> None:
        """Write these as one, and return when they have been read too. `TopicError` when that cannot be known."""
