"""Who would be held back by planned quotas: the report's replay of the logs, for the limits that a plan changes.

In: the limits before and after, logs. Out: who, by which limit, how often, for how long. Whose limit stays or is raised is not told
of. Needs what the report needs (PySpark, Java), and imports it only when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from quota.addresses import AddressEntity
from quota.catalogue import KEYS
from quota.entity import DEFAULT, Entity
from quota.overrides import Difference, Table
from quota.tenants import TenantEntity, Tenants, owner_of

if TYPE_CHECKING:
    from reports.quotas.limits import Limit


@dataclass(frozen=True)
class HeldBack:
    """Somebody who would be throttled, or refused where the quota refuses: `owner` of `limit`, which is the limit `quota` of
    `rule`, on a `line` of the file. `times` that it begins, `seconds` in all, the longest single wait; `first` and `last` minute
    in which the average was above the limit, as ISO 8601."""

    owner: str
    quota: str
    rule: str
    limit: float
    line: int | None
    times: int
    seconds: float
    longest_wait: float
    first: str | None
    last: str | None


@dataclass(frozen=True)
class Replayed:
    """What the logs said: who is held back, lines read, their time (ISO 8601; None without a line), keys that no log tells of."""

    held_back: tuple[HeldBack, ...]
    lines: int
    first: str | None
    last: str | None
    not_replayed: tuple[str, ...]

    @staticmethod
    def of(data: Mapping[str, Any]) -> Replayed:
        """Of JSON; TypeError, KeyError."""
        held = tuple(HeldBack(**one) for one in data["held_back"])
        return Replayed(held, int(data["lines"]), data["first"], data["last"], tuple(map(str, data["not_replayed"])))


def replay(
    logs: str,
    before: Table,
    after: Table,
    changes: Sequence[Difference],
    lines: Mapping[tuple[Entity, str], int],
    tenants: Tenants,
    since: datetime | None = None,
) -> Replayed:
    """What the changes would have done with the traffic of the logs. Raises `reports.errors.ReportError`."""
    from reports.quotas.foresee import foresee
    from reports.quotas.limits import QuotaFile, Tenant, of_tenants

    apart = not_replayed(changes)
    of_users, of_groups = (
        [
            limit
            for limit in _limits(after, of)
            if limit.kind in {KEYS[one.key].kind for one in _of(changes, of) if one not in apart}
        ]
        for of in (False, True)
    )
    groups = {
        name: Tenant(one.users, one.user_prefixes, {limit.kind: limit.rate for limit in of_groups if limit.user == name})
        for name, one in tenants.tenants.items()
    }
    found = foresee(logs, QuotaFile("plan", tuple(of_users), tenants=groups), since)
    mark = of_tenants("")
    # As their limits are here: that of a tenant has its name as the user.
    rows = [
        {**row, "kind": row["kind"].removeprefix(mark), "owner_user": row["topic"]}
        for row in found.rows
        if row["kind"].startswith(mark)
    ]
    held = held_back([row for row in found.rows if not row["kind"].startswith(mark)], of_users, _limits(before, False), lines)
    held += held_back(rows, of_groups, _limits(before, True), lines, _tenant)
    held.sort(key=lambda one: (-one.seconds, one.owner, one.quota))
    apart += [one for one in changes if one not in apart and KEYS[one.key].level and KEYS[one.key].kind not in found.levels]
    not_told = tuple(dict.fromkeys(one.key for one in apart))
    return Replayed(tuple(held), found.lines, _time(found.first), _time(found.last), not_told)


def not_replayed(changes: Iterable[Difference]) -> list[Difference]:
    """Those of which no log tells enough."""
    from reports.quotas.limits import replayed as can_be

    return [one for one in changes if isinstance(one.entity, AddressEntity) or not can_be(one.key)]


def held_back(
    rows: Iterable[Mapping[str, Any]],
    after: Sequence[Limit],
    before: Sequence[Limit],
    lines: Mapping[tuple[Entity, str], int],
    of: Callable[[str | None, str | None], Entity] = Entity,
) -> list[HeldBack]:
    """Those of a replay who are throttled by a limit that is new to them or lower than before; the longest first."""
    found = []
    for row in rows:
        now, then = (_limit_for(row, limits) for limits in (after, before))
        if not row["seconds_throttled"] or now is None or (then is not None and _as_much(now, then)):
            continue
        key = next(key for key in KEYS.values() if key.kind == now.kind and not key.at_once)
        first, last = (_time(row[name]) for name in ("first_over", "last_over"))
        # What had not passed when the logs end would have been waited for, too; nobody waits for what there may be at a time.
        left = 0.0 if key.level else row["waiting"] / row["limit"]
        waits = row["seconds_throttled"] + left, row["longest_wait"]
        line = lines.get((of(now.user, now.client_id), key.name))
        owner, rule = _named(of(row["owner_user"], row["owner_client"])), _named(of(now.user, now.client_id))
        found.append(HeldBack(owner, key.name, rule, now.rate, line, row["times"], *waits, first, last))
    return sorted(found, key=lambda one: (-one.seconds, one.owner, one.quota))


def _time(at: datetime | None) -> str | None:
    """Spark gives times of this machine's zone, without the zone."""
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


def _as_much(now: Limit, then: Limit) -> bool:
    """Does the same entity give as much as before, or more?"""
    same = (now.user, now.client_id) == (then.user, then.client_id)
    return same and now.rate >= then.rate and now.burst >= then.burst


def _limit_for(row: Mapping[str, Any], limits: Iterable[Limit]) -> Limit | None:
    """The limit whose owner this row is about: the most specific one that fits."""
    user, client, fits = row["owner_user"], row["owner_client"], []
    for limit in limits:
        shared = (limit.client_id is None) == (client is None)
        if limit.kind == row["kind"] and shared and limit.user in (None, DEFAULT, user):
            fits += [limit] if limit.client_id in (None, DEFAULT, client) else []
    return min(fits, key=lambda limit: limit.level, default=None)


def _limits(table: Table, of_tenants: bool) -> list[Limit]:
    """Those that can be replayed, of tenants or of all others; that of a tenant has its name as the user."""
    from reports.quotas.limits import limits_of

    found: list[Limit] = []
    for entity, values in table.items():
        if isinstance(entity, TenantEntity) and of_tenants:
            found += limits_of(entity.topic, None, values)
        elif not isinstance(entity, TenantEntity | AddressEntity) and not of_tenants:
            found += limits_of(entity.user, entity.client_id, values)
    return found


def _of(changes: Iterable[Difference], tenants: bool) -> list[Difference]:
    return [one for one in changes if isinstance(one.entity, TenantEntity) == tenants]


def _tenant(name: str | None, _client_id: str | None) -> Entity:
    return owner_of(name or "")


def _named(entity: Entity) -> str:
    if isinstance(entity, TenantEntity):
        return str(entity)
    parts = (("user", entity.user), ("client-id", entity.client_id))
    return ", ".join(f"{kind} {name}" for kind, name in parts if name is not None)
