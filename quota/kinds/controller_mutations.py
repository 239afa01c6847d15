"""Controller mutations (seed s1, KIP-599): how many partitions per second a client may create, add or delete.

In: who asks, the partitions of each topic in the request's order, whether the client's version knows the error, the time.
Out: a verdict, with a receipt for what was recorded. It leaves to others: what a topic costs, how an answer looks, how long
a connection is muted.

Admission is topic by topic, each recorded before the next is judged, so a request may overshoot by its last admitted topic.
Refused topics are not recorded; what the broker then does not do is credited. A topic is admitted

- `spread`: iff the average is below the rate (seed s1);
- `token_bucket`: iff there is no debt (KIP-599 as it was built).

Clients too old for the error get everything accepted and recorded, and are told the largest wait: `spread`, of what a topic
that found no room would have been refused with; `token_bucket`, of the debt once it is recorded. Clients that know the error
are told the smallest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from math import ceil, fsum
from typing import Final, NamedTuple

from quota.decision import Action, Busiest, Decision, Standing, Verdict, figure
from quota.entity import Entity
from quota.fair_share import FairShare
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import NO_LIMITS, Limits
from quota.round_robin import RoundRobin
from quota.steps import STEP, Steps, finish_at_once, largest
from quota.windows import Mark
from quota.windows.spread import SpreadRate
from quota.windows.token_bucket import TokenBucket

Window = SpreadRate | TokenBucket

NAME = "controller_mutations"
DEFAULT_WINDOWS = 11
"""controller.quota.window.num of seed s1: the burst is this many seconds of the rate where none is set."""
MAX_ENTITIES = 100_000
"""Windows of all users, of which each user has a share (`fair_share`): a client id is whatever a client claims. Where the share is
full, further client ids of the user share one window, so that new client ids are no way round the limit."""
SWEPT: Final = 300
"""Windows that one sweep looks at; the next goes on from there."""
AT_ONCE: Final = 200
"""Topics that are charged in one step, some 2 us each in pure Python."""
LEARNED: Final = 32
"""Amounts of other proxies that are told apart, so that they can be taken back."""
LOOKED_AT: Final = 10_000
"""Windows among which the busiest are looked for: those that were charged last."""


class Algorithm(Enum):
    """How a burst is forgotten."""

    SPREAD = "spread"
    """seed s1: spread over the previous windows"""
    TOKEN_BUCKET = "token_bucket"  # noqa: S105
    """what Kafka built in the end"""


@dataclass(frozen=True, slots=True)
class MutationLimit:
    """`rate` in partitions per second, `burst` >= `rate` in partitions (controller_mutations_rate, controller_mutations_burst)."""

    rate: float
    burst: float
    algorithm: Algorithm = Algorithm.SPREAD

    @classmethod
    def of(cls, rate: float, burst: float | None, algorithm: Algorithm = Algorithm.SPREAD) -> MutationLimit:
        return cls(rate, DEFAULT_WINDOWS * rate if burst is None else burst, algorithm)


_KINDS: Final[dict[Algorithm, type[SpreadRate] | type[TokenBucket]]] = {
    Algorithm.SPREAD: SpreadRate,
    Algorithm.TOKEN_BUCKET: TokenBucket,
}


class Usage(NamedTuple):
    """How an entity stands: partitions per second on average, its limit, and partitions left until the limit is reached."""

    average: float
    rate: float
    left: float


class Part(NamedTuple):
    """What was recorded at one time: for `credit`."""

    window: Window
    mark: Mark
    amount: int


@dataclass(slots=True, eq=False)
class Receipt:
    """What was recorded of one request, so that it can be taken back, or corrected. `parts` by item."""

    found: ResolvedLimit[MutationLimit]
    parts: dict[int, list[Part]]


class ControllerMutations:
    """The quota of all entities: one window each, made when first charged, dropped when everything in it has passed."""

    name: Final = NAME
    title: Final = "controller mutation"

    def __init__(self, limits: LimitTable[MutationLimit] = NO_LIMITS) -> None:
        self.enforced = True
        """False: all is recorded, nothing is refused, and decisions say what would have been"""
        self.limits = limits
        """Operators may put another in its place; windows whose limit is another take it when they are next charged, and what
        was used stays used."""
        self._windows: OrderedDict[Entity, tuple[MutationLimit, Window]] = OrderedDict()
        self._room = FairShare(MAX_ENTITIES)
        self._sweeps: RoundRobin[Entity] = RoundRobin(0.0, SWEPT)
        self._charged: dict[Entity, int] | None = None
        self._learned: dict[Entity, list[Part]] = {}

    def __len__(self) -> int:
        """Entities that have a window."""
        return len(self._windows)

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on; windows take them when they are next charged."""
        self.limits = limits.table(NAME)
        self.enforced = NAME not in limits.observed

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[MutationLimit] | None:
        """The limit that holds for this client, if any; `client_ids` as in `LimitTable.find`. Where the user has as many windows as
        it may have, a further client id is one of the others."""
        found = self.limits.find(user, client_id, client_ids=client_ids)
        if found is None or found.owner in self._windows or self._room.has_room(user):
            return found
        return self.limits.shared(found)

    def refuses(self, found: ResolvedLimit[MutationLimit], partitions: Sequence[int], now: float) -> bool:
        """Would `charge` refuse any of these now, if the client's version can be refused? Nothing is recorded.

        Exact: for the same arguments and time, it is true iff `charge` with `refusable` refuses. It may be true where a later
        `charge` does not refuse, as there is more room by then. Of clients that cannot be refused it says whether a topic would
        find no room; the token bucket throttles them for the topic before too, which empties it.
        """
        return self.enforced and self._look(found, now).refuses([amount for amount in partitions if amount > 0], now)

    def charge(
        self, found: ResolvedLimit[MutationLimit], partitions: Sequence[int], now: float, *, refusable: bool = True
    ) -> Verdict:
        """Charge one request; `partitions[i]` is what topic i costs, 0 for one that costs nothing and is always admitted.
        `refusable`: the client's version knows the error."""
        return finish_at_once(self.charging(found, partitions, refusable=refusable, now=now))

    def charging(
        self,
        found: ResolvedLimit[MutationLimit],
        partitions: Sequence[int],
        *,
        refusable: bool,
        now: float,
        receipt: Receipt | None = None,
    ) -> Steps[Verdict]:
        """The same in steps of `AT_ONCE` topics. What others charge meanwhile takes room from the topics that are left. `receipt`:
        an empty one of this limit to be used, so that a caller that gives up half way can take back what was recorded by then."""
        receipt = Receipt(found, {}) if receipt is None else receipt
        if not any(amount > 0 for amount in partitions):
            return Verdict(0, None, receipt)
        window, told = self._window(found, now), refusable
        refusable = refusable and self.enforced
        over: list[int] = []
        waits: list[float] = []
        usage, charged = 0.0, 0
        for i, amount in enumerate(partitions):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
                window = self._kept(found, now)
            if amount <= 0:
                continue
            if over and refusable:  # nothing was recorded since one was refused
                over.append(i)
                continue
            admitted = window.admits(now)
            if not admitted:
                usage = max(usage, window.average(now))
                waits.append(window.wait(now))
                over.append(i)
                if refusable:
                    continue
            receipt.parts[i] = [Part(window, window.record(amount, now), amount)]
            charged += amount
            self._note(found.owner, amount)
            if not refusable and window.told_after and not window.admits(now):
                waits.append(window.wait(now))
                usage = max(usage, window.average(now))
                if admitted:
                    over.append(i)
        if not over:
            return Verdict(charged, None, receipt)
        wait = min(waits) if refusable else max(waits)
        decision = _decision(found, over, usage, wait, window.left(now), refusable)
        if told and not refusable:
            decision = replace(decision, action=Action.REFUSE)
        return Verdict(charged, decision, receipt)

    def give_up(self, receipt: Receipt, _now: float, /) -> None:
        """A request does not go on after all: take back all that was recorded of it."""
        self.credit(receipt, list(receipt.parts))

    def credit(self, receipt: object, items: Iterable[int]) -> int:
        """Take back what `Verdict.receipt` has recorded for these items, as it did not happen. Returns how much that was, whether
        or not it weighed still; 0 for items that were refused, free, or credited already."""
        if not isinstance(receipt, Receipt):
            return 0
        amount = 0
        for item in items:
            for part in receipt.parts.pop(item, ()):
                part.window.credit(part.amount, part.mark)
                amount += part.amount
        self._note(receipt.found.owner, -amount)
        return amount

    def correct(self, receipt: object, item: int, actual: int, now: float) -> int:
        """An item of `Verdict.receipt` has cost `actual` >= 0 instead of what was recorded: the rest is recorded as of now, or what
        was too much taken back. Returns the difference; 0 for items that were refused, free, or credited."""
        parts = receipt.parts.get(item) if isinstance(receipt, Receipt) else None
        if parts is None or not isinstance(receipt, Receipt):
            return 0
        difference = max(actual, 0) - sum(part.amount for part in parts)
        self._note(receipt.found.owner, difference)
        if difference > 0:
            window = self._kept(receipt.found, now)
            parts.append(Part(window, window.record(difference, now), difference))
        else:
            _take_back(parts, -difference)
        return difference

    def average(self, found: ResolvedLimit[MutationLimit], now: float) -> float:
        """Partitions per second of the owner of a limit."""
        return self._look(found, now).average(now)

    def standing(self, found: ResolvedLimit[MutationLimit], now: float) -> Usage:
        """How the entity of a limit stands."""
        return _usage(self._look(found, now), now)

    def stands(self, found: ResolvedLimit[MutationLimit], now: float) -> Standing:
        """The same for a decision."""
        return Standing(*self.standing(found, now))

    def usage(self, now: float) -> dict[Entity, Usage]:
        """How every entity stands that has a window."""
        return {entity: _usage(window, now) for entity, (_, window) in self._windows.items()}

    def busiest(self, count: int, now: float) -> Steps[Busiest[Entity, Usage]]:
        """How those stand that use most of their rate: `count` of the `LOOKED_AT` that were charged last; in steps."""
        averages = []
        for entity, (_, window) in list(islice(reversed(self._windows.items()), LOOKED_AT if count > 0 else 0)):
            averages.append((window.average(now), entity, window))
            if len(averages) % STEP == 0:
                yield
        chosen = yield from largest(count, averages, lambda it: it[0] / it[2].rate)
        others = fsum(it[0] for it in averages) - fsum(it[0] for it in chosen)
        return Busiest([(entity, _usage(window, now)) for _, entity, window in chosen], max(others, 0.0))

    def sweep(self, now: float) -> None:
        """Forget windows in which nothing is left; `SWEPT` are looked at each time."""
        for entity in self._sweeps.turn(self._windows, now):
            known = self._windows.get(entity)
            if known is not None and known[1].idle(now):
                del self._windows[entity]
                self._room.give_back(entity.user or "")
                self._learned.pop(entity, None)

    def publish(self) -> Sequence[Sums]:
        """Proxies add up what they charge and credit."""
        self._charged = {}
        return (self,)

    def take_charged(self) -> list[tuple[Entity, float]]:
        """What was charged and credited here since the last time, by owner."""
        taken = [(owner, float(amount)) for owner, amount in (self._charged or {}).items() if amount]
        self._charged = {}
        return taken

    def learn(self, owner: Entity, amount: float, now: float) -> None:
        """Another proxy has charged so much, or, below 0, credited it."""
        limit, units = self.limits.of(owner), round(amount)
        if limit is None or not units:
            return
        parts = self._learned.setdefault(owner, [])
        if units > 0:
            window = self._window(ResolvedLimit(limit, owner), now)
            parts.append(Part(window, window.record(units, now), units))
            del parts[:-LEARNED]
        else:
            _take_back(parts, min(-units, sum(part.amount for part in parts)))

    def level(self, owner: Entity, now: float) -> float:
        """Units that weigh."""
        known = self._windows.get(owner)
        return 0.0 if known is None else known[1].used(now)

    def resume(self, owner: Entity, level: float, age: float, charged: float, now: float) -> None:
        """On another proxy this many weighed `age` seconds ago, without what was `charged` here since. Record what is missing."""
        limit = self.limits.of(owner)
        if limit is not None:
            bucket = limit.algorithm is Algorithm.TOKEN_BUCKET
            passed = limit.rate * age if bucket else level * age * limit.rate / limit.burst
            self.learn(owner, max(max(level - passed, 0.0) + charged - self.level(owner, now), 0.0), now)

    def weighs_for(self, owner: Entity, now: float) -> float:
        """Seconds for which what was charged last weighs."""
        known = self._windows.get(owner)
        return 1.0 if known is None else max(known[1].used(now), known[0].burst) / known[0].rate

    def capacity(self, owner: Entity) -> float:
        """What may be charged at once."""
        limit = self.limits.of(owner)
        return 0.0 if limit is None else limit.burst

    def _note(self, owner: Entity, amount: int) -> None:
        if self._charged is not None:
            self._charged[owner] = self._charged.get(owner, 0) + amount

    def _window(self, found: ResolvedLimit[MutationLimit], now: float) -> Window:
        """The window to charge: made where there is none, of the limit that holds now."""
        known = self._windows.get(found.owner)
        if known is None or known[0] != found.limit:
            window = _new(found.limit) if known is None else _changed(*known, found.limit, now)
            if known is None:
                self._room.charge(found.owner.user or "", 1)
            known = self._windows[found.owner] = found.limit, window
        self._windows.move_to_end(found.owner)
        return known[1]

    def _look(self, found: ResolvedLimit[MutationLimit], now: float) -> Window:
        """The same for a look, which makes no entity known and keeps none from being forgotten."""
        known = self._windows.get(found.owner)
        if known is None:
            return _new(found.limit)
        return known[1] if known[0] == found.limit else self._window(found, now)

    def _kept(self, found: ResolvedLimit[MutationLimit], now: float) -> Window:
        """The window of an entity that was charged; its limit may be another by now."""
        known = self._windows.get(found.owner)
        return self._window(found, now) if known is None else known[1]


