"""Where limits are set: the entry and the line of the settings file, or which `quotas alter`. In: what holds, by entity, and where
it stands. Out: names for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from configfile.load import Key
from quota.addresses import AddressEntity, with_limit
from quota.catalogue import KEYS, TENANT_KINDS, TOPIC_STORED
from quota.entity import Entity, levels
from quota.overrides import Table
from quota.tenants import TenantEntity

_KEY_OF: Final = {key.kind: key.name for key in KEYS.values() if not key.at_once}
_KEY_OF_TENANT: Final = {tenant: _KEY_OF[kind] for kind, tenant in TENANT_KINDS.items()}
_SECTIONS: Final = {
    "storage": "quotas.storage",
    "bytes_in": "quotas.topics",
    "topic_producer_byte_rate": "quotas.topic_rates",
    "topic_consumer_byte_rate": "quotas.topic_rates",
    "address_connection_rate": "quotas.connections",
    "topic_policy": "quotas.topic_policy",
    "overload": "quotas.overload",
    TOPIC_STORED: "quotas.stored_bytes",
}
"""Where the settings file has limits that are not of users and client ids."""


class LimitSource(NamedTuple):
    """`source`: the name under which a limit is set, such as `quotas.entities[3].cluster_request_rate: user etl`; `place`: the file
    of settings and the line, such as `settings.yaml:17`, None for a limit that is not of the file."""

    source: str
    place: str | None


class LimitSources:
    """`positions`: where each entity stands in the settings file; `limits`, `dynamic`: what is in force, and what of it was set
    while proxies run; `place`: file and line of a setting, such as `("quotas", "entities", 3, "cluster_request_rate")`, or of the
    section that it is in."""

    def __init__(
        self,
        positions: Callable[[], Mapping[Entity, int]],
        limits: Callable[[], Table],
        dynamic: Callable[[], Table],
        place: Callable[[Key], str | None],
    ) -> None:
        self._positions, self._limits, self._dynamic, self._place = positions, limits, dynamic, place

    def of(self, quota: str, owner: Entity) -> LimitSource:
        """Of the limit that an entity has reached."""
        if isinstance(owner, AddressEntity) and with_limit(owner.topic or "") in self._dynamic():
            return LimitSource(f"quotas alter: {owner}", None)
        if isinstance(owner, TenantEntity) and quota in _KEY_OF_TENANT:
            return self._of_tenant(_KEY_OF_TENANT[quota], owner)
        name = _KEY_OF.get(quota)
        if name is None or owner.topic is not None:
            section = _SECTIONS.get(quota, "quotas")
            return LimitSource(section, self._place(tuple(section.split("."))))
        limits, dynamic = self._limits(), self._dynamic()
        for level in levels(owner.user or "", owner.client_id or ""):
            if level.owner == owner and name in limits.get(level.key, {}):
                if name in dynamic.get(level.key, {}):
                    return LimitSource(f"quotas alter {name}: {level.key}", None)
                return self._of_entity(name, level.key)
        return LimitSource("quotas", self._place(("quotas",)))

    def _of_tenant(self, name: str, tenant: TenantEntity) -> LimitSource:
        if name in self._dynamic().get(tenant, {}):
            return LimitSource(f"quotas alter {name}: {tenant}", None)
        key = ("tenants", tenant.topic or "", name)
        return LimitSource(".".join(key), self._place(key))

    def _of_entity(self, name: str, entity: Entity) -> LimitSource:
        position = self._positions().get(entity)
        if position is None:
            return LimitSource(f"quotas.entities[].{name}: {entity}", None)
        place = self._place(("quotas", "entities", position, name))
        return LimitSource(f"quotas.entities[{position}].{name}: {entity}", place)
