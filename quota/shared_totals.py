"""What a store of the ledger keeps of one shard, in memory: totals, how windows stood, the number of each proxy's last batch. It
does what the script of `proxy.fleet.redis_store` does, and forgets what nobody has changed for as long as it was to be kept.

In: updates of proxies, the time. Out: answers (`quota.ledger.Answer` says what they promise). What it answers follows from the
updates, their order and their times alone, so two copies that are given the same ones agree; `rows` and `restored` carry one over
to another process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quota.ledger import Answer, Change, Level, Update
from quota.round_robin import RoundRobin

PROXY_KEPT: Final = 600.0
"""Seconds after which a proxy that is silent is forgotten."""
SWEPT: Final = 50
"""Totals that are looked at with each update for whether they may be forgotten."""
MAX_AMOUNT: Final = 2**62
"""A total stays there: beyond it are only sums that nobody has charged."""


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
        last, at = self._last.get(proxy, (0, now))
        if now - at > PROXY_KEPT:
            last = 0
        if update.generation != self.generation or update.number > last + 1:
            return Answer(self.generation, False, last)
        new = update.number == last + 1
        self._last.pop(proxy, None)
        self._last[proxy] = max(last, update.number), now
        for change in update.changes:
            self._change(change, now, new=new)
        answer = self.look(update, now)
        self._forget(now)
        return answer

    def look(self, update: Update, now: float) -> Answer:
        """The answer to an update whose changes are in the totals. It changes nothing."""
        levels, amounts = {}, []
        for i, change in enumerate(update.changes):
            total = self._known(change.key, now)
            amounts.append(0 if total is None else total.amount)
            if change.fresh and total is not None and total.level is not None:
                levels[i] = Level(total.level, max(now - total.at, 0.0), total.amount - change.delta - total.since)
        return Answer(self.generation, True, update.number, amounts, levels)

    def rows(self, now: float) -> tuple[list[tuple[str, int, float]], list[tuple[Any, ...]]]:
        """All that is known: proxies (name, last number, when), and totals (key, and the fields of `Total`)."""
        proxies = [(proxy, number, at) for proxy, (number, at) in self._last.items() if now - at <= PROXY_KEPT]
        totals = [(key, it.until, it.amount, it.level, it.at, it.since) for key, it in self.totals.items() if it.until >= now]
        return proxies, totals

    def restore(self, proxies: Iterable[Sequence[Any]], totals: Iterable[Sequence[Any]]) -> None:
        """Add what `rows` gave. TypeError or ValueError for anything else."""
        self._last.update({str(proxy): (int(number), float(at)) for proxy, number, at in proxies})
        for key, until, amount, level, at, since in totals:
            known = None if level is None else float(level)
            self.totals[str(key)] = Total(float(until), int(amount), known, float(at), int(since))

    def _known(self, key: str, now: float) -> Total | None:
        total = self.totals.get(key)
        return None if total is None or total.until < now else total

    def _change(self, change: Change, now: float, *, new: bool) -> None:
        """The total gets this change. A look at a total makes none."""
        total = self._known(change.key, now)
        if total is None:
            if not (new and change.delta) and change.level is None:
                return
            total = self.totals[change.key] = Total(now)
        if new and change.delta:
            total.amount = max(min(total.amount + change.delta, MAX_AMOUNT), -MAX_AMOUNT)
            total.until = max(total.until, now + change.keep)
        if change.level is not None:
            total.level, total.at, total.since = change.level, now, total.amount
            total.until = max(total.until, now + change.keep)

    def _forget(self, now: float) -> None:
        """Free the memory of what is not known any more."""
        for key in self._sweeps.turn(self.totals, now):
            total = self.totals.get(key)
            if total is not None and total.until < now:
                del self.totals[key]
        proxy, (_, at) = next(iter(self._last.items()))
        if now - at > PROXY_KEPT:
            del self._last[proxy]
