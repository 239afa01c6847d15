"""Tenants: groups of users that share limits and own topics. In: the tenants of the settings file. Out: the tenant of a user, and
of a topic.

A tenant follows from the user that a broker has confirmed, never from what a client claims: client ids play no part. A name that is
listed goes before a prefix, a longer prefix before a shorter one. What limits a tenant has is another file:
`quota/kinds/tenant_rates.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from quota.entity import Entity

TENANT_NAME: Final = r"[A-Za-z0-9._-]{1,100}"
"""Names of tenants, as a regular expression for all of it."""


class TenantEntity(Entity):
    """A tenant as the owner of a window: `topic` holds its name, so that stores of a fleet have no other keys than before."""

    def __str__(self) -> str:
        return f"tenant {self.topic}"


def owner_of(tenant: str) -> TenantEntity:
    return TenantEntity(None, None, tenant)


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who belongs to a tenant, and what it owns."""

    users: tuple[str, ...] = ()
    user_prefixes: tuple[str, ...] = ()
    topic_prefixes: tuple[str, ...] = ()


MEMBERS: Final = ("users", "user_prefixes", "topic_prefixes")
"""What a tenant may have of each: the fields of `Tenant`."""


def member_of(key: str) -> tuple[str, str] | None:
    """(one of `MEMBERS`, name) of a key that adds a member to a tenant while proxies run, such as `users.alice`; None for any other
    key."""
    what, dot, name = key.partition(".")
    return (what, name) if dot and name and what in MEMBERS else None


class Clash(NamedTuple):
    """A member that a tenant cannot have, as `other` has it."""

    tenant: str
    what: str
    name: str
    other: str

    def __str__(self) -> str:
        return f"`{self.name}` of `{self.what}` is of tenant `{self.other}` already"


class Tenants:
    """All tenants by name. A look-up takes one step for each length that prefixes have. ValueError where a user, or a prefix, is of
    two tenants."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self.tenants = dict(tenants)
        self._users = _owners("user", {name: tenant.users for name, tenant in tenants.items()})
        self._user_prefixes = Prefixes("user prefix", {name: tenant.user_prefixes for name, tenant in tenants.items()})
        self._topic_prefixes = Prefixes("topic prefix", {name: tenant.topic_prefixes for name, tenant in tenants.items()})

    def __bool__(self) -> bool:
        return bool(self.tenants)

    def joined_by(self, members: Mapping[str, Iterable[tuple[str, str]]]) -> tuple[Tenants, list[Clash]]:
        """These with more members, by tenant: (one of `MEMBERS`, name). Who is a member of another tenant already is left out; of
        those that are new, the tenant whose name comes first has it."""
        has = {(what, name): tenant for tenant, one in self.tenants.items() for what in MEMBERS for name in getattr(one, what)}
        made, clashes = dict(self.tenants), list[Clash]()
        for tenant, new in sorted(members.items()):
            found: dict[str, list[str]] = {what: list(getattr(made.get(tenant, Tenant()), what)) for what in MEMBERS}
            for what, name in sorted(new):
                other = has.setdefault((what, name), tenant)
                if other != tenant:
                    clashes.append(Clash(tenant, what, name, other))
                elif name not in found[what]:
                    found[what].append(name)
            made[tenant] = Tenant(**{what: tuple(names) for what, names in found.items()})
        return Tenants(made), clashes

    def of_user(self, user: str) -> str | None:
        """The tenant of a user; None where it has none."""
        return self._users.get(user) or self._user_prefixes.find(user)

    @property
    def topic_prefixes(self) -> Prefixes:
        """The prefixes of topics, each with its tenant."""
        return self._topic_prefixes

    def of_topic(self, topic: str) -> str | None:
        """The tenant that owns a topic; None where nobody does."""
        return self._topic_prefixes.find(topic)


def tenant_among(owners: Iterable[Entity]) -> TenantEntity | None:
    """The tenant of these owners; None where there is none."""
    return next((owner for owner in owners if isinstance(owner, TenantEntity)), None)


class Prefixes:
    """Prefixes of names, each with its tenant. The longest one wins."""

    def __init__(self, what: str, prefixes: Mapping[str, Iterable[str]]) -> None:
        self._tenants = _owners(what, prefixes)
        self._lengths = sorted({len(prefix) for prefix in self._tenants}, reverse=True)

    def beginning(self, name: str) -> Iterator[str]:
        """The prefixes that this name begins with."""
        return (name[:length] for length in self._lengths if name[:length] in self._tenants)

    def others(self, prefixes: Collection[str]) -> dict[str, list[str]]:
        """All prefixes but these, by tenant."""
        found: dict[str, list[str]] = {}
        for prefix, tenant in self._tenants.items():
            if prefix not in prefixes:
                found.setdefault(tenant, []).append(prefix)
        return found

    def find(self, name: str) -> str | None:
        """The tenant of the longest prefix of this name; None without one."""
        for length in self._lengths:
            tenant = self._tenants.get(name[:length])
            if tenant is not None:
                return tenant
        return None


def _owners(what: str, names: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Names to the tenant that has them."""
    owners: dict[str, str] = {}
    for tenant, its in names.items():
        for name in its:
            other = owners.setdefault(name, tenant)
            if other != tenant:
                raise ValueError(f"the {what} `{name}` is of two tenants, `{other}` and `{tenant}`; it can be of one")
    return owners


NO_TENANTS: Final = Tenants({})
