"""Rates per entity for the whole cluster (KIP-13, KIP-219): bytes produced, bytes consumed, requests, each a `Rates` of its own.

In: who, how much, the time. Out: a verdict that throttles, never refuses. It leaves to others: what is counted, caps and mutes,
how an answer looks. The arithmetic is Kafka's, but for debt, which is paid and not forgotten: `quota/windows/rate.py`.

The fast path is `RateMeter.take`: a connection keeps the meter of its owner, which all connections of the owner share, first
come first served; over the limit, connections that have had more wait longer (`quota/shares.py`). What it does not take
has to be charged. Limits that change hold when a meter is next charged or looked at.

Memory: `MAX_ENTITIES` windows, of which each user has a share (`fair_share`): where that is full, further client ids of the user
share one window, so that new client ids are no way round a limit, and no user makes another one lose its window. One that holds
nothing is dropped by `sweep`; a meter that was dropped is `gone` and safe to use: it passes on to the one that took its place, or
comes back in it, so a connection may replace it at leisure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum, inf
from typing import Final

from quota.decision import Action, Busiest, Decision, Standing, Verdict, figure
from quota.entity import Entity
from quota.fair_share import FairShare
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import NO_LIMITS, Limits
from quota.round_robin import RoundRobin
from quota.shares import Shares
from quota.steps import STEP, Steps, largest
from quota.windows.rate import RateWindow

MAX_ENTITIES = 100_000
"""Windows of all users: a client id is whatever a client claims."""
LOOKED_AT: Final = 10_000
"""Windows among which the busiest are looked for."""
SWEPT: Final = 300
"""Windows that one sweep looks at; the next goes on from there."""
TRIED: Final = 16
"""Windows among which those that hold nothing are looked for when a user has too many."""
LEAST: Final = 1e-6
"""The least rate that a factor leaves: what is above it is slowed to next to nothing, and never divided by 0."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """`rate` > 0 per second; ValueError for others."""

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < inf:
            raise ValueError(f"need a limit above 0, got {self.rate}")


class RateMeter(RateWindow):
    """The window of one owner."""

    __slots__ = ("_next_turn", "_rates", "gone", "owner", "shares", "version")

    def __init__(self, rates: Rates, owner: Entity) -> None:
        super().__init__(rates.limit_of(owner), rates.samples, rates.window)
        self._rates = rates
        self.owner = owner
        self.version = rates.version
        self.gone = False
        self.shares = Shares()
        """how much of it each connection has had lately"""
        self._next_turn = 0.0

    def refresh(self, now: float) -> None:
        """Take the limit that holds."""
        if self.version != self._rates.version:
            self.version = self._rates.version
            self.change(self._rates.limit_of(self.owner), now)

    def turn(self, amount: float, now: float, owed: float) -> float:
        """Seconds until a request for this amount, which is refused now, may come again: when what is owed takes `owed` seconds to
        be paid, and what was refused before it has come again too. So requests that are refused have the order in which they
        came."""
        turn = max(self._next_turn, now + max(self.wait(now) - owed, 0.0))
        self._next_turn = turn + amount / self.limit
        return turn - now

    def _take(self, amount: float, now: float) -> bool:
        if self.gone:
            return self._rates.meter(self.owner, now).take(amount, now)
        self.refresh(now)
        self._rates.touch(self)
        return RateWindow._take(self, amount, now)


class Rates:
    """The quota of all entities. `name` is its key in settings, `title` how people call it, `unit` what is counted."""

    def __init__(
        self,
        name: str,
        title: str,
        unit: str,
        limits: LimitTable[RateLimit] = NO_LIMITS,
        samples: int = 11,
        window: float = 1.0,
    ) -> None:
        """`samples` in 2 to 1000 of `window` > 0 seconds; else ValueError."""
        self.name, self.title, self.unit = name, title, unit
        self.samples, self.window = samples, window
        self.version = 0
        """of the limits"""
        self._limits, self._factor = limits, 1.0
        self._shares = False
        self._touched: set[RateMeter] = set()
        self._came: dict[Entity, None] = {}
        """owners that came here since the last `take_charged`"""
        self.first_weight = 1.0
        """of windows of which nothing was heard yet, see `expect`"""
        self._meters: OrderedDict[Entity, RateMeter] = OrderedDict()
        self._room = FairShare(MAX_ENTITIES)
        self._sweeps: RoundRobin[Entity] = RoundRobin(0.0, SWEPT)
        RateWindow(1.0, samples, window)

    def __len__(self) -> int:
        """Entities that have a window."""
        return len(self._meters)

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on."""
        self.limits = limits.table(self.name)

    @property
    def limits(self) -> LimitTable[RateLimit]:
        """Operators may put another in its place; what was used stays used, see `RateWindow.change`."""
        return self._limits

    @limits.setter
    def limits(self, limits: LimitTable[RateLimit]) -> None:
        self._limits = limits
        self._changed()

    @property
    def factor(self) -> float:
        """In 0 to 1: every limit is multiplied by it (the storage throttle). At 0 next to nothing passes."""
        return self._factor

    @factor.setter
    def factor(self, factor: float) -> None:
        if not 0 <= factor <= 1:
            raise ValueError(f"need a factor from 0 to 1, got {factor}")
        if factor != self._factor:
            self._factor = factor
            self._changed()

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[RateLimit] | None:
        """The limit that holds for this client, if any, before `factor`; `client_ids` as in `LimitTable.find`. Where the user has
        as many windows as it may have, a further client id is one of the others."""
        found = self._limits.find(user, client_id, client_ids=client_ids)
        if found is None or found.owner in self._meters or self._room.has_room(user):
            return found
        return self._limits.shared(found)

    def limit_of(self, owner: Entity) -> float:
        """What an owner may use per second; infinite without a limit."""
        limit = self._limits.of(owner)
        return inf if limit is None else max(limit.rate * self._factor, LEAST)

    def meter(self, owner: Entity, now: float) -> RateMeter:
        """The window of an owner, made where there is none; that of the user's other client ids where there is no room."""
        meter = self._meters.get(owner)
        if meter is None:
            meter = self._make(self._placed(owner, now))
        meter.refresh(now)
        return meter

    def _placed(self, owner: Entity, now: float) -> Entity:
        """Whose window is to be used for an owner without one."""
        user = owner.user or ""
        if self._room.held >= MAX_ENTITIES:
            self._forget_idle(now)
        if self._room.has_room(user):
            return owner
        self._forget_idle(now)
        limit = self._limits.of(owner)
        return owner if limit is None or self._room.has_room(user) else self._limits.shared(ResolvedLimit(limit, owner)).owner

    def _make(self, owner: Entity) -> RateMeter:
        meter = self._meters.get(owner)
        if meter is None:
            meter = self._meters[owner] = RateMeter(self, owner)
            meter.weight = self.first_weight
            self._room.charge(owner.user or "", 1)
            if self._shares:
                self._came[owner] = None
        return meter

    def charge(self, found: ResolvedLimit[RateLimit], items: Sequence[float], now: float) -> Verdict:
        """Record amounts >= 0. Over the limit the decision throttles until the rate is within it, not capped."""
        meter, amount = self.meter(found.owner, now), sum(items)
        meter.record(amount, now)
        self.touch(meter)
        wait = meter.wait(now)
        if wait <= 0:
            return Verdict(int(amount))
        usage, limit = meter.average(now), meter.limit
        slowed = f", a throttle factor of {self._factor:.3g} included" if self._factor < 1 else ""
        message = (
            f"The {self.title} quota of {meter.owner} is exceeded: {figure(usage)} {self.unit}/s on average,"
            f" limit {figure(limit)}/s{slowed}; slowed down for {figure(wait)} s."
        )
        return Verdict(int(amount), Decision(self.name, Action.THROTTLE, meter.owner, (), usage, limit, wait, message))

    def refund(self, owner: Entity, amount: float, now: float) -> None:
        """So much of what was recorded just now did not happen."""
        meter = self._meters.get(owner)
        if meter is not None:
            meter.refresh(now)
            meter.refund(amount, now)
            self.touch(meter)

    def publish(self) -> Sequence[Sums]:
        """Proxies add up what they charge."""
        self._shares = True
        return (self,)

    def touch(self, meter: RateMeter) -> None:
        """Something was charged to this meter, or is about to be."""
        if self._shares:
            self._touched.add(meter)

    def take_charged(self) -> list[tuple[Entity, float]]:
        """What was charged here since the last time, by owner; nothing yet, of one that just came."""
        taken = [(owner, 0.0) for owner in self._came]
        self._came.clear()
        for meter in self._touched:
            if charged := meter.take_charged():
                taken.append((meter.owner, charged))
        self._touched.clear()
        return taken

    def learn(self, owner: Entity, amount: float, now: float) -> None:
        """Another proxy has charged so much, or, below 0, taken it back."""
        self.correct(owner, amount, 0.0, now)

    def expect(self, owner: Entity, weight: float, *, heard_soon: bool) -> None:
        """From now on what is charged here is judged as `weight` times as much, as others are expected to charge too."""
        if (meter := self._meters.get(owner)) is not None:
            meter.expect(weight, heard_soon=heard_soon)

    def expected(self, owner: Entity) -> float:
        """What others are expected to have charged, and is not heard yet."""
        meter = self._meters.get(owner)
        return 0.0 if meter is None else meter.expected

    def accept(self, owner: Entity, charged: float, now: float) -> float:
        """Record what is expected with what was `charged` last as if it was heard: so much."""
        meter = self._meters.get(owner)
        if meter is None:
            return 0.0
        expected = charged * (meter.weight - 1.0)
        meter.learn(expected, now, expected)
        return expected

    def correct(self, owner: Entity, amount: float, expected: float, now: float) -> None:
        """Another proxy has charged so much, of which so much was expected."""
        if self._limits.of(owner) is not None:
            meter = self._learning(owner, now)
            meter.learn(amount, now, min(expected, meter.expected))

    def _learning(self, owner: Entity, now: float) -> RateMeter:
        """The window of an owner of whom others told: it did not come here for that."""
        meter = self.meter(self._limits.owner(owner), now)
        self._came.pop(owner, None)
        return meter

    def level(self, owner: Entity, now: float) -> float:
        """What is in the window of an owner, debt included."""
        meter = self._meters.get(owner)
        return 0.0 if meter is None else meter.level(now)

    def resume(self, owner: Entity, level: float, age: float, charged: float, now: float) -> None:
        """Elsewhere the window of an owner had this level `age` seconds ago: so it has here, with what was `charged` here since."""
        if self._limits.of(owner) is None:
            return
        meter = self._learning(owner, now)
        full = meter.limit * (self.samples - 1) * self.window
        passed = age * meter.limit if level > full else level * age / (self.samples * self.window)
        meter.resume(max(level - passed, 0.0) + charged, now)

    def weighs_for(self, owner: Entity, now: float) -> float:
        """Seconds for which what was used last is of interest."""
        meter = self._meters.get(owner)
        return self.samples * self.window + (0.0 if meter is None else meter.wait(now))

    def capacity(self, owner: Entity) -> float:
        """What a window holds without a debt."""
        return self.limit_of(owner) * (self.samples - 1) * self.window

    def stands(self, found: ResolvedLimit[RateLimit], now: float) -> Standing:
        """How the owner of a limit stands. A look makes no window."""
        meter = self._meters.get(found.owner)
        return _standing(meter or RateMeter(self, found.owner), now)

    def usage(self, now: float) -> Iterator[tuple[Entity, Standing]]:
        """How every entity stands that has a window."""
        return ((meter.owner, _standing(meter, now)) for meter in list(self._meters.values()))

    def busiest(self, count: int, now: float) -> Steps[Busiest[Entity, Standing]]:
        """How those stand that use most of their limit: `count` of `LOOKED_AT`; in steps."""
        standing: list[tuple[Entity, Standing]] = []
        for one in islice(self.usage(now), LOOKED_AT if count > 0 else 0):
            standing.append(one)
            if len(standing) % STEP == 0:
                yield
        shown = yield from largest(count, standing, lambda it: it[1].usage / it[1].limit)
        others = fsum(it.usage for _, it in standing) - fsum(it.usage for _, it in shown)
        return Busiest(shown, max(others, 0.0))

    def sweep(self, now: float) -> None:
        """Forget windows that hold nothing; `SWEPT` are looked at each time."""
        for owner in self._sweeps.turn(self._meters, now):
            meter = self._meters.get(owner)
            if meter is not None and meter.idle(now):
                self._drop(meter)

    def _changed(self) -> None:
        self.version += 1
        for meter in self._meters.values():
            meter.void()

    def _forget_idle(self, now: float) -> None:
        """Some of the oldest windows: those that hold nothing."""
        for meter in list(islice(self._meters.values(), TRIED)):
            if meter.idle(now):
                self._drop(meter)
            else:
                self._meters.move_to_end(meter.owner)

    def _drop(self, meter: RateMeter) -> None:
        del self._meters[meter.owner]
        self._room.give_back(meter.owner.user or "")
        meter.gone = True
        meter.void()


def _standing(meter: RateMeter, now: float) -> Standing:
    meter.refresh(now)
    return Standing(meter.average(now), meter.limit, meter.left(now))
