"""Overload: what users may have under way at a broker that cannot keep up. One of the cluster's brokers is slow; who asks it for
more than a fair share waits in the proxy, and others do not notice.

In: the bytes that users produce to each broker, how long its answers take, the time, what other proxies tell. Out: a window for
each user at a broker, infinite while the broker is well. The arithmetic of overload is `quota.overload`, that of a window
`quota.in_flight`. A tenant is one user.

Proxies see the same latency of a broker, and each decides by itself whether it is overloaded. While it is, each tells the others
its window and what its users want there: all take the mean window, and of that each gives a user the part of what the user wants
that is wanted here.

Memory: windows of users with connections to brokers; times of `MOST` users of each broker; of `MOST_PROXIES` others what they told
last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from quota.decision import Action, Decision, Verdict, figure
from quota.entity import Entity
from quota.in_flight import Window
from quota.ledger import Sums
from quota.limits import Limits
from quota.overload import LITTLE, Controller, Goal, Seen
from quota.tenants import NO_TENANTS, TenantEntity, Tenants
from quota.windows.durations import Durations, quantile

NAME: Final = "overload"
QUICK: Final = 0.1
"""The part of a user's answers that its latency is taken from: the quickest."""
MOST: Final = 1000
"""Users of a broker whose times are kept apart; beyond, those that were answered longest ago are forgotten."""
STEP: Final = 1.0
"""Seconds between two steps."""
SHORTEST: Final = 0.5
"""Seconds that a step counts at least."""
TOLD: Final = 100
"""Users of a broker of whom other proxies are told: those that want most."""
HEARD: Final = 3.5
"""Seconds for which it holds what another proxy told."""
MOST_PROXIES: Final = 1000


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
    """A broker became overloaded, or is no more. Seconds and bytes per second; `rate` is infinite for the latter."""

    broker: int
    rate: float
    latency: float
    target: float


class Heard(NamedTuple):
    """What another proxy told of a broker: when, its window, and by owner what is wanted there, in bytes under way or waiting."""

    at: float
    window: float
    wants: Mapping[Entity, float]


class Answered:
    """The answers to one user: `times` is what sessions count them in."""

    __slots__ = ("_counted", "_total", "times")

    def __init__(self, total: Durations) -> None:
        self.times = Durations()
        self._total = total
        """where those of all users are counted"""
        self._counted = list(self.times.counts)
        """what was in them with the last step"""

    def take(self) -> list[int]:
        """How many took how long since the last call, which are now in those of all, too."""
        times, came = self.times, Durations()
        came.counts = [count - was for count, was in zip(times.counts, self._counted, strict=True)]
        came.seconds, times.seconds = times.seconds, 0.0
        self._total.merge(came)
        self._counted = list(times.counts)
        return came.counts


