"""Overload: what a broker that cannot keep up is given, by user. One of the cluster's brokers is slow; who asks it for more than a
fair share is slowed down, and others do not notice.

In: the bytes that users produce to each broker, how long its answers take, the time. Out: a rate for each user of a broker,
infinite while the broker is well. The arithmetic of overload and shares is `quota.overload`, that of rates `quota.kinds.rates`. A
tenant is one user. Each proxy controls what passes it: proxies see the same latency, so they agree without telling each other
anything, but for fairness among users of different proxies.

The rate of a user at a broker belongs to `AtBroker`. Memory: users with connections to brokers, `MOST` times of each broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

from quota.entity import Entity
from quota.kinds.rates import RateLimit, Rates
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import Limits
from quota.overload import GENTLEST, Controller, Goal, Seen, fair_level, latency_of
from quota.tenants import NO_TENANTS, TenantEntity, Tenants
from quota.windows.durations import Durations, quantile

NAME: Final = "overload"
QUICK: Final = 0.1
"""The part of a user's answers that its latency is taken from: the quickest."""
SAMPLES: Final = 2
WINDOW: Final = 0.2
"""Seconds of a sample: short, as a broker that is overloaded has no room for bursts."""
MOST: Final = 1000
"""Users of a broker whose times are kept apart; beyond, those that were idle longest are forgotten."""
STEP: Final = 1.0
"""Seconds between two steps."""
SHORTEST: Final = 0.5
"""Seconds that a step counts at least."""


@dataclass(frozen=True, slots=True)
class OverloadOptions:
    """`weights`: of users, or of tenants where users have one, by name; 1 for others."""

    goal: Goal
    weights: Mapping[str, float] = field(default_factory=dict)


class AtBroker(Entity):
    """A user at one broker: `topic` holds which, `broker 1`."""

    def __str__(self) -> str:
        return f"user {self.user} at {self.topic}"


class TenantAtBroker(TenantEntity):
    """A tenant at one broker: `topic` holds its name and which, `payments at broker 1`."""


class Change(NamedTuple):
    """A broker became overloaded, or is no more. Seconds and bytes per second; `level` is infinite for the latter."""

    broker: int
    level: float
    latency: float
    target: float


class Levels(LimitTable[RateLimit]):
    """The rate of each user at one broker: a level, times its weight."""

    def __init__(self, level: float, weights: Mapping[Entity, float]) -> None:
        super().__init__({})
        self._level, self._weights = level, weights

    def __bool__(self) -> bool:
        return True

    def of(self, owner: Entity) -> RateLimit | None:
        return None if self._level == inf else RateLimit(self._level * self._weights.get(owner, 1.0))


class Broker:
    """What is known of one broker."""

    def __init__(self, number: int, options: OverloadOptions) -> None:
        self.number = number
        self.controller = Controller(options.goal)
        self.weights: dict[Entity, float] = {}
        self.rates = Rates(NAME, NAME, "bytes", Levels(inf, self.weights), SAMPLES, WINDOW)
        self.latency = 0.0
        """in the last second"""
        self._times: dict[Entity, tuple[Durations, Durations]] = {}
        """of answers to each user, and where those of all users are counted"""
        self._counted: dict[Entity, list[int]] = {}
        self._quiet = 0
        """seconds in which an observed broker was well"""

    def times(self, owner: Entity, total: Durations) -> Durations:
        """Where the times of answers to this user are counted; they are added to `total` with each step."""
        known = self._times.get(owner)
        if known is None:
            if len(self._times) >= MOST:
                self._forget()
            known = self._times[owner] = Durations(), total
        return known[0]

    def _forget(self) -> None:
        """The user who was answered longest ago."""
        oldest = next(iter(self._times))
        del self._times[oldest]
        self._counted.pop(oldest, None)

    def step(self, seconds: float, *, observed: bool) -> None:
        """So many seconds have passed."""
        users = list(self._seen(seconds))
        self.latency = latency_of(users) or 0.0
        before = self.controller.level
        level = self._watch(users) if observed else self.controller.step(users)
        if level != before:
            self.rates.limits = Levels(level, self.weights)

    def _watch(self, users: Sequence[Seen]) -> float:
        """Where nobody is slowed down, the level does not follow from what it did before."""
        controller = self.controller
        if controller.is_high(users):
            self._quiet = 0
            controller.level = min(controller.level, fair_level(users, GENTLEST * sum(user.usage for user in users)))
        elif controller.level < inf:
            self._quiet += 1
            if self._quiet >= 5:
                controller.level = inf
        return controller.level

    def _seen(self, seconds: float) -> Iterator[Seen]:
        usage = self.rates.take_usage()
        for owner, (times, total) in list(self._times.items()):
            now, before = times.counts, self._counted.get(owner)
            if before is None:
                before = [0] * len(now)
            if now == before:
                continue
            came = Durations()
            came.counts = [count - was for count, was in zip(now, before, strict=True)]
            came.seconds, times.seconds = times.seconds, 0.0
            total.merge(came)
            self._counted[owner] = list(now)
            self._times[owner] = self._times.pop(owner)  # the last that is forgotten
            yield Seen(usage.pop(owner, 0.0) / seconds, quantile(came.counts, QUICK), self.weights.get(owner, 1.0))
        for owner, amount in usage.items():
            yield Seen(amount / seconds, None, self.weights.get(owner, 1.0))


