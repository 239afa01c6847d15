"""When tenants have used up what they may store, and when they would have with other quotas.

In: the table `owned`, the quotas in force and proposed ones. Out: `Budgets`, as values. Left to others: the arithmetic
(`reports.forecast`), which part of the growth proposed limits leave (`reports.let_through`).

To fit the model takes 20 to 60 ms, so only MAX_BUDGETS tenants have a forecast: those that are guessed to be nearest to
their limit.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final

import pyarrow.compute as pc

from reports.forecast.forecast import FillForecast, forecast
from reports.forecast.history import History
from reports.quotas.limits import QuotaFile, Tenant
from reports.stored import Stored

MAX_BUDGETS = 40
"""Budgets that are forecast; half of them at most are used up already."""
_HISTORY: Final = 60
"""Days that the forecast of a budget looks at."""
_WEEK: Final = 7
_HARD: Final = "stored_bytes"
_NO_QUOTAS: Final = QuotaFile("")


@dataclass(slots=True)
class Had:
    """What the logs say that one tenant had. `stored`: day -> seconds since the epoch, bytes."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetForecast(FillForecast):
    """One tenant. Of its levels, producing is slowed at `soft` and stops at `hard`; there are none where only the proposed quotas
    have some."""

    tenant: str


@dataclass(frozen=True, slots=True)
class Budgets:
    """`had` is of every tenant that lines `owned` tell of; `found` are those that reach a limit first, of `count` tenants with one;
    `full` of these have reached the one in force."""

    had: Mapping[str, Had]
    found: tuple[BudgetForecast, ...] = ()
    count: int = 0
    full: int = 0


def forecast_budgets(
    owned: Stored, quotas: QuotaFile | None, proposed: QuotaFile | None = None, left: Callable[[str], float] = lambda _: 1.0
) -> Budgets:
    """The budgets of `quotas`, and what becomes of them with those of `proposed`, in the order in which they end. `left`: what part
    of its growth a tenant has with the proposed quotas."""
    had = had_by_tenants(owned)
    limits, other = _by_tenant(quotas), _by_tenant(proposed)
    first = {**other, **limits}
    known = [name for name in first if name in had and had[name].stored]
    nearest = sorted(known, key=lambda name: (_days_left(had[name], first[name]), -_part(had[name], first[name]), name))
    full = [name for name in nearest if _is_full(had[name], first[name])][: MAX_BUDGETS // 2]
    coming = [name for name in nearest if not _is_full(had[name], first[name])]
    found = []
    for name in (full + coming)[:MAX_BUDGETS]:
        one = _budget(name, had[name], limits.get(name, {}))
        found.append(one if proposed is None else _with_proposed(one, other.get(name, limits.get(name, {})), left(name)))
    found.sort(key=_soonest)
    return Budgets(had, tuple(found), len(first), sum(_is_full(had[name], limits[name]) for name in limits if name in had))


def had_by_tenants(owned: Stored) -> dict[str, Had]:
    """Every tenant that lines `owned` tell of; days come in their order."""
    found: dict[str, Had] = {}
    for row in rows_of(owned, "tenant", ["date", "at", "topic_count", "partition_count", "stored_bytes"]):
        one = found.setdefault(row["tenant"], Had())
        one.at = row["at"]
        one.topics = row["topic_count"] if row["topic_count"] is not None else one.topics
        one.partitions = row["partition_count"] if row["partition_count"] is not None else one.partitions
        if row["stored_bytes"] is not None:
            one.stored[row["date"]] = round(row["at"].timestamp()), row["stored_bytes"]
    return found


def rows_of(owned: Stored, owner: str, columns: list[str]) -> Iterator[dict[str, Any]]:
    """Rows of the table `owned` of one kind of owners, days in their order."""
    for part in owned.parts([owner, *columns]):
        yield from part.filter(pc.is_valid(part[owner])).to_pylist()


def _by_tenant(quotas: QuotaFile | None) -> dict[str, dict[str, int]]:
    found = {name: _limits(one) for name, one in (quotas or _NO_QUOTAS).tenants.items()}
    return {name: limits for name, limits in found.items() if limits}


def _limits(tenant: Tenant) -> dict[str, int]:
    both = {"soft": tenant.stored_soft, "hard": tenant.limits.get(_HARD)}
    return {name: round(limit) for name, limit in both.items() if limit is not None}


def last_limit(limits: Mapping[str, int]) -> int:
    """The limit at which producing stops, where there is one."""
    return limits.get("hard") or limits["soft"]


def _is_full(one: Had, limits: Mapping[str, int]) -> bool:
    return (one.now or 0) >= last_limit(limits)


def _part(one: Had, limits: Mapping[str, int]) -> float:
    return (one.now or 0) / last_limit(limits)


def _days_left(one: Had, limits: Mapping[str, int]) -> float:
    """A guess that costs nothing, to choose who is worth a forecast, by the growth of all days or of the last week, whichever is
    more."""
    room = last_limit(limits) - (one.now or 0)
    days = list(one.stored.items())
    slopes = [
        (days[-1][1][1] - used) / (days[-1][0] - day).days for day, (_, used) in (days[0], days[-_WEEK:][0]) if day < days[-1][0]
    ]
    fastest = max(slopes, default=0.0)
    return 0.0 if room <= 0 else room / fastest if fastest > 0 else math.inf


def _budget(name: str, one: Had, limits: Mapping[str, int]) -> BudgetForecast:
    observed = tuple(one.stored.values())[-_HISTORY:]
    history = History.of(observed)
    found = forecast(history, limits)
    return BudgetForecast(tenant=name, levels=limits, observed=observed, history=history, forecast=found)


def _with_proposed(one: BudgetForecast, limits: Mapping[str, int], factor: float) -> BudgetForecast:
    return one if limits == one.levels and factor == 1 else one.with_proposed(limits, factor)


def _soonest(one: BudgetForecast) -> tuple[float, float, float, str]:
    """The last of its limits first: that is where producing stops."""
    limits, result = (one.levels, one.forecast) if one.levels else (one.proposed_levels or {}, one.proposed or one.forecast)
    days = [math.inf if (found := result.reached.get(name)) is None or found.day is None else found.day for name in limits]
    return days[-1], days[0], -one.used / last_limit(limits), one.tenant
