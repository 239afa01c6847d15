"""Which part of what was produced proposed limits would have let through for good. A limit that only delays keeps nothing back.

In: the tables, the replay of the proposed limits (`what_if`). Out: `LetThrough`. Left to others: what grows less by that
(`reports.fill_forecast`, `budget_forecast`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reports.quotas.limits import QuotaFile, of_tenants
from reports.stored import Stored, of_api, sums
from reports.tables import Tables

_RATE = "producer_byte_rate"
_OF_TOPICS = ("bytes_in", "topic_producer_byte_rate")


@dataclass(frozen=True, slots=True)
class LetThrough:
    """Parts, 0 to 1, of principals, of topics and of all users of a tenant; who is missing has all. `everybody`: of all."""

    principals: Mapping[str, float]
    topics: Mapping[str, float]
    tenants: Mapping[str, float]
    everybody: float


def let_through(tables: Tables, replayed: Stored, quotas: QuotaFile) -> LetThrough:
    """By the limits of users and client ids, of tenants and of topics; of those that somebody is under, that which lets least
    through."""
    rows = list(replayed.rows(["kind", "owner_user", "topic", "waiting", "total"]))
    users: dict[str, list[float]] = {}
    topics: dict[str, float] = {}
    for row in rows:
        if row["kind"] == _RATE:
            both = users.setdefault(row["owner_user"], [0.0, 0.0])
            both[0], both[1] = both[0] + row["waiting"], both[1] + row["total"]
        elif row["kind"] in _OF_TOPICS:
            topics[row["topic"]] = min(topics.get(row["topic"], 1.0), _part(row["waiting"], row["total"]))
    groups = {row["topic"]: _part(row["waiting"], row["total"]) for row in rows if row["kind"] == of_tenants(_RATE)}
    tenant_of = quotas.tenant_of_user()
    produced = _produced(tables)
    principals: dict[str, float] = {}
    tenants: dict[str, list[float]] = {}
    for principal, amount in produced.items():
        user = principal.removeprefix("User:")
        tenant = tenant_of(user)
        part = min(_part(*users.get(user, (0.0, 0.0))), groups.get(tenant or "", 1.0))
        principals[principal] = part
        if tenant is not None:
            both = tenants.setdefault(tenant, [0.0, 0.0])
            both[0], both[1] = both[0] + amount * (1 - part), both[1] + amount
    kept_back = sum(amount * (1 - principals[principal]) for principal, amount in produced.items())
    return LetThrough(
        principals,
        topics,
        {name: _part(*both) for name, both in tenants.items()},
        _part(kept_back, sum(produced.values())),
    )


def _part(waiting: float, total: float) -> float:
    """What part of its traffic would have passed by the end."""
    return max(0.0, 1 - waiting / total) if total else 1.0


def _produced(tables: Tables) -> dict[str, Any]:
    parts = tables["traffic"].parts(["principal", "api", "request_bytes"])
    rows = sums(parts, {"principal": "principal"}, {"bytes": (of_api("Produce", "request_bytes"), "sum")})
    return {row["principal"]: row["bytes"] for row in rows}