def _new(limit: MutationLimit) -> Window:
    return _KINDS[limit.algorithm](limit.rate, limit.burst)


def _changed(old: MutationLimit, window: Window, new: MutationLimit, now: float) -> Window:
    """The window of an entity whose limit is another from now on: what it has used stays used."""
    if old.algorithm is new.algorithm:
        window.change(new.rate, new.burst, now)
        return window
    other = _new(new)
    other.record(ceil(window.used(now)), now)
    return other


def _usage(window: Window, now: float) -> Usage:
    return Usage(window.average(now), window.rate, window.left(now))


def _take_back(parts: list[Part], amount: int) -> None:
    """So much of what was recorded, the latest first."""
    while amount > 0:
        part = parts.pop()
        taken = min(amount, part.amount)
        part.window.credit(taken, part.mark)
        amount -= taken
        if part.amount > taken:
            parts.append(part._replace(amount=part.amount - taken))


def _decision(
    found: ResolvedLimit[MutationLimit], over: list[int], usage: float, wait: float, left: float, refusable: bool
) -> Decision:
    limit = found.limit
    verb = "refused" if refusable else "slowed down"
    message = (
        f"The controller mutation quota of {found.owner} is exceeded: {figure(usage)} partition mutations/s on average,"
        f" limit {figure(limit.rate)}/s"
        f" with a burst of {figure(limit.burst)}; this topic was {verb}, try again in {figure(wait)} s."
    )
    action = Action.REFUSE if refusable else Action.THROTTLE
    return Decision(NAME, action, found.owner, tuple(over), usage, limit.rate, wait, message, left)
