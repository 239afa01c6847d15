"""How to get from the quotas that are to those that stand in a file.

In: what a proxy says, a settings file. Out: what differs, and the alterations that make it the same; a settings file of what is.

Only limits of the proxy: those of brokers cannot stand in its settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from proxy.apis.client_quotas import entity_of, who_of
from proxy.wire.client_quotas import Entry, Op, Who
from quota.addresses import DEFAULT_ADDRESS, AddressEntity
from quota.catalogue import ADDRESS_RATE, KEYS, TOPIC_MEASURES, TOPIC_STORED
from quota.entity import Entity
from quota.keys import Values, is_own
from quota.overrides import Difference, Table, differences
from quota.tenants import TenantEntity


def own(found: Mapping[Who, Values]) -> Table:
    """The limits of the proxy among these; members of tenants are none."""
    table: dict[Entity, Values] = {}
    for who, values in found.items():
        if mine := {key: value for key, value in values.items() if key in KEYS}:
            table[entity_of(who)] = mine
    return table


def theirs(found: Mapping[Who, Values]) -> int:
    """How many of these are limits of brokers."""
    return sum(not is_own(key) for values in found.values() for key in values)


def steps(have: Table, want: Table, *, prune: bool) -> list[Difference]:
    """What has to change; `prune`: limits that are not wanted go."""
    return [one for one in differences(have, want) if prune or one.new is not None]


def entries_of(found: Iterable[Difference]) -> list[Entry]:
    """The same as alterations, an entry for each entity."""
    ops: defaultdict[Entity, list[Op]] = defaultdict(list)
    for entity, key, _, new in found:
        ops[entity].append(Op(key, new or 0.0, new is None))
    return [Entry(who_of(entity), tuple(made)) for entity, made in ops.items()]


def as_settings(table: Table) -> str:
    """A settings file with these limits."""
    made: dict[str, Any] = {"quotas": {"entities": []}}
    for entity, values in sorted(table.items(), key=lambda item: _order(item[0])):
        if isinstance(entity, AddressEntity):
            connections = made["quotas"].setdefault("connections", {})
            rate = plain(values[ADDRESS_RATE.name])
            if entity == DEFAULT_ADDRESS:
                connections["per_address"] = rate
            else:
                connections.setdefault("networks", {})[entity.topic] = rate
        elif isinstance(entity, TenantEntity):
            made.setdefault("tenants", {})[entity.topic] = _limits_of(values)
        else:
            made["quotas"]["entities"].append(_names_of(entity) | _limits_of(values))
    return yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=1000)


def as_topic_settings(limits: Iterable[tuple[str, str, float]]) -> str:
    """A settings file with these limits of topics: topic, kind, bytes per second or stored bytes."""
    topics: defaultdict[str, dict[str, int | float]] = defaultdict(dict)
    stored: dict[str, dict[str, int | float]] = {}
    for topic, kind, limit in limits:
        if kind == TOPIC_STORED:
            stored[topic] = {"hard": plain(limit)}
        else:
            topics[topic][TOPIC_MEASURES[kind][0]] = plain(limit)
    quotas: dict[str, Any] = {"topic_rates": {"topics": dict(topics)}}
    made = {"quotas": quotas | ({"stored_bytes": {"topics": stored}} if stored else {})}
    return yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=1000)


def _order(entity: Entity) -> tuple[str, str, str]:
    return entity.user or "", entity.client_id or "", entity.topic or ""


def _names_of(entity: Entity) -> dict[str, Any]:
    return {name: part for name, part in entity._asdict().items() if part is not None}


def _limits_of(values: Values) -> dict[str, Any]:
    return {key.name: plain(values[name]) for name, key in KEYS.items() if name in values}


def plain(value: float) -> int | float:
    """A whole number where it is one."""
    return value if value % 1 else int(value)


def as_json(found: Mapping[Who, Values]) -> list[dict[str, Any]]:
    """Limits for programs: null is the default's name."""
    return [
        {"entity": dict(who), "quotas": {key: plain(value) for key, value in values.items()}} for who, values in in_order(found)
    ]


def in_order(found: Mapping[Who, Values]) -> Sequence[tuple[Who, Values]]:
    """Users first, then by name."""
    return sorted(found.items(), key=lambda item: sorted((kind, name or "") for kind, name in item[0])[::-1])
