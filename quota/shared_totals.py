"""What a store of the ledger keeps of one shard, in memory: totals, how windows stood, the number of each proxy's last batch. It
does what the script of `proxy.fleet.redis_store` does, and forgets what nobody has changed for as long as it was to be kept.

In: updates of proxies, the time. Out: answers (`quota.ledger.Answer` says what they promise)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from quota.ledger import Answer, Change, Level, Update
from quota.round_robin import RoundRobin

PROXY_KEPT: Final = 600.0
"""Seconds after which a proxy that is silent is forgotten."""
SWEPT: Final = 50
"""Totals that are looked at with each update for whether they may be forgotten."""


@dataclass(slots=True)
class Total:
    """Of one owner. `level`: how its window stood at `at`, when the total was `since`."""

    until: float
    amount: int = 0
    level: float | None = None
    at: float = 0.0
    since: int = 0


class SharedTotals:
    """One shard. `generation` is unique for each start of a store."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.totals: dict[str, Total] = {}
        self._last: dict[str, tuple[int, float]] = {}
        """of each proxy the number of its last batch, and when it came; the longest silent first"""
        self._sweeps: RoundRobin[str] = RoundRobin(1.0, SWEPT)

    def apply(self, proxy: str, update: Update, now: float) -> Answer:
        """Add the changes of a proxy, once even if they come twice."""
        last, _ = self._last.get(proxy, (0, now))
        if update.generation != self.generation or update.number > last + 1:
            return Answer(self.generation, False, last)
        new = update.number == last + 1
        self._last.pop(proxy, None)
        self._last[proxy] = max(last, update.number), now
        levels, amounts = {}, []
        for i, change in enumerate(update.changes):
            total = self._changed(change, now, new=new)
            amounts.append(0 if total is None else total.amount)
            if change.fresh and total is not None and total.level is not None:
                levels[i] = Level(total.level, now - total.at, total.amount - change.delta - total.since)
        self._forget(now)
        return Answer(self.generation, True, update.number, amounts, levels)

    def _changed(self, change: Change, now: float, *, new: bool) -> Total | None:
        """The total with this change, None where there is none. A look at a total makes none."""
        total = self.totals.get(change.key)
        if total is None:
            if not (new and change.delta) and change.level is None:
                return None
            total = self.totals[change.key] = Total(now)
        if new and change.delta:
            total.amount += change.delta
            total.until = max(total.until, now + change.keep)
        if change.level is not None:
            total.level, total.at, total.since = change.level, now, total.amount
            total.until = max(total.until, now + change.keep)
        return total

    def _forget(self, now: float) -> None:
        for key in self._sweeps.turn(self.totals, now):
            total = self.totals.get(key)
            if total is not None and total.until < now:
                del self.totals[key]
        proxy, (_, at) = next(iter(self._last.items()))
        if now - at > PROXY_KEPT:
            del self._last[proxy]
