"""What the ledger wants of a store. In: batches. Out: answers. `redis_store` is one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from quota.ledger import Answer, Batch


class StoreError(Exception):
    """The store did not do what it was asked, or nobody knows; the message says why."""


class Reply(NamedTuple):
    """What came of a batch; how many proxies there are, 0 where that was not asked."""

    answer: Answer
    proxies: int


class Store(Protocol):
    """Where proxies add up what they charge."""

    async def send(self, batch: Batch, count_for: float = 0.0) -> Reply:
        """Do a batch. `count_for` > 0: this proxy counts as there for so many seconds, and all are counted. `StoreError`."""

    async def close(self) -> None:
        """Let go of all connections; the next batch makes new ones."""
