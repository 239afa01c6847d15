"""Stored bytes: how much the topics of a tenant, or a topic, may keep on the brokers' disks. Two kinds: of tenants, of topics.

In: sizes of topics as the log dirs of the brokers have them, batches that go on, what other proxies let through. Out: for each
batch whether it fits, and a throttle factor above the soft limit (`quota.kinds.slowed_rates` does the rest). It leaves to
others: asking brokers (`proxy.upstream.stored_bytes`), what they tell, and which topic counts for whom (`quota.stored_sizes`).

What an owner stores is what the last look at the log dirs saw, plus what was written since that look began. So a look never
takes back what it may not have seen, and until the next one at most what is on its way to brokers when a look begins is
missing. What is deleted is free at the next look. A batch goes on iff the hard limit is not passed with it.

Memory: a budget for each owner with a limit."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Final, Protocol

from quota.batch import POLICY_VIOLATION, STORAGE_ERROR, Batch
from quota.catalogue import STORED, TENANT_KINDS
from quota.decision import Action, Decision, Standing
from quota.entity import Entity
from quota.kinds.slowed_rates import Asked
from quota.kinds.storage import LEAST_RATE, line, size
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import NO_LIMITS, Limits

TENANT_STORED: Final = TENANT_KINDS[STORED]
AT_ONCE: Final = 200
"""Budgets that are looked at in one step."""
NEAR: Final = 0.9
"""Part of the first limit from which on a budget is looked at more often."""
UNKNOWN: Final = 1 << 62
MARGIN: Final = 0.01
"""Part of the hard limit by which an owner has to be below it before the log says so."""


@dataclass(frozen=True, slots=True)
class StoredLimit:
    """Bytes. `soft` is `hard` where there is one limit."""

    hard: int
    soft: int


@dataclass(frozen=True, slots=True)
class StoredBytesOptions:
    """`fails`: what is refused is refused for good. `replicas`: every copy counts. `interval`, `near_interval`: seconds between two
    looks at all, and at those near a limit. `validity`: seconds for which the sizes of a broker that does not answer hold."""

    fails: bool = False
    replicas: bool = False
    interval: float = 60.0
    near_interval: float = 5.0
    validity: float = 300.0


class Stands(Enum):
    """How an owner stands, as the log tells it."""

    WITHIN = "within"
    SOFT = "past the soft limit"
    HARD = "at the hard limit"


class Budget:
    """What one owner may store. `seen`: bytes at the last look; `written` since the start, of which `mark` when that look began."""

    __slots__ = (
        "_learned",
        "_marked",
        "_taken",
        "_until",
        "kind",
        "known",
        "limit",
        "mark",
        "noted",
        "owner",
        "refused",
        "seen",
        "told",
        "written",
    )

    def __init__(self, kind: StoredBytes, owner: Entity, limit: StoredLimit) -> None:
        self.kind, self.owner, self.limit = kind, owner, limit
        self.seen = self.written = self.mark = self._marked = 0
        self._learned = self._taken = 0
        """of what was written: by way of other proxies, and what they know of"""
        self._until = UNKNOWN
        """what may be written before the soft limit is reached, in all"""
        self.known = False
        """Was there a look yet? Before, nothing is refused."""
        self.refused = False
        """Was something refused since the last `stand`?"""
        self.noted = not kind.shares
        """True if what is written need not be noted: nobody is told of it, or it is among those of whom others will be told"""
        self.told = Stands.WITHIN

    @property
    def used(self) -> int:
        """Bytes that are stored, as far as is known."""
        return max(self.seen + self.written - self.mark, 0)

    @property
    def factor(self) -> float:
        """1 up to the soft limit, 0 at the hard one and above."""
        hard = self.limit.hard
        return line(hard - self.used, 0, hard - self.limit.soft) if self.known else 1.0

    @property
    def near(self) -> bool:
        """Is it near its first limit, or will it be if as much again is written as since the last look?"""
        since = self.written - self.mark
        return self.known and (self.used >= NEAR * self.limit.soft or self.used + since >= self.limit.soft)

    def take(self, amount: int) -> bool:
        """Count what is written if the soft limit is not passed with it; else nothing is counted."""
        written = self.written + amount
        if written > self._until:
            return False
        self.written = written
        if not self.noted:
            self._note()
        return True

    def fits(self, amount: int) -> bool:
        """Is the hard limit not passed with so much more?"""
        return not self.known or self.used + amount <= self.limit.hard

    def record(self, amount: int) -> None:
        """Count what is written, or, below 0, was not written after all."""
        self.written += amount
        if not self.noted:
            self._note()

    def _note(self) -> None:
        """Once from one telling to the next, as it would be a look-up for every request."""
        self.noted = True
        self.kind.touched.append(self)

    def learn(self, amount: int) -> None:
        """So much was written by way of other proxies."""
        self.written += amount
        self._learned += amount

    def take_charged(self) -> int:
        """What was written here since the last time."""
        here = self.written - self._learned
        charged, self._taken = here - self._taken, here
        return charged

    def begin(self) -> None:
        """A look begins: what is written from now on may not be in it."""
        self._marked = self.written

    def finish(self, seen: int) -> None:
        """The look that began last saw so much."""
        self.seen, self.mark, self.known = seen, self._marked, True
        self._set()

    def change(self, limit: StoredLimit) -> None:
        """This limit holds from now on."""
        if limit != self.limit:
            self.limit = limit
            self._set()

    def stand(self) -> Stands:
        """How it stands, for people. Who was at the limit is so until there is a little room again."""
        used, limit, refused = self.used, self.limit, self.refused
        self.refused = False
        at_limit = self.told is Stands.HARD and used > limit.hard * (1 - MARGIN)
        if self.known and (used >= limit.hard or refused or at_limit):
            return Stands.HARD
        return Stands.SOFT if self.known and used > limit.soft else Stands.WITHIN

    def _set(self) -> None:
        if self.known:
            self._until = self.limit.soft - self.seen + self.mark


class StoredTopic:
    """A topic that somebody writes to. `copies`: how many times each byte counts."""

    __slots__ = ("budgets", "copies", "name")

    def __init__(self, name: str, budgets: tuple[Budget, ...], copies: int) -> None:
        self.name, self.budgets, self.copies = name, budgets, copies

    def take(self, size: int) -> bool:
        """Count these bytes if no soft limit is passed with them; else nothing is counted."""
        amount = size * self.copies
        for budget in self.budgets:
            if not budget.take(amount):
                for before in self.budgets:
                    if before is budget:
                        return False
                    before.record(-amount)
        return True

    def give_back(self, size: int) -> None:
        """These bytes were not written after all."""
        for budget in self.budgets:
            budget.record(-size * self.copies)


class TopicBudgets(LimitTable[StoredLimit]):
    """The limits of topics, by name. No client has a limit here."""

    def __init__(self, topics: Mapping[str, StoredLimit]) -> None:
        super().__init__({})
        self.topics = dict(topics)

    def __bool__(self) -> bool:
        return bool(self.topics)

    def owned(self) -> Iterable[tuple[Entity, StoredLimit]]:
        return ((Entity(None, None, topic), limit) for topic, limit in self.topics.items())

    def of(self, owner: Entity) -> StoredLimit | None:
        return self.topics.get(owner.topic or "")


class Shared(Protocol):
    """What the two kinds share (`quota.stored_sizes`)."""

    options: StoredBytesOptions
    produced: Callable[[], Mapping[str, float]]

    def find(self, name: str) -> StoredTopic: ...


class StoredBytes:
    """One of the two kinds: the budgets of all tenants, or of all topics, with a limit. To `SlowedRates` it is what fills."""

    holds: Final = False
    """Nothing waits for room, as the same connection serves other topics too."""

    def __init__(self, name: str, stored: Shared) -> None:
        self.name, self.title = name, name.replace("_", " ")
        self._stored = stored
        self.limits: LimitTable[StoredLimit] = NO_LIMITS
        self.budgets: dict[Entity, Budget] = {}
        self.settled = True
        """Are these the budgets of all limits?"""
        self.shares = False
        self.touched: list[Budget] = []
        self._rates: Mapping[str, float] | None = None

    @property
    def calm(self) -> bool:
        """True if nobody has a limit."""
        return not self.limits

    @property
    def code(self) -> int:
        """The error with which batches are refused."""
        return POLICY_VIOLATION if self._stored.options.fails else STORAGE_ERROR

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on. What is stored stays stored. The first budgets are made and changed now, the others when
        they are needed, as there may be ten thousand."""
        self.limits, self.settled = limits.table(self.name), False
        next(self.settle(), None)

    def budget(self, owner: Entity) -> Budget | None:
        """The budget of an owner; None where it has no limit."""
        limit, found = self.limits.of(owner), self.budgets.get(owner)
        if limit is None:
            return None
        if found is None:
            found = self.budgets[owner] = Budget(self, owner, limit)
        found.change(limit)
        return found

    def settle(self) -> Generator[None, None, None]:
        """Make the budgets of all limits, and forget those of none, in steps."""
        if self.settled:
            return
        limits = self.limits
        for i, (owner, _) in enumerate(limits.owned()):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
            if self.limits is not limits:  # others hold by now
                return
            self.budget(owner)
        for i, owner in enumerate(list(self.budgets)):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
            if self.limits.of(owner) is None:
                self.budgets.pop(owner, None)
        self.settled = True

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[StoredLimit] | None:
        """The limit of the tenant of this user; topics have no users."""
        return self.limits.find(user, client_id, client_ids=client_ids)

    def stands(self, found: ResolvedLimit[StoredLimit], _now: float, /) -> Standing:
        """How the owner of a limit stands."""
        budget = self.budgets.get(found.owner)  # a look makes none
        used = 0 if budget is None else budget.used
        return Standing(used, found.limit.hard, max(found.limit.hard - used, 0))

    def sweep(self, now: float) -> None:
        """Nothing: budgets live as long as their limits."""

    # ------------------------------------------------------------------ what fills (`slowed_rates.Filling`)

    def asks(self, batches: Sequence[Batch], items: Iterable[int]) -> list[Asked]:
        """What each batch meets. Each is judged as if those before it were written."""
        asked: list[Asked] = []
        more: dict[Entity, int] = {}
        for i in items if self.limits else ():
            batch = batches[i]
            found = self._of(batch)
            if found is None:
                continue
            budget, copies = found
            before, amount = more.get(budget.owner, 0), batch.size * copies
            if budget.fits(before + amount):
                more[budget.owner] = before + amount
                asked.append((i, budget.factor, budget))
            else:
                asked.append((i, 0.0, budget))
        return asked

    def decision(self, action: Action, _owner: Entity, items: tuple[int, ...], budget: Any) -> Decision:
        used, hard = budget.used, budget.limit.hard
        return Decision(self.name, action, budget.owner, items, used, hard, 0.0, self.why(budget), max(hard - used, 0))

    def why(self, budget: Any, *, figures: bool = True) -> str:
        """The reason, for a client that is refused or slowed down."""
        used, hard, soft = budget.used, budget.limit.hard, budget.limit.soft
        if not figures:
            return f"{budget.owner} has used up its stored bytes."
        said = f"{budget.owner} has {size(used)} of {size(hard)} stored"
        if not budget.factor or soft == hard:
            return f"{said}; what is written would pass its limit."
        return f"{said}, its soft limit is {size(soft)}; the throttle factor is {budget.factor:.3g}."

    def refused(self, budget: Any, /) -> None:
        """To be told: a batch did not fit."""
        budget.refused = True

    def throttle(self, _budget: Any, _now: float, /) -> float:
        """Nothing: other topics share the connection."""
        return 0.0

    def next_look(self, _now: float, /) -> float:
        return self._stored.options.near_interval

    def rate_of(self, user: str) -> float:
        """Bytes per second that a user without a byte rate is slowed from: what it produced when a soft limit was passed."""
        if self._rates is None:
            self._rates = dict(self._stored.produced())
        return max(self._rates.get(user, 0.0), LEAST_RATE)

    def nobody_slowed(self) -> bool:
        """Nobody is past a soft limit any more: rates are measured anew when somebody is. False if none were taken down."""
        before, self._rates = self._rates, None
        return before is not None

    def record(self, batches: Sequence[Batch], items: Iterable[int]) -> None:
        """These batches go on."""
        self._record(batches, items, 1)

    def give_back(self, batches: Sequence[Batch], items: Iterable[int]) -> None:
        """These were not written after all."""
        self._record(batches, items, -1)

    def _record(self, batches: Sequence[Batch], items: Iterable[int], sign: int) -> None:
        for i in items:
            found = self._of(batches[i])
            if found is not None:
                found[0].record(sign * batches[i].size * found[1])

    def _of(self, batch: Batch) -> tuple[Budget, int] | None:
        """The budget that a batch counts for, and how many times."""
        if not batch.known:
            return None
        topic = self._stored.find(batch.topic)
        return next(((budget, topic.copies) for budget in topic.budgets if budget.kind is self), None)

    # ------------------------------------------------------------------ other proxies (`quota.ledger.Sums`)

    def publish(self) -> Sequence[Sums]:
        """Proxies add up what was written."""
        self.shares = True
        for budget in self.budgets.values():
            budget.noted = False
        return (self,)

    def take_charged(self) -> list[tuple[Entity, float]]:
        touched, self.touched = self.touched, []
        for budget in touched:
            budget.noted = False
        return [(budget.owner, float(charged)) for budget in touched if (charged := budget.take_charged())]

    def learn(self, owner: Entity, amount: float, _now: float, /) -> None:
        """So much was written by way of another proxy."""
        budget = self.budget(owner)
        if budget is not None:
            budget.learn(int(amount))

    def level(self, owner: Entity, _now: float, /) -> float:
        budget = self.budgets.get(owner)
        return 0.0 if budget is None else float(budget.used)

    def resume(self, owner: Entity, level: float, age: float, charged: float, now: float) -> None:
        """Nothing: the log dirs tell."""

    def weighs_for(self, _owner: Entity, _now: float, /) -> float:
        return self._stored.options.interval

    def capacity(self, owner: Entity) -> float:
        budget = self.budgets.get(owner)
        return inf if budget is None else float(budget.limit.hard)
