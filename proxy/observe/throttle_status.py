"""Who is throttled now, by which quota, since when and until when; and what was refused within the last hour, by entity and topic.

In: decisions as they are made. Out: a plain value for `/throttles`. Bounded: `MOST` entities and topics each, of which every
principal that makes such requests has a share (`quota.fair_share`). What is beyond it stands in one line of that principal's user,
with client id `<others>`, so lines of one principal do not displace those of others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from proxy.observe.decision_totals import DecisionTotals, Key, others_of
from proxy.observe.limit_sources import LimitSources
from proxy.observe.lines import api_name, iso
from proxy.session.requester import Requester
from quota.addresses import AddressEntity
from quota.catalogue import ADDRESS_RATE, KEYS, STORED, TENANT_KINDS, TOPIC_RATES, TOPIC_STORED
from quota.decision import Action, Decision
from quota.fair_share import FairShare
from quota.steps import Steps
from quota.tenants import TenantEntity

MOST: Final = 1000
SHOWN_MESSAGE: Final = 500
"""Characters of a message that are shown: it says all with names of usual length."""
SHOWN: Final = 200
"""Characters of names that come from clients."""
HOUR: Final = 3600.0
SLICES: Final = 60
"""The parts into which an hour is divided. Counts older than an hour are dropped part by part."""
_PLAIN: Final = {key.kind: key.unit for key in KEYS.values() if not key.at_once}
UNITS: Final = {
    **_PLAIN,
    **{tenant: _PLAIN[kind] for kind, tenant in TENANT_KINDS.items()},
    **dict.fromkeys(("storage", "bytes_in", "overload", *TOPIC_RATES), "bytes/s"),
    ADDRESS_RATE.kind: ADDRESS_RATE.unit,
    TOPIC_STORED: _PLAIN[STORED],
}
"""Of usage and limit of quotas, by kind."""
_FILLING: Final = frozenset(("storage", TENANT_KINDS[STORED], TOPIC_STORED))


def unit_of(decision: Decision) -> str:
    """Of usage and limit of a decision. What is full, a volume or somebody's budget, refuses by its bytes, or lets wait; what fills
    slows by a rate."""
    if decision.quota in _FILLING:
        return "bytes/s" if decision.action is Action.THROTTLE else "bytes"
    return UNITS.get(decision.quota, "")


@dataclass(slots=True)
class Throttled:
    """Somebody over a limit. Times are monotonic seconds."""

    since: float
    until: float
    decision: Decision
    by: Requester
    owner: str
    """the principal in whose share it stands"""
    requests: int = 0


class Sums:
    """How often something happened within the last hour; in the share of `owner`."""

    __slots__ = ("_slices", "owner")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._slices: dict[int, int] = {}

    def add(self, count: int, now: float) -> None:
        slot = _slot(now)
        self._slices[slot] = self._slices.get(slot, 0) + count
        if len(self._slices) > SLICES + 1:
            self._slices = {at: n for at, n in self._slices.items() if at > slot - SLICES}

    def past(self, now: float) -> bool:
        """True if nothing happened within the last hour. It is cheap, as the newest slice is the last."""
        return next(reversed(self._slices)) <= _slot(now) - SLICES

    def total(self, now: float) -> int:
        first = _slot(now) - SLICES
        return sum(count for at, count in self._slices.items() if at > first)


def _slot(now: float) -> int:
    return int(now // (HOUR / SLICES))


class ThrottleStatus:
    """`clock`: monotonic seconds; `wall`: seconds since the epoch."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self._throttled: OrderedDict[Key, Throttled] = OrderedDict()
        self._refused: OrderedDict[tuple[Key, str], Sums] = OrderedDict()
        self.totals = DecisionTotals(clock)
        self._throttled_shares, self._refused_shares = FairShare(MOST), FairShare(MOST)

    def decided(self, decision: Decision, by: Requester, mode: str = "enforce") -> None:
        """A request was throttled, refused or held, or would have been."""
        self.totals.decided(decision, by, mode)
        now, key = self._clock(), (decision.quota, mode, decision.entity)
        known = self._throttled.get(key)
        if decision.action is not Action.HOLD and decision.throttle > 0:
            if known is None and not self._throttled_shares.has_room(by.principal):
                key = (decision.quota, mode, others_of(by))
                known = self._throttled.get(key)
            if known is None:
                known = self._throttled[key] = Throttled(now, now, decision, by, by.principal)
                self._throttled_shares.charge(by.principal, 1)
            if known.until <= now:
                known.since, known.requests = now, 0
            known.until = max(known.until, now + decision.throttle)
            known.decision, known.by = decision, by
        if known is not None:
            known.requests += 1
            self._throttled.move_to_end(key)
        if decision.action is Action.REFUSE:
            self._refuse((decision.quota, mode, decision.entity), decision, by, now)

    def _refuse(self, key: Key, decision: Decision, by: Requester, now: float) -> None:
        topics = by.topics[: len(decision.items)]
        for topic in topics:
            self._count(key, topic, 1, by, now)
        if (rest := len(decision.items) - len(topics)) > 0:
            self._count(key, "", rest, by, now)

    def _count(self, key: Key, topic: str, items: int, by: Requester, now: float) -> None:
        sums = self._refused.get((key, topic))
        if sums is None and not self._refused_shares.has_room(by.principal):
            key, topic = (*key[:2], others_of(by)), ""
            sums = self._refused.get((key, topic))
        if sums is None:
            sums = self._refused[key, topic] = Sums(by.principal)
            self._refused_shares.charge(by.principal, 1)
        self._refused.move_to_end((key, topic))
        sums.add(items, now)

    def sweep(self) -> None:
        """Forget what has passed."""
        self.totals.sweep()
        now = self._clock()
        for key in [key for key, known in self._throttled.items() if known.until <= now]:
            self._throttled_shares.give_back(self._throttled.pop(key).owner)
        for refused in [refused for refused, sums in self._refused.items() if sums.past(now)]:
            self._refused_shares.give_back(self._refused.pop(refused).owner)

    def seen(self, sources: LimitSources) -> Steps[dict[str, Any]]:
        """What `/throttles` says; in steps of one line. `sources`: where limits are set."""
        now, wall = self._clock(), self._wall()
        throttled, refused = list[dict[str, Any]](), list[dict[str, Any]]()
        for key, known in reversed(list(self._throttled.items())):
            if known.until > now:
                source = sources.of(key[0], known.decision.entity)
                throttled.append({**_line(key, known, now, wall), **source._asdict()})
            yield
        for (key, topic), sums in reversed(list(self._refused.items())):
            if items := sums.total(now):
                refused.append({**named(key), "topic": short(topic) or None, "items": items})
            yield
        refused.sort(key=lambda line: -line["items"])
        return {
            "at": iso(wall),
            "throttled": throttled,
            "refused_last_hour": refused,
        }


