"""How many topics and partitions a user or a tenant may have. Four kinds: topics and partitions, of users and of tenants.

In: topics that a request creates or enlarges, item by item. Out: which of them are refused, and why. It leaves to others: who owns
which topic (`quota.owned_topics`), how a refusal looks.

A topic is admitted iff no limit of its owners is passed with it; what is admitted is reserved before the next one is judged. So a
small topic behind a large one may be admitted where the large one is not. A limit below what an owner has already refuses
whatever is more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from quota.catalogue import TENANT_KINDS, TOPIC_NUMBERS
from quota.decision import Action, Decision, Standing, Verdict
from quota.entity import Entity
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import NO_LIMITS, Limits
from quota.owned_topics import Owned, OwnedTopics, Receipt, WantedTopic
from quota.steps import STEP, Steps, largest
from quota.tenants import TenantEntity

if TYPE_CHECKING:
    from quota.engine import Engine

AT_ONCE: Final = 100
"""Topics that are judged in one step."""


class TopicNumbers:
    """One of the kinds. `unit`: `topics` or `partitions`; `key`: the name of the limit."""

    def __init__(self, name: str, key: str, unit: str, owned: OwnedTopics, *, tenants: bool) -> None:
        self.name, self.key, self.unit, self._owned, self.of_tenants = name, key, unit, owned, tenants
        self.title = name.replace("_", " ")
        self.limits: LimitTable[int] = NO_LIMITS

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on."""
        self.limits = limits.table(self.name)

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[int] | None:
        """The limit that holds for what this client creates, of topics without another owner."""
        return self.limits.find(user, client_id, client_ids=client_ids)

    def of(self, owners: Sequence[Entity]) -> ResolvedLimit[int] | None:
        """The limit of the owner of a topic; None without one."""
        for owner in owners:
            if isinstance(owner, TenantEntity) == self.of_tenants:
                limit = self.limits.of(owner)
                return None if limit is None else ResolvedLimit(limit, owner)
        return None

    def amount(self, owned: Owned) -> int:
        """What this kind counts."""
        return owned.topics if self.unit == "topics" else owned.partitions

    def stands(self, found: ResolvedLimit[int], _now: float, /) -> Standing:
        """How the owner of a limit stands."""
        used = self.amount(self._owned.owned(found.owner))
        return Standing(used, found.limit, max(found.limit - used, 0))

    def fullest(self, count: int) -> Steps[list[tuple[Entity, Standing]]]:
        """How those owners stand that have most of what they may: `count` of them; in steps."""
        told: list[tuple[Entity, Standing]] = []
        for i, (owner, _) in enumerate(list(self._owned.owners_now()) if self.limits else ()):
            found = self.of((owner,))
            if found is not None:
                told.append((owner, self.stands(found, 0.0)))
            if i % STEP == STEP - 1:
                yield
        shown = yield from largest(count, told, lambda it: it[1].usage / it[1].limit)
        return shown

    def decision(self, found: ResolvedLimit[int], items: Sequence[int], used: int, more: int) -> Decision:
        """The refusal of these items; `used` and `more` when the first of them was judged."""
        verb = "is" if more == 1 else "are"
        message = f"{found.owner} has {used} of {found.limit} {self.unit} ({self.key}); {more} more {verb} too many."
        return Decision(
            self.name, Action.REFUSE, found.owner, tuple(items), used, found.limit, 0.0, message, max(found.limit - used, 0)
        )

    def sweep(self, now: float) -> None:
        """Nothing: the engine sweeps the topics of all four."""

    def publish(self) -> Sequence[Sums]:
        """Nothing: brokers tell all proxies what there is, and proxies tell each other at once (`quota.fleet_events`)."""
        return ()


def kinds_of(owned: OwnedTopics) -> tuple[TopicNumbers, ...]:
    """All four."""
    return tuple(
        TopicNumbers(name, row.name, row.unit, owned, tenants=name != row.kind)
        for row in TOPIC_NUMBERS
        for name in (row.kind, TENANT_KINDS[row.kind])
    )


@dataclass(slots=True)
class Judged:
    """What was found of one request: `over` by kind and owner: what it had and what was asked for at first, and the items that are
    too much. `receipt`: what was reserved."""

    over: dict[tuple[TopicNumbers, ResolvedLimit[int]], tuple[int, int, list[int]]] = field(default_factory=dict)
    receipt: Receipt = field(default_factory=dict)

    @property
    def items(self) -> set[int]:
        """Items that are too much, be it for a limit that is only observed."""
        return {i for _, _, items in self.over.values() for i in items}


def judging(engine: Engine, user: str, wanted: Sequence[WantedTopic | None], until: float, judged: Judged) -> Steps[None]:
    """Judge what a request of a user asks for, and reserve what is admitted, in steps. None: an item that costs nothing."""
    owned, observed = engine.owned, engine.limits.observed
    kinds = [kind for kind in engine.topic_numbers if kind.limits]
    for i, one in enumerate(wanted):
        if i % AT_ONCE == AT_ONCE - 1:
            yield
        if one is None:
            continue
        owners = owned.owners(one.name, user if one.new else owned.creator(one.name))
        before, refused = owned.reservation(one.name, user), False
        for kind in kinds:
            found, more = kind.of(owners), kind.amount(one.amount)
            if found is None or more <= 0:
                continue
            used = kind.amount(owned.used(found.owner, user))
            if before is not None and found.owner in before.owners:  # asked for again
                used -= kind.amount(before.wanted.amount)
            if used + more > found.limit:
                judged.over.setdefault((kind, found), (used, more, []))[2].append(i)
                refused |= kind.name not in observed
        if not refused and (made := owned.reserve(user, one, until)) is not None:
            judged.receipt[i] = made


def conclude(engine: Engine, judged: Judged, now: float) -> Mapping[int, Decision]:
    """The decisions that hold, by item. What observed limits would have done is kept in `Engine.would`."""
    refused: dict[int, Decision] = {}
    for (kind, found), (used, more, items) in judged.over.items():
        verdict = Verdict(0, kind.decision(found, items, used, more))
        decision = engine.enforce(verdict, now, mute=False).decision
        if decision is not None:
            for i in items:
                refused.setdefault(i, decision)
    return refused
