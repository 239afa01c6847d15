"""What a store has to do for proxies that share quotas: keep sums, count proxies, and keep a stream of events. In: batches, events.
Out: answers; `StoreError` with what is wrong in words. `redis_store` and `log_store` are such stores. Another one is one more file,
and `tests/fleet/test_store.py` says what it has to promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from quota.ledger import Answer, Update

SINCE: Final = "@"
"""What a position begins with that is a time, where a store has no ids of its own for times."""


def position_at(time: float) -> str:
    """The position before all entries of this time or later, as such stores have it."""
    return f"{SINCE}{time!r}"


class StoreError(Exception):
    """The request to the store failed, or its outcome is unknown; the message says why."""


class Reply(NamedTuple):
    """The answer to a batch, and how many proxies there are (0 if that was not asked). `pause`: seconds until this proxy is to send
    its next batch."""

    answer: Answer
    proxies: int
    pause: float = 0.0


class Entry(NamedTuple):
    """One entry of the stream. `position`: where to read on after it, known to the store alone. `written_at`: seconds, by the clock
    of the store."""

    position: str
    written_at: float
    fields: Mapping[str, str]


class Store(Protocol):
    """A client of the store, for one proxy. It connects when it is asked something, and anew after any error."""

    async def send(self, update: Update, count_for: float = 0.0) -> Reply:
        """Add the changes to the sums, once even if it is sent twice. `count_for` > 0: this proxy counts as present for as many
        seconds, and the reply says how many proxies are present."""

    async def append_event(self, fields: Mapping[str, str]) -> None:
        """Add an entry to the end of the stream."""

    async def read_events(self, after: str, limit: int, wait: float) -> list[Entry]:
        """The first entries after a position, in their order. If there are none, wait for one, at most `wait` seconds."""

    def position_at(self, time: float) -> str:
        """A position before all entries that were written at this time (seconds, by the clock of the store) or later."""

    async def forget_events(self, before: float, keep: float) -> None:
        """Entries written before this time may go; all of them go when this was not called for `keep` seconds."""

    async def time(self) -> float:
        """The clock of the store, in seconds."""

    async def close(self) -> None:
        """Close all connections. The next call makes new ones."""
