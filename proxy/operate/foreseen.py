"""Who would be held back by planned quotas: the report's replay of the logs, for the limits that a plan changes.

In: the limits before and after, logs. Out: who, by which limit, how often, for how long. Whose limit stays or is raised is not told
of. Needs what the report needs (PySpark, Java), and imports it only when it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from quota.addresses import AddressEntity
from quota.catalogue import KEYS
from quota.entity import DEFAULT, Entity
from quota.overrides import Difference, Table
from quota.tenants import TenantEntity

if TYPE_CHECKING:
    from reports.quotas.file import Limit


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
    since: datetime | None = None,
) -> Replayed:
    """What the changes would have done with the traffic of the logs. Raises `reports.errors.ReportError`."""
    from reports.quotas.foresee import foresee

    apart = not_replayed(changes)
    kinds = {_kind(one.key) for one in changes if one not in apart}
    wanted = [limit for limit in _limits(after) if limit.kind in kinds]
    found = foresee(logs, wanted, since)
    held = held_back(found.rows, wanted, _limits(before), lines)
    return Replayed(tuple(held), found.lines, _time(found.first), _time(found.last), tuple(dict.fromkeys(one.key for one in apart)))


def not_replayed(changes: Iterable[Difference]) -> list[Difference]:
    """Those of which no log tells enough."""
    from reports.quotas.file import replayed as can_be

    return [one for one in changes if isinstance(one.entity, TenantEntity | AddressEntity) or not can_be(_kind(one.key))]


def held_back(
    rows: Iterable[Mapping[str, Any]], after: Sequence[Limit], before: Sequence[Limit], lines: Mapping[tuple[Entity, str], int]
) -> list[HeldBack]:
    """Those of a replay who are throttled by a limit that is new to them or lower than before; the longest first."""
    found = []
    for row in rows:
        now, then = (_limit_for(row, limits) for limits in (after, before))
        if not row["seconds_throttled"] or now is None or (then is not None and _as_much(now, then)):
            continue
        key = next(key for key in KEYS.values() if key.kind == now.kind and not key.at_once)
        first, last = (_time(row[name]) for name in ("first_over", "last_over"))
        # What had not passed when the logs end would have been waited for, too.
        waits = row["seconds_throttled"] + row["waiting"] / row["limit"], row["longest_wait"]
        line = lines.get((Entity(now.user, now.client_id), key.name))
        owner, rule = _named(row["owner_user"], row["owner_client"]), _named(now.user, now.client_id)
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


def _limits(table: Table) -> list[Limit]:
    from reports.quotas.file import limits_of

    own = [(entity, values) for entity, values in table.items() if not isinstance(entity, TenantEntity | AddressEntity)]
    return [limit for entity, values in own for limit in limits_of(entity.user, entity.client_id, values)]


def _kind(key: str) -> str:
    return KEYS[key].kind if key in KEYS else key


def _named(user: str | None, client_id: str | None) -> str:
    parts = (("user", user), ("client-id", client_id))
    return ", ".join(f"{kind} {name}" for kind, name in parts if name is not None)
