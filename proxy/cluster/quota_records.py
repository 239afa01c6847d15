"""Quotas that are set while proxies run, as records of a compacted topic. In: changes and who made them. Out: records, and back.

A record is about one limit of one entity, so that two proxies that alter different limits of an entity at once do not undo each
other's; the last record of a key holds, as compaction has it.

- key: `{"client_id":null,"quota":"producer_ids_rate","user":"alice"}`: names sorted, no blanks, `<default>` for a default, null for
  a part that the entity does not have; always the same bytes for the same limit
- key of a tenant's: `{"quota":"cluster_request_rate","tenant":"payments"}`
- key of an address: `{"ip":"10.1.2.3","quota":"connection_creation_rate"}`
- key of a member of a tenant: `{"quota":"users.alice","tenant":"payments"}`, with the value 1
- value: `{"v":1,"value":5.0}`; none where the limit is taken away
- header `by`: who did it, for the audit: `{"at":…,"client":…,"client_id":…,"principal":…,"proxy":…}`"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import orjson

from quota.addresses import AddressEntity, with_limit
from quota.entity import Entity
from quota.keys import is_own, wrong_entity, wrong_value
from quota.overrides import Change
from quota.tenants import TenantEntity, owner_of

VERSION: Final = 1
BY: Final = "by"
_MOST_SHOWN: Final = 300

Header = tuple[str, bytes]


class Record(NamedTuple):
    """What is written."""

    key: bytes
    value: bytes | None
    headers: list[Header]


class BadRecord(Exception):
    """A record that cannot be used; the message says why."""


def encode(change: Change, by: Mapping[str, Any]) -> Record:
    """The record of a change."""
    entity = change.entity
    key = {**_whose(entity), "quota": change.key}
    value = None if change.value is None else orjson.dumps({"v": VERSION, "value": change.value})
    return Record(_json(key), value, [(BY, _json(dict(by)))])


def decode(key: bytes | None, value: bytes | None) -> Change:
    """The change that a record is; `BadRecord` for anything else."""
    told = _object("key", key)
    if set(told) == {"tenant", "quota"}:
        entity: Entity = owner_of(told["tenant"])
    elif set(told) == {"ip", "quota"}:
        entity = with_limit(told["ip"])
    elif set(told) == {"user", "client_id", "quota"}:
        entity = Entity(told["user"], told["client_id"])
    else:
        raise BadRecord(f"its key {_shown(key)} has to have user, client_id and quota, tenant and quota, or ip and quota")
    name = told["quota"]
    if not all(part is None or isinstance(part, str) for part in entity):
        raise BadRecord(f"its key {_shown(key)} has a name that is not text")
    if not is_own(name):
        raise BadRecord(f"this version knows no quota {_shown(name)}")
    if (wrong := wrong_entity(entity)) is not None:
        raise BadRecord(wrong)
    if value is None:
        return Change(entity, name, None)
    number = _number(value)
    if (wrong := wrong_value(entity, name, number)) is not None:
        raise BadRecord(wrong)
    return Change(entity, name, number)


def _whose(entity: Entity) -> dict[str, str | None]:
    if isinstance(entity, TenantEntity):
        return {"tenant": entity.topic}
    return {"ip": entity.topic} if isinstance(entity, AddressEntity) else {"user": entity.user, "client_id": entity.client_id}


def author(headers: Iterable[Header]) -> dict[str, Any]:
    """Who made a change; nothing where that cannot be read."""
    for name, raw in headers:
        if name == BY:
            try:
                return _object("author", raw)
            except BadRecord:
                return {}
    return {}


def _json(told: dict[str, Any]) -> bytes:
    return orjson.dumps(told, option=orjson.OPT_SORT_KEYS)


def _number(value: bytes) -> float:
    told = _object("value", value)
    if told.get("v") != VERSION:
        raise BadRecord(f"its value {_shown(value)} is not of version {VERSION}")
    number = told.get("value")
    if not isinstance(number, int | float) or isinstance(number, bool):
        raise BadRecord(f"its value {_shown(value)} has no number")
    return float(number)


def _object(what: str, raw: bytes | None) -> dict[str, Any]:
    try:
        told = orjson.loads(raw or b"")
    except orjson.JSONDecodeError:
        told = None
    if not isinstance(told, dict):
        raise BadRecord(f"its {what} {_shown(raw)} is no JSON object")
    return told


def _shown(raw: object) -> str:
    """The beginning of something strange."""
    text = raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
    return repr(text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + "…")
