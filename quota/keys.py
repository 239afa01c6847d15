"""Which entities and values the limits of `quota.catalogue` can have. In: names, entities and values as an operator
gives them. Out: whether that can be a limit, and if not, why, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from math import isfinite
from re import fullmatch
from typing import Final

from quota.addresses import AddressEntity, entity_of
from quota.catalogue import ADDRESS_RATE, KEYS, MUTATIONS_BURST, MUTATIONS_RATE, STORED_HARD, STORED_SOFT, TENANT_KINDS, TENANT_ROWS
from quota.entity import DEFAULT, Entity
from quota.tenants import MEMBERS, TENANT_NAME, TenantEntity, member_of

Values = Mapping[str, float]
"""Limits of one entity, by the names of their keys."""

MAX_BURST_SECONDS: Final = 1e9
"""The longest burst, in seconds of its rate: about thirty years."""
MAX_NAME: Final = 1024
"""Bytes of the name of a user or of a client id."""


def wrong_entity(entity: Entity) -> str | None:
    """Why this cannot be the name of a user, client id, tenant or address; None if it can."""
    if isinstance(entity, AddressEntity):
        return _wrong_address(entity)
    if isinstance(entity, TenantEntity):
        right = fullmatch(TENANT_NAME, entity.topic or "")
        return None if right else "the name of a tenant has 1 to 100 letters, digits, dots, dashes and underscores"
    for what, name in (("user", entity.user), ("client-id", entity.client_id)):
        if name == "":
            return f"the name of the {what} is empty"
        if name is not None and len(name.encode(errors="replace")) > MAX_NAME:
            return f"the name of the {what} has more than {MAX_NAME} bytes"
    return "neither a user nor a client-id is named" if entity.user is None and entity.client_id is None else None


def _wrong_address(entity: AddressEntity) -> str | None:
    name = entity.topic or ""
    try:
        right = name == DEFAULT or entity_of(name) == entity
    except ValueError as e:
        return str(e)
    return None if right else f"the address {name} is spelled {entity_of(name).topic}"


def is_own(name: str) -> bool:
    """Is this a key of the proxy, and not of brokers?"""
    return name in KEYS or member_of(name) is not None


def unit_of(name: str) -> str:
    """The unit of a key of the proxy."""
    return KEYS[name].unit if name in KEYS else ""


def wrong_key(entity: Entity, name: str) -> str | None:
    """Why an entity has nothing of this name; None if it can have it. Of tenants alone, as others are for the brokers to judge."""
    if is_own(name) or not isinstance(entity, TenantEntity):
        return None
    what, dot, _ = name.partition(".")
    if what in MEMBERS and dot:
        return f"{name} names nobody: a member of `{what}` has at least one character"
    known = [key.name for key in TENANT_ROWS]
    meant = get_close_matches(name, known, 1, 0.8) or [key.name for key in TENANT_ROWS if key.deprecated == name]
    return f"{name} is no limit of tenants" + (f"; {meant[0]} is probably meant" if meant else "")


def wrong_value(entity: Entity, name: str, value: float) -> str | None:
    """Why an entity cannot have this limit, or this member; None when it can, seen for itself."""
    if name not in KEYS:
        return _wrong_member(entity, name, value)
    key = KEYS[name]
    if isinstance(entity, AddressEntity) and key is not ADDRESS_RATE:
        return f"{name} is not for addresses; these have {ADDRESS_RATE.name}"
    if key is ADDRESS_RATE and not isinstance(entity, AddressEntity):
        return f"{name} is for addresses only; users and tenants have cluster_connection_rate"
    if isinstance(entity, TenantEntity) and key.kind not in TENANT_KINDS:
        return (
            f"{name} is not for tenants; these have rates of bytes, requests and connections,"
            " `max_topics`, `max_partitions` and stored bytes"
        )
    if key.tenants_only and not isinstance(entity, TenantEntity):
        return f"{name} is for tenants only, as these own topics"
    if key.users_only and entity.client_id is not None:
        return f"{name} is for users and the default user only, as a client id is whatever a client claims"
    if not (isfinite(value) and 0 < value <= key.maximum):
        return f"{name} {value:g} is out of range; must be more than 0 and at most {key.maximum:g} {key.unit}"
    if key.size and value % 1:
        return f"{name} {value:g} is not a whole number of bytes"
    if key.whole and value % 1:
        return f"{name} {value:g} is not a whole number"
    return None


def _wrong_member(entity: Entity, name: str, value: float) -> str | None:
    _, member = member_of(name) or ("", "")
    if not isinstance(entity, TenantEntity):
        return f"{name} is for tenants only"
    if len(member.encode(errors="replace")) > MAX_NAME:
        return f"{name[:40]}… has more than {MAX_NAME} bytes"
    return None if value == 1 else f"{name} has the value 1 where it is a member; take it away where it is none"


def wrong_together(values: Values) -> str | None:
    """Why these limits cannot stand beside each other; None when they can."""
    return next(filter(None, (wrong(values) for wrong in _SECOND.values())), None)


def without_misfits(values: Values) -> dict[str, float]:
    """The limits without those that do not fit the one beside which they stand."""
    return {name: value for name, value in values.items() if name not in _SECOND or _SECOND[name](values) is None}


def _wrong_soft(values: Values) -> str | None:
    hard, soft = values.get(STORED_HARD), values.get(STORED_SOFT)
    if soft is None:
        return None
    if hard is None:
        return f"`{STORED_SOFT}` needs `{STORED_HARD}` beside it"
    if soft > hard:
        return (
            f"`{STORED_SOFT}` {soft:.0f} is above `{STORED_HARD}` {hard:.0f}: slowing begins before the stop, so it must be lower"
        )
    return None


def _wrong_burst(values: Values) -> str | None:
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


_SECOND: Final[Mapping[str, Callable[[Values], str | None]]] = {MUTATIONS_BURST: _wrong_burst, STORED_SOFT: _wrong_soft}
"""Limits that stand beside another one, and why they cannot."""


def named(entity: Entity) -> str:
    """An entity of a limit for people, defaults included."""
    if isinstance(entity, TenantEntity):
        return str(entity)
    if isinstance(entity, AddressEntity):
        return "default address" if entity.topic == DEFAULT else str(entity)
    parts = (("user", entity.user), ("client-id", entity.client_id))
    return ", ".join(f"default {what}" if name == DEFAULT else f"{what} {name}" for what, name in parts if name is not None)
