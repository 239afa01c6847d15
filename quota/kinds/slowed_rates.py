"""What a quota of something that fills asks of Produce requests: where it is full, at factor 0, a batch is refused, or its request
waits; between, it is slowed. Volumes fill (`storage`), and so do budgets of stored bytes (`stored_bytes`).

Slowed is who writes to what is past its soft limit, to the factor times a rate: its byte rate, or, without one, what it produced
when the limit was crossed. A batch of n bytes at factor f counts as n / f against that rate, so places with different factors
share a window.

In: what fills, batches with the names of their topics. Out: refusals, decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from quota.batch import STORAGE_ERROR, Batch
from quota.decision import Action, Decision
from quota.entity import Entity
from quota.kinds.rates import RateLimit, Rates
from quota.kinds.storage import Scope, Storage, VolumeState, size
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import Limits

LONGEST_WAIT: Final = 10.0
"""Seconds for which a refused client is throttled at most, and held at once: less than clients wait for an answer."""
Refuse = Callable[[int, int, str, str], None]
"""Refuses a batch: its index, the error code, the message, the quota."""
Asked = tuple[int, float, Any]
"""A batch by its index, the factor that holds for it, and the place that it goes to."""


class Filling(Protocol):
    """Something that fills. A place is a part of it with a state of its own, such as a volume; only `Filling` looks into it."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...

    @property
    def calm(self) -> bool:
        """True if no batch has to be looked at."""

    @property
    def code(self) -> int:
        """The error with which batches are refused."""

    @property
    def holds(self) -> bool:
        """Do requests wait where they would be refused?"""

    def asks(self, batches: Sequence[Batch], items: Iterable[int]) -> list[Asked]:
        """What each of these batches meets; those that meet nothing may be left out."""

    def why(self, place: Any, /, *, figures: bool = True) -> str:
        """The reason, for a client that is refused or slowed down. `figures` False: without those, as not everybody may know."""

    def decision(self, action: Action, owner: Entity, items: tuple[int, ...], place: Any) -> Decision:
        """What is told of items of a client, without a throttle."""

    def refused(self, place: Any, /) -> None:
        """Somebody who may write there was refused."""

    def throttle(self, place: Any, now: float, /) -> float:
        """Seconds that a client waits of whom something was refused."""

    def next_look(self, now: float, /) -> float:
        """Seconds until the place is looked at again."""

    def rate_of(self, user: str) -> float:
        """Bytes per second that a user without a byte rate is slowed from."""

    def record(self, batches: Sequence[Batch], items: Iterable[int]) -> None:
        """These batches go on."""

    def give_back(self, batches: Sequence[Batch], items: Iterable[int]) -> None:
        """These were not written after all."""


class VolumesFilling:
    """The volumes of the cluster. What is written there is seen by the next check."""

    code: Final = STORAGE_ERROR

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.name, self.title = storage.name, storage.title

    @property
    def calm(self) -> bool:
        return self._storage.calm

    @property
    def holds(self) -> bool:
        limits = self._storage.limits
        return limits is not None and limits.hold

    def asks(self, batches: Sequence[Batch], items: Iterable[int]) -> list[Asked]:
        if self._storage.calm:
            return []
        return [(i, *self._storage.asks(batches[i].topic if batches[i].known else None, batches[i].partition)) for i in items]

    def why(self, place: VolumeState | None, /, *, figures: bool = True) -> str:  # noqa: ARG002
        return self._storage.why(place)

    def decision(self, action: Action, owner: Entity, items: tuple[int, ...], place: VolumeState | None) -> Decision:
        available, hard = (0.0, 0.0) if place is None else (float(place.volume.available), place.hard)
        why = self._storage.why(place)
        return Decision(self.name, action, owner, items, available, hard, 0.0, why, max(available - hard, 0.0))

    def refused(self, place: VolumeState | None, /) -> None:
        """Nothing: checks tell how volumes are."""

    def throttle(self, place: VolumeState | None, now: float, /) -> float:
        """With scope `volume` nobody waits, as other partitions share the connection."""
        limits = self._storage.limits
        everybody = place is None or limits is None or limits.scope is Scope.CLUSTER
        return self.next_look(now) if everybody else 0.0

    def next_look(self, now: float, /) -> float:
        return self._storage.next_check(now)

    def rate_of(self, user: str) -> float:
        return self._storage.rate_of(user)

    def record(self, batches: Sequence[Batch], items: Iterable[int]) -> None:
        """Nothing."""

    def give_back(self, batches: Sequence[Batch], items: Iterable[int]) -> None:
        """Nothing."""


