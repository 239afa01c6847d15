"""Tenants of a summary: what each has and moves, and how long its budget of stored bytes lasts.

In: the tables `owned`, `entities`, `throttles`, the quotas in force, which say who belongs to a tenant. Out: `Tenants`. Left to
others: when a limit is reached (`reports.forecast`).
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow.compute as pc

from reports.forecast.forecast import forecast
from reports.forecast.history import History
from reports.quotas.limits import QuotaFile, Tenant
from reports.stored import Stored, sums
from reports.summary.growth import growth_of, levels_of
from reports.summary.model import Budget, TenantRow, Tenants
from reports.tables import Tables

MAX_ROWS = 1000
MAX_BUDGETS = 40
"""Budgets on the page; half of them at most are used up already. Only for these the model is fitted: 20 to 60 ms each."""
_HISTORY: Final = 60
"""Days that the forecast of a budget looks at."""
_WEEK: Final = 7
_NO_QUOTAS: Final = QuotaFile("")
_HARD: Final = "stored_bytes"


@dataclass(slots=True)
class _Seen:
    """One tenant in the logs. `stored`: day -> seconds since the epoch, bytes."""

    at: datetime | None = None
    topics: int | None = None
    partitions: int | None = None
    stored: dict[date, tuple[int, int]] = field(default_factory=dict)

    @property
    def now(self) -> int | None:
        return next(reversed(self.stored.values()))[1] if self.stored else None

    @property
    def week_ago(self) -> int | None:
        """Bytes a week before the last day that tells of them; None where that day does not."""
        last = next(reversed(self.stored)) if self.stored else date.min
        return self.stored.get(last - timedelta(_WEEK), (0, None))[1] if self.stored else None


def summarize_tenants(tables: Tables, quotas: QuotaFile | None) -> Tenants:
    """Those with most stored bytes first, then those who moved most; budgets that end first come first."""
    in_force = quotas or _NO_QUOTAS
    seen = _seen(tables["owned"])
    moved = _moved(tables["entities"], in_force.tenant_of_user())
    decided = _decided(tables["throttles"])
    largest = _largest_topics(tables["owned"], in_force.tenant_of_topic())
    rows = []
    for name in seen.keys() | moved.keys() | decided.keys():
        one = seen.get(name, _Seen())
        row = TenantRow(name, one.at, one.topics, one.partitions, one.now, _growth(one), decided.get(name, 0))
        topic, size = largest.get(name, (None, None))
        rows.append(replace(row, **moved.get(name, {}), largest_topic=topic, largest_topic_bytes=size))
    rows.sort(key=lambda row: (-(row.stored or 0), -((row.produced or 0) + (row.fetched or 0)), -(row.topics or 0), row.tenant))
    budgets = {name: limits for name, one in in_force.tenants.items() if (limits := _limits(one))}
    return Tenants(
        tuple(rows[:MAX_ROWS]),
        len(rows),
        told=bool(seen),
        members=bool(in_force.tenants),
        budgets=_budgets(seen, budgets),
        budget_count=len(budgets),
        full=sum(_is_full(one, budgets[name]) for name, one in seen.items() if name in budgets),
    )


def _limits(tenant: Tenant) -> dict[str, int]:
    both = {"soft": tenant.stored_soft, "hard": tenant.limits.get(_HARD)}
    return {name: round(limit) for name, limit in both.items() if limit is not None}


def _growth(one: _Seen) -> float | None:
    return one.now / one.week_ago - 1 if one.now is not None and one.week_ago else None


def _seen(owned: Stored) -> dict[str, _Seen]:
    """Every tenant that lines `owned` tell of; days come in their order."""
    found: dict[str, _Seen] = {}
    for row in _of(owned, "tenant", ["date", "at", "topic_count", "partition_count", "stored_bytes"]):
        one = found.setdefault(row["tenant"], _Seen())
        one.at = row["at"]
        one.topics = row["topic_count"] if row["topic_count"] is not None else one.topics
        one.partitions = row["partition_count"] if row["partition_count"] is not None else one.partitions
        if row["stored_bytes"] is not None:
            one.stored[row["date"]] = round(row["at"].timestamp()), row["stored_bytes"]
    return found


def _of(owned: Stored, owner: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    for part in owned.parts([owner, *columns]):
        yield from part.filter(pc.is_valid(part[owner])).to_pylist()


def _moved(entities: Stored, tenant_of: Callable[[str], str | None]) -> dict[str, dict[str, Any]]:
    """What the users of each tenant produced and fetched, what was refused to them, and for how long they were throttled."""
    found: dict[str, Counter[str]] = {}
    columns = {"produced": "produced_bytes", "fetched": "fetched_bytes", "throttle_ms": "throttle_ms"}
    for part in entities.parts(["scope", "principal", *columns.values(), "refused"]):
        for row in part.filter(pc.equal(part["scope"], "principal")).to_pylist():
            tenant = tenant_of(row["principal"].removeprefix("User:"))
            if tenant is not None:
                sums_of = found.setdefault(tenant, Counter())
                sums_of.update({name: row[column] or 0 for name, column in columns.items()})
                sums_of["refused"] += sum(items for _, items in row["refused"] or ())
    return {tenant: dict(sums_of) for tenant, sums_of in found.items()}


def _decided(throttles: Stored) -> dict[str, int]:
    """Decisions by limits of each tenant itself, those left out included."""
    parts = (part.filter(pc.is_valid(part["entity_tenant"])) for part in throttles.parts(["entity_tenant", "decisions"]))
    rows = sums(parts, {"tenant": "entity_tenant"}, {"decisions": ("decisions", "sum")})
    return {row["tenant"]: row["decisions"] for row in rows}


def _largest_topics(owned: Stored, tenant_of: Callable[[str], str | None]) -> dict[str, tuple[str, int]]:
    """The topic of each tenant that has most stored, on the last day that tells of topics, of those that the lines name."""
    last: date | None = None
    found: dict[str, tuple[str, int]] = {}
    for row in _of(owned, "topic", ["date", "stored_bytes"]):
        if row["date"] != last:
            last, found = row["date"], {}
        tenant, size = tenant_of(row["topic"]), row["stored_bytes"]
        if tenant is not None and size is not None and size > found.get(tenant, ("", -1))[1]:
            found[tenant] = row["topic"], size
    return found


def _budgets(seen: Mapping[str, _Seen], limits: Mapping[str, dict[str, int]]) -> tuple[Budget, ...]:
    known = [name for name in limits if name in seen and seen[name].stored]
    nearest = sorted(known, key=lambda name: (_days_left(seen[name], limits[name]), -_part(seen[name], limits[name]), name))
    full = [name for name in nearest if _is_full(seen[name], limits[name])][: MAX_BUDGETS // 2]
    coming = [name for name in nearest if not _is_full(seen[name], limits[name])]
    return tuple(sorted((_budget(name, seen[name], limits[name]) for name in (full + coming)[:MAX_BUDGETS]), key=_soonest))


def _is_full(one: _Seen, limits: Mapping[str, int]) -> bool:
    return (one.now or 0) >= _last(limits)


def _last(limits: Mapping[str, int]) -> int:
    """The limit at which producing stops, where there is one."""
    return limits.get("hard") or limits["soft"]


def _part(one: _Seen, limits: Mapping[str, int]) -> float:
    return (one.now or 0) / _last(limits)


def _days_left(one: _Seen, limits: Mapping[str, int]) -> float:
    """A guess that costs nothing, to choose who is worth a forecast, by the growth of all days or of the last week, whichever is
    more."""
    room = _last(limits) - (one.now or 0)
    days = list(one.stored.items())
    slopes = [
        (days[-1][1][1] - used) / (days[-1][0] - day).days for day, (_, used) in (days[0], days[-_WEEK:][0]) if day < days[-1][0]
    ]
    fastest = max(slopes, default=0.0)
    return 0.0 if room <= 0 else room / fastest if fastest > 0 else math.inf


def _budget(name: str, one: _Seen, limits: dict[str, int]) -> Budget:
    observed = list(one.stored.values())[-_HISTORY:]
    result = forecast(History.of(observed), limits)
    at = datetime.fromtimestamp(observed[-1][0], UTC)
    return Budget(name, at, observed[-1][1], _last(limits), levels_of(limits, result), **growth_of(result))


def _soonest(row: Budget) -> tuple[float, float, float, str]:
    """The last of its limits first: that is where producing stops."""
    soft, hard = (day.timestamp() if (day := row.levels[place].day) else math.inf for place in (0, -1))
    return hard, soft, -row.used / row.limit, row.tenant