class Overload:
    """The quota of all brokers."""

    name: Final = NAME
    title: Final = NAME

    def __init__(self) -> None:
        self.options: OverloadOptions | None = None
        self.brokers: dict[int, Broker] = {}
        self._tenants = NO_TENANTS
        self._observed = False
        self._at: float | None = None

    def __bool__(self) -> bool:
        """True if it is switched on."""
        return self.options is not None

    def configure(self, limits: Limits, /) -> None:
        """These options hold from now on. What brokers have shown stays known."""
        self.options = limits.option(OverloadOptions)
        self._tenants = limits.option(Tenants) or NO_TENANTS
        self._observed = NAME in limits.observed
        if self.options is None:
            self.brokers.clear()
        for broker in self.brokers.values():
            broker.controller.goal = self.options.goal if self.options is not None else broker.controller.goal
            broker.weights.clear()

    def find(self, user: str, broker: int) -> tuple[Rates, ResolvedLimit[RateLimit]] | None:
        """The rate of a user at a broker, and whose it is; None where the quota is off. A look at the limit itself says nothing: it
        changes every second."""
        if self.options is None:
            return None
        found = self._broker(broker, self.options)
        owner = self._owner(user, found, self.options)
        return found.rates, ResolvedLimit(RateLimit(self.options.goal.least), owner)

    def times(self, user: str, broker: int, total: Durations) -> Durations:
        """Where the times of a user's answers are counted: by itself, and with the next step in `total`."""
        if self.options is None:
            return total
        found = self._broker(broker, self.options)
        return found.times(self._owner(user, found, self.options), total)

    def _broker(self, number: int, options: OverloadOptions) -> Broker:
        found = self.brokers.get(number)
        if found is None:
            found = self.brokers[number] = Broker(number, options)
        return found

    def _owner(self, user: str, broker: Broker, options: OverloadOptions) -> Entity:
        tenant, place = self._tenants.of_user(user), f"broker {broker.number}"
        owner = AtBroker(user, None, place) if tenant is None else TenantAtBroker(None, None, f"{tenant} at {place}")
        weight = options.weights.get(user if tenant is None else tenant, 1.0)
        if weight != 1.0:
            broker.weights[owner] = weight
        return owner

    def step(self, now: float) -> list[Change]:
        """About `STEP` seconds have passed since the last time. Which brokers became overloaded, or are no more."""
        before, self._at = self._at, now
        if self.options is None or before is None:
            return []
        changes = []
        for broker in self.brokers.values():
            limited = broker.controller.level < inf
            broker.step(max(now - before, SHORTEST), observed=self._observed)
            level = broker.controller.level
            if limited != (level < inf):
                changes.append(Change(broker.number, level, broker.latency, broker.controller.target))
        return changes

    def sweep(self, now: float) -> None:
        """Forget windows that hold nothing."""
        for broker in self.brokers.values():
            broker.rates.sweep(now)

    def publish(self) -> Sequence[Sums]:
        """Each proxy controls what passes it."""
        return ()