class SlowedTable(LimitTable[RateLimit]):
    """The rates that are multiplied by the factor: everybody has one."""

    def __init__(self, rates: LimitTable[RateLimit], filling: Filling) -> None:
        super().__init__({})
        self._rates, self._filling = rates, filling

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[RateLimit] | None:
        return self._rates.find(user, client_id, client_ids=client_ids) or ResolvedLimit(self._own(user), Entity(user, None))

    def of(self, owner: Entity) -> RateLimit | None:
        return self._rates.of(owner) or self._own(owner.user or "")

    def _own(self, user: str) -> RateLimit:
        return RateLimit(self._filling.rate_of(user))


class SlowedRates(Rates):
    """The rates of clients that write to what is past its soft limit."""

    def __init__(self, filling: Filling) -> None:
        super().__init__(filling.name, filling.title, "bytes", SlowedTable(LimitTable({}), filling))
        self.filling = filling
        self._enforced = True

    def configure(self, limits: Limits, /) -> None:
        """These byte rates hold now, or others were measured."""
        self.limits = SlowedTable(limits.table("producer_byte_rate"), self.filling)
        self._enforced = self.name not in limits.observed

    def wait(self, owner: Entity, batches: Sequence[Batch], items: Iterable[int], now: float) -> Decision | None:
        """A request with a batch at factor 0 waits until it is looked at again, where settings say so."""
        filling = self.filling
        if not filling.holds or not self._enforced:
            return None
        full = {i: place for i, factor, place in filling.asks(batches, items) if factor == 0}
        if not full:
            return None
        place = next(iter(full.values()))
        throttle = min(filling.next_look(now), LONGEST_WAIT)
        return replace(filling.decision(Action.HOLD, owner, tuple(full), place), throttle=throttle)

    def refuse(
        self, owner: Entity, batches: Sequence[Batch], items: Iterable[int], refuse: Refuse, now: float, *, confirmed: bool = True
    ) -> list[Decision]:
        """Refuse batches at factor 0; if the quota is observed, only report it. `confirmed`: brokers let the user write there."""
        filling = self.filling
        by_place: dict[Any, list[int]] = {}
        for i, factor, place in filling.asks(batches, items):
            if factor == 0:
                by_place.setdefault(place, []).append(i)
        for place, refused in by_place.items() if self._enforced else ():
            message = filling.why(place, figures=confirmed)
            if confirmed:
                filling.refused(place)
            for i in refused:
                refuse(i, filling.code, message, self.name)
        return [
            replace(
                filling.decision(Action.REFUSE, owner, tuple(refused), place),
                throttle=min(filling.throttle(place, now), LONGEST_WAIT),
            )
            for place, refused in by_place.items()
        ]

    def slow(self, found: ResolvedLimit[RateLimit], batches: Sequence[Batch], items: Iterable[int], now: float) -> Decision | None:
        """Count what goes on of what is slowed. The throttle is not capped."""
        slowed = [asked for asked in self.filling.asks(batches, items) if 0 < asked[1] < 1]
        if not slowed:
            return None
        decision = self.charge(found, [batches[i].size / factor for i, factor, _ in slowed], now).decision
        if decision is None:
            return None
        _, factor, place = min(slowed, key=lambda it: it[1])
        usage, limit = decision.usage * factor, decision.limit * factor
        message = f"{self.filling.why(place)} {found.owner} is slowed down to {size(limit)}/s."
        return replace(decision, items=tuple(i for i, _, _ in slowed), usage=usage, limit=limit, message=message)

    def weights(self, batches: Sequence[Batch], items: Iterable[int]) -> dict[int, float]:
        """What each batch counts that `slow` counts now."""
        return {i: batches[i].size / factor for i, factor, _ in self.filling.asks(batches, items) if 0 < factor < 1}
