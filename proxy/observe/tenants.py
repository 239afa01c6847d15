"""What tenants own and use, for `/tenants`. In: tenants, the engine, sizes of topics. Out: a plain value. It looks at a few
topics at a time, so that the data path goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from quota.catalogue import TENANT_KINDS, TENANT_ROWS
from quota.engine import Engine
from quota.kind import LimitedKind
from quota.limit_table import ResolvedLimit
from quota.tenants import Tenants, owner_of

STEP: Final = 500
"""Topics, or tenants, that are looked at before the data path goes on."""


async def seen(
    tenants: Tenants, engine: Engine, sizes: Mapping[str, int], now: float, pause: Callable[[], Awaitable[None]]
) -> dict[str, Any]:
    """`sizes`: partitions of each topic that is known to exist. `pause` lets the data path go on."""
    topics: Counter[str | None] = Counter()
    partitions: Counter[str | None] = Counter()
    for i, (topic, size) in enumerate(sizes.items()):
        if i % STEP == STEP - 1:
            await pause()
        tenant = tenants.of_topic(topic)
        topics[tenant] += 1
        partitions[tenant] += size
    told = []
    for i, (name, one) in enumerate(sorted(tenants.tenants.items())):
        if i % STEP == STEP - 1:
            await pause()
        told.append(
            {
                "tenant": name,
                "users": list(one.users),
                "user_prefixes": list(one.user_prefixes),
                "topic_prefixes": list(one.topic_prefixes),
                "topics": topics[name],
                "partitions": partitions[name],
                "quotas": _quotas(name, engine, now),
            }
        )
    return {"tenants": told, "of_nobody": {"topics": topics[None], "partitions": partitions[None]}}


def _quotas(tenant: str, engine: Engine, now: float) -> list[dict[str, Any]]:
    """How a tenant stands against each of its limits."""
    found = []
    owner = owner_of(tenant)
    of_tenants: tuple[LimitedKind[Any], ...] = (*engine.tenant_rates.values(), *engine.topic_numbers)
    kinds = {kind.name: kind for kind in of_tenants}
    for row in TENANT_ROWS:
        kind = kinds[TENANT_KINDS[row.kind]]
        limit = engine.limits.table(kind.name).of(owner)
        if limit is not None:
            stands = kind.stands(ResolvedLimit(limit, owner), now)
            found.append(
                {
                    "quota": kind.name,
                    "unit": row.unit,
                    "usage": round(stands.usage, 3),
                    "limit": stands.limit,
                    "observed": kind.name in engine.limits.observed,
                }
            )
    return found
