"""Rates of tenants: bytes, requests and connections per second that all users of a tenant may have together, in the whole cluster.

Each is a `Rates` whose windows belong to tenants, so that all users of a tenant share its rate. It holds beside the limits of users
and client ids: a request is charged to both, and the longer throttle is told (`quota.rules.Metered`). In: who belongs to which
tenant, the rates of each. Out: the rate that holds for a user. It leaves to others: the arithmetic (`rates`), who belongs to a
tenant (`quota.tenants`).

Memory: a window for each tenant."""

from __future__ import annotations

from collections.abc import Mapping

from quota.entity import Entity
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable, ResolvedLimit
from quota.tenants import NO_TENANTS, Tenants, owner_of


class TenantTable(LimitTable[RateLimit]):
    """The rates of tenants, by name."""

    def __init__(self, tenants: Tenants = NO_TENANTS, rates: Mapping[str, RateLimit] | None = None) -> None:
        super().__init__({})
        self._tenants = tenants
        self._rates = {name: rate for name, rate in (rates or {}).items() if name in tenants.tenants}

    def __bool__(self) -> bool:
        return bool(self._rates)

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[RateLimit] | None:  # noqa: ARG002
        """The rate of the tenant of this user. Client ids play no part."""
        tenant = self._tenants.of_user(user)
        limit = None if tenant is None else self._rates.get(tenant)
        return None if limit is None or tenant is None else ResolvedLimit(limit, owner_of(tenant))

    def of(self, owner: Entity) -> RateLimit | None:
        return self._rates.get(owner.topic or "")

    def owner(self, parts: Entity) -> Entity:
        return owner_of(parts.topic or "")
