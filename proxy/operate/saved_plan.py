"""A plan of quotas: what changes, the state that it was made from, and who would be held back. As a file: JSON.

In: limits in force, limits wanted. Out: a plan; whether the state is still the one it was made from."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from configfile.load import Lines, read
from proxy.apis.client_quotas import entity_of, who_of
from proxy.operate.foreseen import HeldBack, Replayed
from proxy.operate.plan import plain
from quota.addresses import DEFAULT_ADDRESS, with_limit
from quota.catalogue import ADDRESS_RATE, KEYS
from quota.entity import Entity
from quota.keys import is_own, named, wrong_value
from quota.kinds.connections import parse_network
from quota.overrides import Difference, Table, differences
from quota.tenants import Tenant, Tenants, owner_of

FORMAT: Final = "kafka-quota-proxy plan"
VERSION: Final = 1
_PLANNED: Final = {"entities", "connections", "connections.per_address", "connections.networks", "dynamic", "admins"}
"""Below `quotas`: what a plan looks at, and how proxies learn of limits."""
Where = dict[tuple[Entity, str], int]
"""The line of a settings file on which a limit stands."""


class PlanError(Exception):
    """A file that is no plan; the message is for people."""


@dataclass(frozen=True)
class Plan:
    """`state`: all limits when it was made; `replayed`: None where no logs were given; `observed_from`: since when
    it is observed before it is applied; `left_out`: settings about quotas in the file that no plan changes;
    `tenants`: of the file, where a limit of one changes."""

    file: str
    made: datetime
    changes: tuple[Difference, ...]
    lines: Mapping[tuple[Entity, str], int]
    state: Table
    left_out: tuple[str, ...] = ()
    hurt_above: float = 0.0
    replayed: Replayed | None = None
    observed_from: datetime | None = None
    tenants: Mapping[str, Tenant] = field(default_factory=dict)

    @property
    def hurt(self) -> list[HeldBack]:
        """Who would be held back for longer than `hurt_above` seconds."""
        return [] if self.replayed is None else [one for one in self.replayed.held_back if one.seconds > self.hurt_above]

    def moved(self, table: Table) -> list[str]:
        """What is not as it was when the plan was made, in words; empty if all is."""
        return [
            f"{named(one.entity)} {one.key} is {_figure(one.new)}, and was {_figure(one.old)}"
            for one in differences(self.state, table)
        ]

    def is_done(self, table: Table) -> bool:
        """Is all in force that it wants?"""
        return all(table.get(one.entity, {}).get(one.key) == one.new for one in self.changes)

    def observed(self, since: datetime) -> Plan:
        """The same, observed since then."""
        return replace(self, observed_from=since)

    def as_json(self) -> dict[str, Any]:
        """The file, and what programs get."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "file": self.file,
            "made": self.made.isoformat(),
            "changes": [
                {"entity": _names(one.entity), "quota": one.key, "old": one.old, "new": one.new}
                | {"line": self.lines.get((one.entity, one.key))}
                for one in self.changes
            ],
            "left_out": list(self.left_out),
            "tenants": {
                name: {"users": list(one.users), "user_prefixes": list(one.user_prefixes)} for name, one in self.tenants.items()
            },
            "state": [{"entity": _names(entity), "quotas": dict(values)} for entity, values in self.state.items()],
            "hurt_above_seconds": self.hurt_above,
            "hurt": [one.owner for one in self.hurt],
            "replayed": None if self.replayed is None else asdict(self.replayed),
            "observed_from": None if self.observed_from is None else self.observed_from.isoformat(),
        }


def _names(entity: Entity) -> list[list[str | None]]:
    return [list(part) for part in who_of(entity)]


def _entity(names: Iterable[tuple[str, str | None]]) -> Entity:
    return entity_of(tuple((str(kind), name) for kind, name in names))


def _figure(value: float | None) -> str:
    return "not set" if value is None else str(plain(value))


