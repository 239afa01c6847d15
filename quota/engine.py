"""The one object that the proxy asks. In: who does what, when. Out: verdicts, and how long an entity still has to keep quiet.

It owns one object per kind and the mutes: since KIP-219 a throttle mutes the connection it came on; the debt belongs to
the entity, so a charged request of the same kind from the same entity on another connection waits for what is left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from quota.book import Found, QuotaBook
from quota.decision import Action, Decision, Standing, Verdict
from quota.entity import Entity
from quota.kinds.controller_mutations import ControllerMutations, MutationLimit, Receipt
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIds, Windows, user_book
from quota.kinds.storage import Storage, StorageLimits
from quota.windows.bloom import Hash

L = TypeVar("L")

HOURS: Final = Windows()
MAX_HOLD = 10.0
"""Seconds that a request on another connection is held at most."""


@dataclass(frozen=True, slots=True)
class Exempt:
    """Who and what is never limited."""

    users: frozenset[str] = frozenset()
    client_ids: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Limits:
    """All that operators limit, and `max_throttle`: seconds that any throttle lasts at most. Debt beyond it stays in its window."""

    controller_mutations: QuotaBook[MutationLimit]
    max_throttle: float = 30.0
    exempt: Exempt = Exempt()
    producer_ids: QuotaBook[ProducerIdLimit] = field(default_factory=lambda: user_book({}))
    count_unlimited: bool = True
    """Are producer ids of users without a limit counted too, for metrics?"""
    cleanup_interval: float = 60.0
    """seconds between two looks at all users whose producer ids may be past"""
    storage: StorageLimits | None = None


class Kind(Protocol[L]):
    """What `Engine.hold` has to know of a kind."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    def stands(self, found: Found[L], now: float) -> Standing:
        """How the owner of a limit stands."""


