"""The limits of one client, looked up once. In: a user, a client id, the engine. Out: the rates that it is charged to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from quota.catalogue import ANSWERED, REQUEST_RATES
from quota.decision import Decision
from quota.engine import MAX_HOLD, Engine
from quota.entity import Entity
from quota.kinds.rates import RateLimit, RateMeter, Rates
from quota.limit_table import ResolvedLimit
from quota.shares import Share
from quota.tenants import TenantEntity

LATER: Final = 0.1
"""Seconds by which a connection that has had more of a shared rate lets the others go first."""
MAX_KNOWN: Final = 1000
"""Topics without a rate that a client's rules remember. Those with one are as many as operators have named."""

COLD: Final = ""
"""The name under which `Rules.read` has the rate of cold reads; no topic has it."""


class Metered:
    """A rate that is limited, the window of its owner, and what one connection has of it. `beside`: the rate of somebody else that
    holds too, that of the tenant beside that of the user: both are charged, and the longer throttle is told."""

    __slots__ = ("_engine", "beside", "found", "meter", "rates", "share", "since")

    def __init__(
        self, engine: Engine, rates: Rates, found: ResolvedLimit[RateLimit], now: float, beside: Metered | None = None
    ) -> None:
        self._engine = engine
        self.meter: RateMeter = rates.meter(found.owner, now)
        self.rates, self.found = rates, ResolvedLimit(found.limit, self.meter.owner)
        self.beside = beside
        self.share = Share(self.meter.shares)
        self.since = -inf
        """when the request that waits was held first"""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topic that it is a rate of, if it is one of a topic."""
        owner = self.found.owner
        return () if owner.topic is None or isinstance(owner, TenantEntity) else (owner.topic,)

    def take(self, amount: float, now: float) -> bool:
        """Count what is done if it is within the limits; else nothing is counted."""
        if not self.meter.take(amount, now):
            return False
        beside = self.beside
        if beside is None or beside.take(amount, now):
            return True
        self.meter.refund(amount, now)
        return False

    def has_room(self, amount: float, now: float) -> bool:
        """Would `take` surely succeed?"""
        return self.meter.has_room(amount, now) and (self.beside is None or self.beside.has_room(amount, now))

    def hold(self, now: float, *, held: bool = False, items: Sequence[int] = ()) -> Decision | None:
        """A request waits while its entity is muted on another connection; None when it need not. `held`: it was held before, and
        is held again only if its connection is ahead of others that share the rate and have not caught up yet."""
        longest = self._may_wait(held, now)
        wait = self._engine.hold(self.rates, self.found, items, now) if longest > 0 else None
        if wait is not None:
            wait = replace(wait, throttle=min(self._later(wait.throttle, now), longest))
        return wait if self.beside is None else _longer(wait, self.beside.hold(now, held=held, items=items))

    def charge(self, amount: float, now: float) -> Decision | None:
        """Count what was done. The throttle is capped at `max_throttle`, and the entity is muted for it; the connection a little
        longer if it is ahead of others."""
        self.share.add(amount, now)
        decision = self._engine.enforce(self.rates.charge(self.found, (amount,), now), now).decision
        if decision is not None:
            longest = self._engine.limits.max_throttle
            decision = replace(decision, throttle=min(self._later(decision.throttle, now), longest))
        return decision if self.beside is None else _longer(decision, self.beside.charge(amount, now))

    def record(self, amount: float, now: float) -> None:
        """Count what was done, where nothing follows from it."""
        self.rates.charge(self.found, (amount,), now)
        if self.beside is not None:
            self.beside.record(amount, now)

    def refund(self, amount: float, now: float) -> None:
        """This amount of what was counted just now did not happen."""
        self.rates.refund(self.found.owner, amount, now)
        if self.beside is not None:
            self.beside.refund(amount, now)

    def _may_wait(self, held: bool, now: float) -> float:
        """Seconds that a request may be held: once, but a connection that is ahead of the others waits for them again and again,
        and so do all until other proxies are heard, for `MAX_HOLD` in all."""
        if not held:
            self.since = now
            return MAX_HOLD
        again = self.share.ahead(now) or self.meter.only_expected(now)
        return max(self.since + MAX_HOLD - now, 0.0) if again else 0.0

    def _later(self, seconds: float, now: float) -> float:
        return seconds + LATER if self.share.ahead(now) else seconds


def _longer(one: Decision | None, other: Decision | None) -> Decision | None:
    """The decision with the longer throttle: the tightest limit wins."""
    if one is None or other is None:
        return one or other
    return one if one.throttle >= other.throttle else other


class Rules:
    """What holds for a user with a client id until `Engine.limits_version` changes: a rate is None where there is no limit.
    `connection`: what new connections are charged to. `request`: the same of requests; `requests`: the same by API key, empty
    where no group of APIs has a rate of its own. `window`: what the user has under way at the broker, None without `overload`.
    `answers`: rates that are charged with the bytes of answers, by API key. `cold`: what is read far behind the end of the log.
    `read`: rates of topics that this client has read from, and `cold` if its last answer was such; `read_by`: those of topics by
    their names as bytes, and by their ids. `exempt`: nothing holds; `by_client_id`: limits of client ids alone do."""

    __slots__ = (
        "_engine",
        "_now",
        "_topics_in",
        "_unlimited",
        "answers",
        "by_client_id",
        "client_id",
        "cold",
        "connection",
        "exempt",
        "limits_version",
        "owner",
        "produce",
        "read",
        "read_by",
        "request",
        "requests",
        "user",
        "window",
    )

    def __init__(self, engine: Engine, user: str, client_id: str, now: float, broker: int | None = None) -> None:
        self._engine, self._now = engine, now
        self._topics_in: dict[str, Metered] = {}
        self.read: dict[str, Metered] = {}
        self.read_by: tuple[dict[bytes, Metered], dict[bytes, Metered]] = {}, {}
        self._unlimited: set[tuple[bytes, bool]] = set()
        self.user, self.client_id = user, client_id
        self.limits_version = engine.limits_version
        self.owner = Entity(user, client_id)
        exempt = engine.limits.exempt
        self.exempt = exempt.everywhere(user, client_id)
        self.by_client_id = client_id not in exempt.client_ids
        metered: dict[str, Metered] = {}
        for name, rates in engine.rates.items():
            for kind in (engine.tenant_rates[name], rates):
                found = engine.find(kind, user, client_id) if kind.limits else None
                if found is not None:
                    metered[name] = Metered(engine, kind, found, now, metered.get(name))
        self.produce = metered.get("producer_byte_rate")
        self.window = None if broker is None or self.exempt else engine.overload.window(user, broker)
        self.cold = metered.get("cold_read_rate")
        self.connection = metered.get("connection_rate")
        total = metered.get("request_rate")
        self.request: tuple[Metered, ...] = () if total is None else (total,)
        self.requests: list[tuple[Metered, ...]] = []
        if any(kind in metered for kind in REQUEST_RATES.values()):
            self.requests = [self._of_api(key, metered) for key in range(max(REQUEST_RATES) + 1)]
        self.answers = {key: metered[kind] for key, kind in ANSWERED.items() if kind in metered}

    def _of_api(self, key: int, metered: Mapping[str, Metered]) -> tuple[Metered, ...]:
        group = metered.get(REQUEST_RATES.get(key, ""))
        return self.request if group is None else (*self.request, group)

    def topic_in(self, topic: str) -> Metered | None:
        """The rate of a topic that is written to, by its name; None without one."""
        return self._topic(self._engine.topic_in, self._topics_in, topic)

    def topic_out(self, topic: str) -> Metered | None:
        """The same for one that is read from."""
        return self._topic(self._engine.topic_out, self.read, topic)

    def topic_read(self, topic: bytes, name_of: Callable[[bytes], str | None] | None) -> Metered | None:
        """The same by what an answer has of a topic: its name, or its id where `name_of` tells the name, None while it is not
        known. `read_by` has it from then on."""
        key = (topic, name_of is not None)
        if key in self._unlimited:
            return None
        name = topic.decode(errors="replace") if name_of is None else name_of(topic)
        if name is None:
            return None
        found = self.topic_out(name)
        if found is not None:
            self.read_by[name_of is not None][topic] = found
        else:
            if len(self._unlimited) >= MAX_KNOWN:
                self._unlimited.clear()
            self._unlimited.add(key)
        return found

    def _topic(self, rates: Rates, known: dict[str, Metered], topic: str) -> Metered | None:
        found = known.get(topic)
        if found is not None:
            return found
        owner = Entity(None, None, topic)
        limit = rates.limits.of(owner)
        if limit is None or self.exempt or topic in self._engine.limits.exempt.topics:
            return None
        found = known[topic] = Metered(self._engine, rates, ResolvedLimit(limit, owner), self._now)
        return found