def lines_of(file: Path) -> tuple[Where, tuple[str, ...]]:
    """On which line each limit of a settings file stands, and the settings about quotas that are no such limits: a proxy has them
    from its own file alone. The file was found to be right before."""
    data, lines = read(file, "quotas: {}")
    quotas, found = data.get("quotas") or {}, Where()
    left_out = [f"quotas.{name}" for name in quotas if name not in _PLANNED]
    left_out += [
        f"quotas.connections.{name}" for name in quotas.get("connections") or {} if name not in ("per_address", "networks")
    ]
    tenants = [one for one in (data.get("tenants") or {}).values() if one]
    members = dict.fromkeys(name for one in tenants for name in one if name not in KEYS and f"cluster_{name}" not in KEYS)
    left_out += [f"tenants.*.{name}" for name in members]
    for i, one in enumerate(quotas.get("entities") or []):
        _take(found, lines, ("quotas", "entities", i), Entity(one.get("user"), one.get("client_id")))
    for name in data.get("tenants") or {}:
        _take(found, lines, ("tenants", name), owner_of(name))
    if (at := lines.get(("quotas", "connections", "per_address"))) is not None:
        found[DEFAULT_ADDRESS, ADDRESS_RATE.name] = at
    for name in (quotas.get("connections") or {}).get("networks") or {}:
        network = parse_network(str(name))
        if network.prefixlen < network.max_prefixlen:  # no name in the protocol
            left_out.append(f"quotas.connections.networks.{name}")
        elif (at := lines.get(("quotas", "connections", "networks", name))) is not None:
            found[with_limit(str(network.network_address)), ADDRESS_RATE.name] = at
    return found, tuple(left_out)


def _take(found: Where, lines: Lines, at: tuple[str | int, ...], entity: Entity) -> None:
    for name in KEYS:
        for spelled in (name, name.removeprefix("cluster_")):
            if (line := lines.get((*at, spelled))) is not None:
                found[entity, name] = line


def save(plan: Plan, path: Path) -> None:
    """Write it, all or nothing. OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(json.dumps(plan.as_json(), indent=2) + "\n", encoding="utf-8")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def load(path: Path) -> Plan:
    """A plan that was saved; PlanError."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise PlanError(f"{path}: cannot be read: {e.strerror}") from None
    except ValueError:
        raise PlanError(f"{path}: is not a plan: not JSON") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError(f"{path}: is not a plan of `kafka-quota-proxy quotas plan --out`")
    if data.get("version") != VERSION:
        raise PlanError(f"{path}: a plan of another version, {data.get('version')}: make it anew")
    try:
        return _read(data)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise PlanError(f"{path}: is not a whole plan: {e}") from None


def _read(data: dict[str, Any]) -> Plan:
    changes, lines = [], {}
    for one in data["changes"]:
        entity, key = _entity(one["entity"]), str(one["quota"])
        old, new = (None if one[name] is None else float(one[name]) for name in ("old", "new"))
        wrong = None if is_own(key) else f"{key} is no limit of the proxy"
        if wrong := wrong or (None if new is None else wrong_value(entity, key, new)):
            raise ValueError(wrong)
        changes.append(Difference(entity, key, old, new))
        if one["line"] is not None:
            lines[entity, key] = int(one["line"])
    state = {_entity(one["entity"]): {str(key): float(value) for key, value in one["quotas"].items()} for one in data["state"]}
    replayed, since = data["replayed"], data["observed_from"]
    return Plan(
        str(data["file"]),
        _time(data["made"]),
        tuple(changes),
        lines,
        state,
        tuple(map(str, data["left_out"])),
        float(data["hurt_above_seconds"]),
        None if replayed is None else Replayed.of(replayed),
        None if since is None else _time(since),
        Tenants({name: Tenant(tuple(one["users"]), tuple(one["user_prefixes"])) for name, one in data["tenants"].items()}).tenants,
    )


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return at