def _line(key: Key, known: Throttled, now: float, wall: float) -> dict[str, Any]:
    return {
        **named(key),
        "action": known.decision.action.value,
        "usage": round(known.decision.usage, 3),
        "limit": known.decision.limit,
        "unit": unit_of(known.decision),
        "since": iso(wall - (now - known.since)),
        "until": iso(wall + (known.until - now)),
        "seconds_left": round(known.until - now, 3),
        "requests": known.requests,
        "principal": short(known.by.principal),
        "client_id": short(known.by.client_id),
        "client_address": known.by.client_address,
        "api": api_name(known.by.api_key),
        "message": short(known.decision.message, SHOWN_MESSAGE),
    }


def named(key: Key) -> dict[str, Any]:
    quota, mode, entity = key
    if isinstance(entity, AddressEntity):
        return {"quota": quota, "mode": mode, "entity": {"user": None, "client_id": None, "topic": None, "address": entity.topic}}
    if isinstance(entity, TenantEntity):
        return {"quota": quota, "mode": mode, "entity": {"user": None, "client_id": None, "topic": None, "tenant": entity.topic}}
    whose = {"user": short(entity.user), "client_id": short(entity.client_id), "topic": short(entity.topic)}
    return {"quota": quota, "mode": mode, "entity": whose}


def short(name: str | None, most: int = SHOWN) -> str | None:
    return name if name is None or len(name) <= most else f"{name[: most - 1]}…"