class Broker:
    """What is known of one broker."""

    def __init__(self, number: int, options: OverloadOptions) -> None:
        self.number = number
        self.controller = Controller(options.goal)
        self._windows: WeakValueDictionary[Entity, Window] = WeakValueDictionary()
        self._answered: dict[Entity, Answered] = {}
        """by user, who was answered longest ago first"""
        self._heard: dict[str, Heard] = {}
        """by proxy"""

    def window(self, owner: Entity, weight: float, *, observed: bool) -> Window:
        """That of a user or tenant. It lives as long as connections have it."""
        found = self._windows.get(owner)
        if found is None:
            found = self._windows[owner] = Window(owner, weight)
            self._resize(found, 0.0, asked=inf)  # not known yet
        found.weight, found.observed = weight, observed
        return found

    def times(self, owner: Entity, total: Durations) -> Durations:
        """Where the times of answers to this user are counted; they are added to `total` with each step."""
        known = self._answered.get(owner)
        if known is None:
            if len(self._answered) >= MOST:
                del self._answered[next(iter(self._answered))]
            known = self._answered[owner] = Answered(total)
        return known.times

    def step(self, seconds: float, now: float, *, observed: bool) -> None:
        """So many seconds have passed."""
        controller, windows = self.controller, list(self._windows.values())
        self._heard = {who: heard for who, heard in self._heard.items() if now - heard.at <= HEARD}
        controller.agree(heard.window for heard in self._heard.values())
        controller.step(list(self._seen(windows, seconds)), observed=observed)
        for window in windows:
            least = controller.goal.least * window.weight * seconds
            window.let_go(least - window.sent, now)
            asked = inf if window.held else window.sent / seconds
            window.sent, window.held = 0.0, False
            self._resize(window, now, asked=asked)

    def tell(self) -> list[Any] | None:
        """What the other proxies are told after a step; None of a broker that is well."""
        if self.controller.window == inf:
            return None
        wants = sorted(
            ((window.wants, window.owner) for window in self._windows.values() if window.wants > 0), key=lambda it: -it[0]
        )
        listed = [[owner.user if owner.user is not None else [owner.topic], round(amount)] for amount, owner in wants[:TOLD]]
        return [NAME, self.number, round(self.controller.window), listed]

    def hear(self, who: str, window: float, wants: Mapping[Entity, float], now: float) -> None:
        """The other way round."""
        if who in self._heard or len(self._heard) < MOST_PROXIES:
            self._heard[who] = Heard(now, window, wants)

    def free(self, now: float) -> None:
        """Nobody is limited any more."""
        for window in list(self._windows.values()):
            window.resize(inf, 0.0, now)

    def _resize(self, window: Window, now: float, *, asked: float) -> None:
        """`asked`: bytes per second that the user wanted to send here; infinite if it is not known, as it was held."""
        size, little = self.controller.window * window.weight, LITTLE * self.controller.share * window.weight
        if size < inf:
            wants = [heard.wants[window.owner] for heard in self._heard.values() if window.owner in heard.wants]
            little /= 1 + len(wants)
            if wants:
                size *= window.wants / (window.wants + sum(wants))
        window.allowance = little if asked < little < inf else 0.0
        window.resize(max(size, 1.0), self.controller.latency, now)

    def _seen(self, windows: Sequence[Window], seconds: float) -> Iterator[Seen]:
        by_owner = {window.owner: window for window in windows}
        for owner, answered in list(self._answered.items()):
            came = answered.take()
            if not any(came):
                continue
            self._answered[owner] = self._answered.pop(owner)  # the last that is forgotten
            window = by_owner.pop(owner, None)
            latency, half = quantile(came, QUICK), quantile(came, 0.5)
            if window is not None:
                # Most of what a request takes that is larger than its window is for itself: what as much as the window would take.
                large = max(window.sent / sum(came) / window.size, 1.0)
                latency, half = latency / large, half / large
                yield Seen(window.sent / seconds, latency, window.weight, window.held or window.waiting > 0, half)
            else:
                yield Seen(0.0, latency, half=half)
        for window in by_owner.values():
            if window.sent or window.held or window.waiting:
                yield Seen(window.sent / seconds, None, window.weight, window.held or window.waiting > 0)


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
        self.tell: Callable[[list[Any]], object] | None = None
        """other proxies are told; None where there are none"""

    def __bool__(self) -> bool:
        """True if it is switched on."""
        return self.options is not None

    def configure(self, limits: Limits, /) -> None:
        """These options hold from now on. What brokers have shown stays known."""
        self.options = limits.option(OverloadOptions)
        self._tenants = limits.option(Tenants) or NO_TENANTS
        self._observed = NAME in limits.observed
        if self.options is None:
            for broker in self.brokers.values():
                broker.free(self._at or 0.0)
            self.brokers.clear()
            return
        for broker in self.brokers.values():
            broker.controller.goal = self.options.goal

    def window(self, user: str, broker: int) -> Window | None:
        """What a user may have under way at a broker; None where the quota is off."""
        if self.options is None:
            return None
        found = self._broker(broker, self.options)
        tenant = self._tenants.of_user(user)
        weight = self.options.weights.get(user if tenant is None else tenant, 1.0)
        return found.window(self._owner(user, broker), weight, observed=self._observed)

    def times(self, user: str, broker: int, total: Durations) -> Durations:
        """Where the times of a user's answers are counted: by itself, and with the next step in `total`."""
        if self.options is None:
            return total
        return self._broker(broker, self.options).times(self._owner(user, broker), total)

    def waits(self, window: Window, size: float, items: Sequence[int], now: float) -> Verdict:
        """What becomes of a request that its window has no room for. The throttle is the time that it waits, as far as is known."""
        wait, latency = window.wait(size) + window.pause(now), max(window.latency, 1e-6)
        usage, limit = (window.wants + size) / latency, window.size / latency
        message = (
            f"The overload quota of {window.owner} is exceeded: the broker cannot keep up, and this is {figure(usage)} bytes/s,"
            f" a fair share {figure(limit)}; slowed down for {figure(wait)} s."
        )
        return Verdict(int(size), Decision(NAME, Action.THROTTLE, window.owner, tuple(items), usage, limit, wait, message))

    def _broker(self, number: int, options: OverloadOptions) -> Broker:
        found = self.brokers.get(number)
        if found is None:
            found = self.brokers[number] = Broker(number, options)
        return found

    def _owner(self, user: str, broker: int) -> Entity:
        tenant, place = self._tenants.of_user(user), f"broker {broker}"
        return AtBroker(user, None, place) if tenant is None else TenantAtBroker(None, None, f"{tenant} at {place}")

    def step(self, now: float) -> list[Change]:
        """About `STEP` seconds have passed since the last time. Which brokers became overloaded, or are no more."""
        before, self._at = self._at, now
        if self.options is None or before is None:
            return []
        changes = []
        for broker in self.brokers.values():
            controller = broker.controller
            limited = controller.window < inf
            broker.step(max(now - before, SHORTEST), now, observed=self._observed)
            if self.tell is not None and (told := broker.tell()) is not None:
                self.tell(told)
            if limited != (controller.window < inf):
                changes.append(Change(broker.number, controller.rate, controller.latency, controller.target))
        return changes

    def hear(self, who: str, number: int, window: float, wants: Sequence[object], now: float) -> None:
        """Another proxy told this (`Broker.tell`). ValueError or TypeError for what is nothing."""
        broker = self.brokers.get(number)
        if broker is None or not 0 < window < inf:
            return
        told: dict[Entity, float] = {}
        for want in wants[:TOLD]:
            match want:
                case [str(user), int(amount)] if amount > 0:
                    told[AtBroker(user, None, f"broker {number}")] = amount
                case [[str(tenant)], int(amount)] if amount > 0:
                    told[TenantAtBroker(None, None, tenant)] = amount
                case _:
                    raise ValueError(f"nothing that a user wants: {want!r}")
        broker.hear(who, float(window), told, now)

    def sweep(self, now: float) -> None:
        """Nothing is kept."""

    def publish(self) -> Sequence[Sums]:
        """Nothing adds up: proxies tell each other what they have now (`quota.fleet_events`)."""
        return ()
