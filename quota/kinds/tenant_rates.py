"""The limits of tenants by name: rates of bytes, requests and connections that all its users may have together, in the whole
cluster, and numbers of topics (`topic_numbers`).

Each rate is a `Rates` whose windows belong to tenants, so that all users of a tenant share its rate. It holds beside the limits of
users and client ids: a request is charged to both, the longer throttle is told (`quota.rules.Metered`). In: who belongs to which
tenant, the limits of each. Out: the limit that holds for a user. It leaves to others: the arithmetic (`rates`), who belongs to a
tenant (`quota.tenants`).

Memory: a window for each tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quota.entity import Entity
from quota.limit_table import L, LimitTable, ResolvedLimit
from quota.tenants import NO_TENANTS, Tenants, owner_of


class TenantTable(LimitTable[L]):
    """The limits of one kind of tenants, by name."""

    def __init__(self, tenants: Tenants = NO_TENANTS, limits: Mapping[str, L] | None = None) -> None:
        super().__init__({})
        self._tenants = tenants
        self._of_tenants = {name: limit for name, limit in (limits or {}).items() if name in tenants.tenants}

    def __bool__(self) -> bool:
        return bool(self._of_tenants)

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[L] | None:  # noqa: ARG002
        """The limit of the tenant of this user. Client ids play no part."""
        tenant = self._tenants.of_user(user)
        limit = None if tenant is None else self._of_tenants.get(tenant)
        return None if limit is None or tenant is None else ResolvedLimit(limit, owner_of(tenant))

    def owned(self) -> Iterable[tuple[Entity, L]]:
        return ((owner_of(name), limit) for name, limit in self._of_tenants.items())

    def of(self, owner: Entity) -> L | None:
        return self._of_tenants.get(owner.topic or "")

    def owner(self, parts: Entity) -> Entity:
        return owner_of(parts.topic or "")
