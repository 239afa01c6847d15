"""Which entities and values the limits of `quota.catalogue` can have. In: names, entities and values as an operator
gives them. Out: whether that can be a limit, and if not, why, in words."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from re import fullmatch
from typing import Final

from quota.catalogue import KEYS, MUTATIONS_BURST, MUTATIONS_RATE, TENANT_KINDS
from quota.entity import DEFAULT, Entity
from quota.tenants import TENANT_NAME, TenantEntity

Values = Mapping[str, float]
"""Limits of one entity, by the names of their keys."""

MAX_BURST_SECONDS: Final = 1e9
"""The longest burst, in seconds of its rate: about thirty years."""
MAX_NAME: Final = 1024
"""Bytes of the name of a user or of a client id."""


def wrong_entity(entity: Entity) -> str | None:
    """Why this cannot be the name of a user, client id or tenant; None if it can."""
    if isinstance(entity, TenantEntity):
        right = fullmatch(TENANT_NAME, entity.topic or "")
        return None if right else "the name of a tenant has 1 to 100 letters, digits, dots, dashes and underscores"
    for what, name in (("user", entity.user), ("client-id", entity.client_id)):
        if name == "":
            return f"the name of the {what} is empty"
        if name is not None and len(name.encode(errors="replace")) > MAX_NAME:
            return f"the name of the {what} has more than {MAX_NAME} bytes"
    return "neither a user nor a client-id is named" if entity.user is None and entity.client_id is None else None


def wrong_value(entity: Entity, name: str, value: float) -> str | None:
    """Why an entity cannot have this limit; None when it can, seen for itself."""
    key = KEYS[name]
    if isinstance(entity, TenantEntity) and key.kind not in TENANT_KINDS:
        return f"{name} is not for tenants; these have rates of bytes, requests and connections, `max_topics` and `max_partitions`"
    if key.users_only and entity.client_id is not None:
        return f"{name} is for users and the default user only, as a client id is whatever a client claims"
    if not (isfinite(value) and 0 < value <= key.maximum):
        return f"{name} {value:g} is out of range; must be more than 0 and at most {key.maximum:g} {key.unit}"
    if key.size and value % 1:
        return f"{name} {value:g} is not a whole number of bytes"
    if key.whole and value % 1:
        return f"{name} {value:g} is not a whole number"
    return None


def wrong_together(values: Values) -> str | None:
    """Why these limits cannot stand beside each other; None when they can."""
    rate, burst = values.get(MUTATIONS_RATE), values.get(MUTATIONS_BURST)
    if burst is None:
        return None
    if rate is None:
        return f"`{MUTATIONS_BURST}` needs `{MUTATIONS_RATE}` beside it"
    if burst < rate:
        return f"`{MUTATIONS_BURST}` {burst:g} is below `{MUTATIONS_RATE}` {rate:g}; must be at least {rate:g}"
    if burst / MAX_BURST_SECONDS > rate:
        highest = rate * MAX_BURST_SECONDS
        return f"`{MUTATIONS_BURST}` {burst:g} is too much for `{MUTATIONS_RATE}` {rate:g}; must be at most {highest:g}"
    return None


def named(entity: Entity) -> str:
    """An entity of a limit for people, defaults included."""
    if isinstance(entity, TenantEntity):
        return str(entity)
    parts = (("user", entity.user), ("client-id", entity.client_id))
    return ", ".join(f"default {what}" if name == DEFAULT else f"{what} {name}" for what, name in parts if name is not None)