class Mutes:
    """Until when each entity is to keep quiet, per quota. Seconds are monotonic."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, Entity], float] = {}

    def start(self, quota: str, entity: Entity, until: float) -> None:
        key = (quota, entity)
        self._until[key] = max(until, self._until.get(key, until))

    def left(self, quota: str, entity: Entity, now: float) -> float:
        """Seconds left, 0 when the entity may speak."""
        until = self._until.get((quota, entity))
        return 0.0 if until is None or until <= now else until - now

    def active(self, now: float) -> dict[tuple[str, Entity], float]:
        """(quota, entity) to seconds left."""
        return {key: until - now for key, until in self._until.items() if until > now}

    def sweep(self, now: float) -> None:
        for key in [key for key, until in self._until.items() if until <= now]:
            del self._until[key]


class Engine:
    """Every quota of one proxy. `hash128` hashes producer ids, `windows` say how long they are remembered."""

    def __init__(self, limits: Limits, hash128: Hash, windows: Windows = HOURS) -> None:
        self.limits = limits
        self.mutes = Mutes()
        self.controller_mutations = ControllerMutations(limits.controller_mutations)
        self.producer_ids = ProducerIds(
            limits.producer_ids, hash128, windows, exempt=limits.exempt.users, count_unlimited=limits.count_unlimited
        )
        self.storage = Storage(limits.storage)
        self._next_cleanup = 0.0

    def change(self, limits: Limits) -> None:
        """These limits hold from now on. What entities have used stays used; mutes that began go on."""
        self.limits = limits
        self.controller_mutations.book = limits.controller_mutations
        self.producer_ids.change(limits.producer_ids, limits.exempt.users, limits.count_unlimited)
        self.storage.change(limits.storage)
        self._next_cleanup = 0.0

    def find_mutation_limit(self, user: str, client_id: str) -> Found[MutationLimit] | None:
        """The controller mutation limit of a client, None when it has none or is exempt."""
        exempt = self.limits.exempt
        if user in exempt.users or client_id in exempt.client_ids:
            return None
        return self.controller_mutations.find(user, client_id)

    def hold(self, kind: Kind[L], found: Found[L], items: Sequence[int], now: float) -> Decision | None:
        """A charged request of an entity that this kind mutes on some connection waits, `MAX_HOLD` at most; None when it need
        not."""
        left = min(self.mutes.left(kind.name, found.owner, now), MAX_HOLD)
        if left <= 0:
            return None
        usage, limit, room = kind.stands(found, now)
        message = f"{found.owner} is muted on another connection by its {kind.title} quota for {left:.1f} s more."
        return Decision(kind.name, Action.HOLD, found.owner, tuple(items), usage, limit, left, message, room)

    def refuses_mutations(self, found: Found[MutationLimit], partitions: Sequence[int], now: float) -> bool:
        """Would `charge_mutations` refuse any of these now, if the client's version can be refused? Nothing is recorded, and
        `charge_mutations` with the same arguments and time refuses iff this is true."""
        return self.controller_mutations.refuses(found, partitions, now)

    def charge_mutations(
        self, found: Found[MutationLimit], partitions: Sequence[int], *, refusable: bool, now: float, mute: bool = True
    ) -> Verdict:
        """Charge a request that creates, adds or deletes partitions. The throttle is capped at `max_throttle`, and the entity
        is muted for it, but for `mute` False: where no answer tells of a throttle and no connection is muted."""
        return self._capped(self.controller_mutations.charge(found, partitions, refusable=refusable, now=now), now, mute)

    def hold_producer_ids(self, user: str, ids: Sequence[int], now: float) -> Decision | None:
        """`hold` for a Produce request with ids that are new to a user over its limit: whoever is known already goes on at once,
        and is throttled when it is charged."""
        found = self.producer_ids.find(user)
        if found is None or not self.producer_ids.over(user, now):
            return None
        new = self.producer_ids.new(user, ids, now)
        return self.hold(self.producer_ids, found, new, now) if new else None

    def charge_producer_ids(self, user: str, ids: Sequence[int], now: float, *, exempt: bool = False) -> Verdict:
        """Count the new producer ids of one Produce request; `ids[i]` is that of item i. `exempt`: whatever it is about is never
        limited. The throttle is capped at `max_throttle`, and the user is muted for it."""
        verdict = self._capped(self.producer_ids.charge(user, ids, now, exempt=exempt), now)
        if verdict.decision is not None:
            self.producer_ids.told(user, verdict.decision.throttle, now)
        return verdict

    def _capped(self, verdict: Verdict, now: float, mute: bool = True) -> Verdict:
        """A verdict whose throttle is `max_throttle` at most, and starts a mute."""
        if verdict.decision is None:
            return verdict
        decision = replace(verdict.decision, throttle=min(verdict.decision.throttle, self.limits.max_throttle))
        if mute:
            self.mutes.start(decision.quota, decision.entity, now + decision.throttle)
        return replace(verdict, decision=decision)

    def credit_mutations(self, receipt: object, items: Iterable[int]) -> int:
        """Take back what `Verdict.receipt` has recorded for these items, as it did not happen. Units that did not happen,
        whether or not they weighed still; 0 for items that were refused, free, or credited already."""
        return self.controller_mutations.credit(receipt, items) if isinstance(receipt, Receipt) else 0

    def correct_mutations(self, receipt: object, item: int, actual: int, now: float) -> int:
        """An item of `Verdict.receipt` has cost `actual` >= 0 units instead of what was charged: the rest is recorded as of
        now, or what was too much taken back. The difference; 0 for items that were refused, free, or credited."""
        return self.controller_mutations.correct(receipt, item, actual, now) if isinstance(receipt, Receipt) else 0

    def sweep(self, now: float) -> None:
        """Forget what has passed; call it now and then, memory is bounded by what is in force."""
        self.mutes.sweep(now)
        self.controller_mutations.sweep(now)
        if now >= self._next_cleanup:
            self._next_cleanup = now + self.limits.cleanup_interval
            self.producer_ids.sweep(now)
