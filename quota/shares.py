"""Which connections have lately had more of a shared rate than the others that want it.

In: what each connection has used while their rate was exceeded, and the time. Out: whether one is ahead. Amounts lose weight
with time, by 1/e in `LATELY`; who has used nothing for so long is out of it. All of it is O(1) amortized."""

from __future__ import annotations

from collections import OrderedDict
from math import exp
from typing import Final

LATELY: Final = 10.0
"""seconds"""
AHEAD: Final = 1.25
"""A connection is ahead when it has had this many times the average of all that share the rate."""
_REBASE: Final = 300.0
"""The largest exponent of a weight."""


class Share:
    """What one connection has had."""

    __slots__ = ("_shares", "had", "last")

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self.had = 0.0
        """in units that grow with time, see `Shares`"""
        self.last = 0.0

    def add(self, amount: float, now: float) -> None:
        """It has used so much more."""
        self._shares.add(self, amount, now)

    def ahead(self, now: float) -> bool:
        """Has it had more than the others who have used something lately?"""
        return self._shares.ahead(self, now)


class Shares:
    """All connections that share a rate. Instead of letting what was weigh less and less, what comes weighs more and more, by one
    unit of weight for all, as only their relation matters."""

    __slots__ = ("_active", "_base", "_sum")

    def __init__(self) -> None:
        self._active: OrderedDict[Share, None] = OrderedDict()
        """in the order of their last use"""
        self._sum = 0.0
        self._base = 0.0
        """when the weight was 1"""

    def add(self, share: Share, amount: float, now: float) -> None:
        self._forget(now)
        if not self._active:
            self._base, self._sum = now, 0.0
        if share not in self._active:
            share.had = 0.0
        amount *= exp(max(now - self._base, 0.0) / LATELY)
        share.had += amount
        share.last = now
        self._sum += amount
        self._active[share] = None
        self._active.move_to_end(share)

    def ahead(self, share: Share, now: float) -> bool:
        self._forget(now)
        return share in self._active and share.had * len(self._active) > AHEAD * self._sum

    def _forget(self, now: float) -> None:
        active = self._active
        while active:
            oldest = next(iter(active))
            if now - oldest.last < LATELY:
                break
            del active[oldest]
            self._sum -= oldest.had
        if now - self._base > _REBASE * LATELY:
            scale = exp((self._base - now) / LATELY)
            for share in active:
                share.had *= scale
            self._base, self._sum = now, sum([share.had for share in active])
