"""Tenants of a summary: what each has and moves, and how long its budget of stored bytes lasts.

In: the tables `owned`, `entities`, `throttles`, the quotas in force, which say who belongs to a tenant, and when limits are reached
(`reports.budget_forecast`). Out: `Tenants`.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any, Final

import pyarrow.compute as pc

from reports.budget_forecast import BudgetForecast, Budgets, Had, last_limit, rows_of
from reports.quotas.limits import QuotaFile
from reports.stored import Stored, sums
from reports.summary.growth import growth_of, levels_of, path_of
from reports.summary.model import Budget, TenantRow, Tenants
from reports.tables import Tables

MAX_ROWS = 1000
_NO_QUOTAS: Final = QuotaFile("")


def summarize_tenants(tables: Tables, quotas: QuotaFile | None, budgets: Budgets) -> Tenants:
    """Those with most stored bytes first, then those who moved most; budgets that end first come first."""
    in_force, seen = quotas or _NO_QUOTAS, budgets.had
    moved = _moved(tables["entities"], in_force.tenant_of_user())
    decided = _decided(tables["throttles"])
    largest = _largest_topics(tables["owned"], in_force.tenant_of_topic())
    rows = []
    for name in seen.keys() | moved.keys() | decided.keys():
        one = seen.get(name, Had())
        row = TenantRow(name, one.at, one.topics, one.partitions, one.now, _growth(one), decided.get(name, 0))
        topic, size = largest.get(name, (None, None))
        rows.append(replace(row, **moved.get(name, {}), largest_topic=topic, largest_topic_bytes=size))
    rows.sort(key=lambda row: (-(row.stored or 0), -((row.produced or 0) + (row.fetched or 0)), -(row.topics or 0), row.tenant))
    return Tenants(
        tuple(rows[:MAX_ROWS]),
        len(rows),
        told=bool(seen),
        members=bool(in_force.tenants),
        budgets=tuple(map(_budget, budgets.found)),
        budget_count=budgets.count,
        full=budgets.full,
    )


def _growth(one: Had) -> float | None:
    return one.now / one.week_ago - 1 if one.now is not None and one.week_ago else None


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
    for row in rows_of(owned, "topic", ["date", "stored_bytes"]):
        if row["date"] != last:
            last, found = row["date"], {}
        tenant, size = tenant_of(row["topic"]), row["stored_bytes"]
        if tenant is not None and size is not None and size > found.get(tenant, ("", -1))[1]:
            found[tenant] = row["topic"], size
    return found


def _budget(one: BudgetForecast) -> Budget:
    both = [(one.levels, one.forecast), (one.proposed_levels or {}, one.proposed or one.forecast)]
    # Both limits are drawn, so up to the higher one.
    limits, result = max((pair for pair in both if pair[0]), key=lambda pair: last_limit(pair[0]))
    full = result.reached.get("hard" if "hard" in limits else "soft")
    return Budget(
        one.tenant,
        one.at,
        one.used,
        last_limit(one.levels) if one.levels else None,
        levels_of(one.levels, one.forecast),
        path_of(one, max(one.used, last_limit(limits)), full),
        levels_of(one.proposed_levels or {}, one.proposed) if one.proposed else (),
        one.factor,
        **growth_of(one.forecast),
    )
