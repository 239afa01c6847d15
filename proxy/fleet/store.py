"""What a store of the ledger says, whatever it is."""

from __future__ import annotations

from typing import NamedTuple

from quota.ledger import Answer


class StoreError(Exception):
    """The store did not do what it was asked, or nobody knows; the message says why."""


class Reply(NamedTuple):
    """What came of a batch; how many proxies there are, 0 where that was not asked."""

    answer: Answer
    proxies: int
