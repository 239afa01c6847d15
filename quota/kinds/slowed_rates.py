"""What the storage quota asks of Produce requests: at factor 0 a batch is refused, or its request waits; between, it is slowed.

Slowed is who writes to a volume past its soft limit, to the factor times a rate: its byte rate, or, without one, what it produced
when the limit was crossed. A batch of n bytes at factor f counts as n / f against that rate, so volumes with different factors
share a window.

In: the state of the volumes, batches with the names of their topics. Out: refusals, decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from quota.batch import STORAGE_ERROR, Batch
from quota.decision import Action, Decision
from quota.entity import Entity
from quota.kinds.rates import RateLimit, Rates
from quota.kinds.storage import NAME, Scope, Storage, VolumeState, size
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import Limits

LONGEST_WAIT: Final = 10.0
"""Seconds for which a refused client is throttled at most, and held at once: less than clients wait for an answer."""
Refuse = Callable[[int, int, str, str], None]
"""Refuses a batch: its index, the error code, the message, the quota."""


class SlowedTable(LimitTable[RateLimit]):
    """The rates that are multiplied by the factor: everybody has one."""

    def __init__(self, rates: LimitTable[RateLimit], storage: Storage) -> None:
        super().__init__({})
        self._rates, self._storage = rates, storage

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[RateLimit] | None:
        return self._rates.find(user, client_id, client_ids=client_ids) or ResolvedLimit(self._own(user), Entity(user, None))

    def of(self, owner: Entity) -> RateLimit | None:
        return self._rates.of(owner) or self._own(owner.user or "")

    def _own(self, user: str) -> RateLimit:
        return RateLimit(self._storage.rate_of(user))


class SlowedRates(Rates):
    """The rates of clients that write to volumes past their soft limit."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(NAME, storage.title, "bytes", SlowedTable(LimitTable({}), storage))
        self.storage = storage
        self._enforced = True

    def configure(self, limits: Limits, /) -> None:
        """These byte rates hold now, or others were measured."""
        self.limits = SlowedTable(limits.table("producer_byte_rate"), self.storage)
        self._enforced = NAME not in limits.observed

    def wait(self, owner: Entity, batches: Sequence[Batch], items: Iterable[int], now: float) -> Decision | None:
        """A request with a batch at factor 0 waits until volumes are looked at again, where settings say so."""
        limits = self.storage.limits
        if limits is None or not limits.hold or not self._enforced:
            return None
        full = {i: seen for i, factor, seen in self._asked(batches, items) if factor == 0}
        if not full:
            return None
        seen = next(iter(full.values()))
        return replace(self._said(Action.HOLD, owner, tuple(full), seen), throttle=self._until_next_check(now))

    def refuse(self, owner: Entity, batches: Sequence[Batch], items: Iterable[int], refuse: Refuse, now: float) -> list[Decision]:
        """Refuse batches for volumes at factor 0, and throttle the client; if the quota is observed, only report it. With scope
        `volume` the client is not throttled, as other partitions share the connection."""
        by_volume: dict[VolumeState | None, list[int]] = {}
        for i, factor, seen in self._asked(batches, items):
            if factor == 0:
                by_volume.setdefault(seen, []).append(i)
        for seen, refused in by_volume.items() if self._enforced else ():
            message = self.storage.why(seen)
            for i in refused:
                refuse(i, STORAGE_ERROR, message, NAME)
        return [
            replace(
                self._said(Action.REFUSE, owner, tuple(refused), seen),
                throttle=self._until_next_check(now) if self._everybody(seen) else 0.0,
            )
            for seen, refused in by_volume.items()
        ]

    def slow(self, found: ResolvedLimit[RateLimit], batches: Sequence[Batch], items: Iterable[int], now: float) -> Decision | None:
        """Count what goes on of what is slowed. The throttle is not capped."""
        slowed = [(i, factor, seen) for i, factor, seen in self._asked(batches, items) if 0 < factor < 1]
        if not slowed:
            return None
        decision = self.charge(found, [batches[i].size / factor for i, factor, _ in slowed], now).decision
        if decision is None:
            return None
        _, factor, seen = min(slowed, key=lambda it: it[1])
        usage, limit = decision.usage * factor, decision.limit * factor
        message = f"{self.storage.why(seen)} {found.owner} is slowed down to {size(limit)}/s."
        return replace(decision, items=tuple(i for i, _, _ in slowed), usage=usage, limit=limit, message=message)

    def weights(self, batches: Sequence[Batch], items: Iterable[int]) -> dict[int, float]:
        """What each batch counts that `slow` counts now."""
        return {i: batches[i].size / factor for i, factor, _ in self._asked(batches, items) if 0 < factor < 1}

    def _asked(self, batches: Sequence[Batch], items: Iterable[int]) -> list[tuple[int, float, VolumeState | None]]:
        """(index, factor, volume) of each."""
        if self.storage.calm:
            return []
        return [(i, *self.storage.asks(batches[i].topic if batches[i].known else None, batches[i].partition)) for i in items]

    def _everybody(self, seen: VolumeState | None) -> bool:
        """Does this concern all that a client does?"""
        limits = self.storage.limits
        return seen is None or limits is None or limits.scope is Scope.CLUSTER

    def _said(self, action: Action, owner: Entity, items: tuple[int, ...], seen: VolumeState | None) -> Decision:
        available, hard = (0.0, 0.0) if seen is None else (float(seen.volume.available), seen.hard)
        return Decision(NAME, action, owner, items, available, hard, 0.0, self.storage.why(seen), max(available - hard, 0.0))

    def _until_next_check(self, now: float) -> float:
        return min(self.storage.next_check(now), LONGEST_WAIT)
