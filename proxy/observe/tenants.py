"""What tenants own and use, for `/tenants` and for the usage log; and prefixes that no topic has, for the operations log.

In: tenants, the engine, sizes of topics. Out: plain values, log lines. It is done in steps of a few topics or one tenant, so that
the data path goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from proxy.observe.lines import Holds
from proxy.observe.operations import Log
from quota.catalogue import TENANT_KINDS, TENANT_ROWS
from quota.engine import Engine
from quota.entity import Entity
from quota.kind import LimitedKind
from quota.limit_table import ResolvedLimit
from quota.owned_topics import Owned, OwnedTopics
from quota.steps import STEP, Steps, largest
from quota.tenants import NO_TENANTS, TenantEntity, Tenants, owner_of, tenant_among


def seen(tenants: Tenants, engine: Engine, sizes: Mapping[str, int], now: float) -> Steps[dict[str, Any]]:
    """`sizes`: partitions of each topic that is known to exist."""
    topics: Counter[str | None] = Counter()
    partitions: Counter[str | None] = Counter()
    for i, (topic, size) in enumerate(sizes.items()):
        if i % STEP == STEP - 1:
            yield
        tenant = _owner(engine.owned, topic)
        topics[tenant] += 1
        partitions[tenant] += size
    unmatched = yield from _without_topics(tenants, sizes)
    told = []
    for name, one in sorted(tenants.tenants.items()):
        yield
        told.append(
            {
                "tenant": name,
                "users": list(one.users),
                "user_prefixes": list(one.user_prefixes),
                "topic_prefixes": list(one.topic_prefixes),
                "prefixes_without_topics": unmatched.get(name, []),
                "topics": topics[name],
                "partitions": partitions[name],
                "quotas": _quotas(name, engine, now),
            }
        )
    return {"tenants": told, "of_nobody": {"topics": topics[None], "partitions": partitions[None]}}


def _owner(owned: OwnedTopics, topic: str) -> str | None:
    """The tenant that owns a topic, by its name or by who created it."""
    tenant = tenant_among(owned.owners(topic, owned.creator(topic)))
    return None if tenant is None else tenant.topic


def _without_topics(tenants: Tenants, topics: Iterable[str]) -> Steps[dict[str, list[str]]]:
    """Prefixes that none of these topics begins with, by tenant."""
    matched: set[str] = set()
    for i, topic in enumerate(topics):
        if i % STEP == STEP - 1:
            yield
        matched.update(tenants.topic_prefixes.beginning(topic))
    return tenants.topic_prefixes.others(matched)


def holdings(engine: Engine, most: int, *, topics_known: bool) -> Steps[list[Holds]]:
    """What tenants, users and topics have: of each sort the `most` that have most. `topics_known`: a broker has named all topics;
    before, numbers of topics say nothing."""
    numbers = list(engine.owned.owners_now()) if topics_known else []
    of_tenants, of_topics = engine.stored.of_all()
    of_users = (Holds(owner, *owned) for owner, owned in numbers if owner.user is not None)
    owned = {owner.topic or "": it for owner, it in numbers if isinstance(owner, TenantEntity)}
    nothing = Owned() if topics_known else None
    tenants = (_tenant(it, owned.get(it, nothing), of_tenants.get(it)) for it in {**owned, **of_tenants})
    topics = (Holds(Entity(None, None, it), stored=size) for it, size in of_topics.items())
    found: list[Holds] = []
    for sort in (tenants, of_users, topics):
        found += yield from largest(most, sort, lambda one: (one.partitions or 0, one.stored or 0))
    return found


def _tenant(name: str, owned: Owned | None, stored: int | None) -> Holds:
    topics, partitions = (None, None) if owned is None else owned
    return Holds(owner_of(name), topics, partitions, stored)


class PrefixWarnings:
    """Says which prefixes of tenants no topic has: once all topics are known, and again when tenants are others. `sizes`:
    partitions of each topic that is known to exist."""

    def __init__(self, sizes: Callable[[], Mapping[str, int]], log: Log) -> None:
        self._sizes, self._log = sizes, log
        self._told = NO_TENANTS
        self.topics_known = False
        """True once a broker has named all topics"""

    def look(self, tenants: Tenants) -> Steps[None]:
        """To be called now and then."""
        if not self.topics_known or tenants is self._told or tenants.tenants == self._told.tenants:
            return
        self._told = tenants
        unmatched = yield from _without_topics(tenants, self._sizes())
        for tenant, prefixes in sorted(unmatched.items()):
            detail = "no topic that the proxy knows of begins with them"
            self._log.warning("prefixes without topics", tenant=tenant, topic_prefixes=prefixes, detail=detail)


class NumberWarnings:
    """Says who has more topics or partitions than it may, as its limit was set below what there is: once for each limit."""

    def __init__(self, engine: Engine, log: Log) -> None:
        self._engine, self._log = engine, log
        self._told: dict[tuple[str, Entity], int] = {}
        """by quota and owner: the limit of which it was said"""

    def look(self) -> Steps[None]:
        """To be called now and then."""
        kinds, told = [kind for kind in self._engine.topic_numbers if kind.limits], dict[tuple[str, Entity], int]()
        for i, (owner, owned) in enumerate(list(self._engine.owned.owners_now()) if kinds else ()):
            if i % STEP == STEP - 1:
                yield
            for kind in kinds:
                found, used = kind.of((owner,)), kind.amount(owned)
                if found is None or used <= found.limit:
                    continue
                told[kind.name, owner] = found.limit
                if self._told.get((kind.name, owner)) != found.limit:
                    what = {"entity": str(owner), "quota": kind.name, "usage": used, "limit": found.limit}
                    self._log.warning("limit below what there is", **what, detail="what there is stays; nothing is added to it")
        self._told = told


def _quotas(tenant: str, engine: Engine, now: float) -> list[dict[str, Any]]:
    """How a tenant stands against each of its limits."""
    found = []
    owner = owner_of(tenant)
    of_tenants: tuple[LimitedKind[Any], ...] = (*engine.tenant_rates.values(), *engine.topic_numbers, engine.stored.of_tenants)
    kinds = {kind.name: kind for kind in of_tenants}
    for name, unit in {TENANT_KINDS[row.kind]: row.unit for row in TENANT_ROWS}.items():
        kind = kinds[name]
        limit = engine.limits.table(kind.name).of(owner)
        if limit is not None:
            stands = kind.stands(ResolvedLimit(limit, owner), now)
            found.append(
                {
                    "quota": kind.name,
                    "unit": unit,
                    "usage": round(stands.usage, 3),
                    "limit": stands.limit,
                    "observed": kind.name in engine.limits.observed,
                }
            )
    return found
