"""Tenants in a report: what they have and move, and how many days are left until their budgets of stored bytes are used up."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
import pyarrow as pa

from reports import budget_forecast
from reports.arrow_rows import arrow_schema, table_schema
from reports.budget_forecast import MAX_BUDGETS, forecast_budgets
from reports.entities import ENTITIES
from reports.parquet import write_rows
from reports.quotas.limits import QuotaFile, Tenant
from reports.stored import Stored
from reports.summary.model import Tenants
from reports.summary.tenants import summarize_tenants
from tests.reports.conftest import Made
from tests.reports.logs import NOON, Log

GIB = 2**30
FIRST = NOON.date()
SCHEMAS = {
    "owned": table_schema(
        "date date, tenant string, user string, topic string, at timestamp, topic_count bigint, partition_count bigint, "
        "stored_bytes bigint"
    ),
    "entities": ENTITIES,
    "throttles": table_schema("date date, entity_tenant string, decisions bigint"),
}
Row = dict[str, Any]


def had(day: int, stored: int | None, tenant: str | None = "payments", **changes: Any) -> Row:
    """What a tenant had at the end of a day."""
    on = FIRST + timedelta(day)
    at = datetime.combine(on, time(23, 59), UTC)
    return {"date": on, "tenant": tenant, "at": at, "topic_count": 3, "partition_count": 12, "stored_bytes": stored} | changes


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Tenants]:
    """The tenants of tables with these rows, by these settings of tenants, and by proposed ones that leave a part of the growth."""

    def make(
        owned: list[Row],
        settings: dict[str, Tenant] | None = None,
        proposed: dict[str, Tenant] | None = None,
        left: float = 1.0,
        **others: list[Row],
    ) -> Tenants:
        tables = {}
        for name, schema in SCHEMAS.items():
            kinds = arrow_schema(schema)
            rows = [{field: row.get(field) for field in kinds.names} for row in {"owned": owned, **others}.get(name, [])]
            write_rows(pa.Table.from_pylist(rows, kinds), schema, tmp_path / name)
            tables[name] = Stored(schema, ((tmp_path / name, None),))
        in_force, other = (None if one is None else QuotaFile("quotas", tenants=one) for one in (settings, proposed))
        return summarize_tenants(tables, in_force, forecast_budgets(tables["owned"], in_force, other, lambda _: left))

    return make


def limited(hard: float | None, soft: float | None = None, **members: Any) -> Tenant:
    return Tenant(members.pop("users", ()), (), {} if hard is None else {"stored_bytes": hard}, stored_soft=soft, **members)


def test_even_growth_reaches_each_limit_on_its_day(told: Callable[..., Tenants]) -> None:
    rows = [had(day, (100 + 2 * day) * GIB) for day in range(10)]
    (budget,) = told(rows, {"payments": limited(158 * GIB, 138 * GIB)}).budgets
    soft, hard = budget.levels
    assert (soft.name, hard.name, budget.used, budget.limit) == ("soft", "hard", 118 * GIB, 158 * GIB)
    assert budget.per_day == pytest.approx(2 * GIB, rel=0.02)
    for level, days in ((soft, 10), (hard, 20)):
        assert level.day is not None
        assert level.early is not None
        assert (level.day - budget.at) / timedelta(days=1) == pytest.approx(days, abs=0.5)
        assert level.early <= level.day


def test_a_budget_is_drawn_with_its_forecast_until_its_limit(told: Callable[..., Tenants]) -> None:
    rows = [had(day, (100 + 2 * day) * GIB) for day in range(10)]
    (budget,) = told(rows, {"payments": limited(138 * GIB, 120 * GIB)}).budgets
    path = budget.path
    assert [used for _, used in path.observed] == [(100 + 2 * day) * GIB for day in range(10)]
    begin, end = path.ahead[0], path.ahead[-1]
    assert begin[0] == round(budget.at.timestamp())
    assert begin[1] == pytest.approx(118 * GIB, rel=0.01)
    assert (end[0] - begin[0]) / 86_400 == pytest.approx(14, abs=2), "ten days until the limit, and some behind it"
    assert max(high for *_, high in path.ahead) <= 138 * GIB * 1.02
    assert path.proposed == ()


def test_a_proposed_budget_moves_the_day_and_one_that_changes_nothing_does_not_stand_there(told: Callable[..., Tenants]) -> None:
    rows = [had(day, (100 + 2 * day) * GIB, name) for day in range(10) for name in ("more", "same", "rate", "new", "free")]
    settings = {"more": limited(138 * GIB), "same": limited(138 * GIB), "rate": limited(138 * GIB), "free": limited(None)}
    proposed = {"more": limited(158 * GIB, 128 * GIB), "same": limited(138 * GIB), "new": limited(128 * GIB)}
    found = {row.tenant: row for row in told(rows, settings, proposed).budgets}
    assert found.keys() == {"more", "same", "rate", "new"}
    more, new = found["more"], found["new"]
    assert [(level.name, level.at_bytes // GIB) for level in more.proposed] == [("soft", 128), ("hard", 158)]
    days = [(level.day - more.at) / timedelta(days=1) for level in (more.levels[-1], *more.proposed) if level.day]
    assert days == pytest.approx([10, 5, 20], abs=0.5)
    for one in (more, new):
        (last, *_), used = one.path.ahead[-1], [used for _, used, *_ in one.path.ahead]
        assert last > (one.proposed[-1].day or one.at).timestamp(), "it is drawn until the later of both limits"
        assert max(used) > one.proposed[-1].at_bytes
    assert found["same"].proposed == found["rate"].proposed == ()
    assert (new.limit, new.levels, new.last) == (None, (), new.proposed[0])
    assert new.proposed[0].day is not None
    slower = {row.tenant: row for row in told(rows, settings, proposed, left=0.5).budgets}["rate"]
    assert slower.factor == 0.5
    assert slower.proposed[0].day is not None
    assert (slower.proposed[0].day - slower.at) / timedelta(days=1) == pytest.approx(20, abs=1), "half the growth, the same limit"


def test_budgets_that_end_first_come_first_and_what_has_no_forecast_says_why(told: Callable[..., Tenants]) -> None:
    rows = []
    for day in range(10):
        rows += [had(day, 50 * GIB, "above"), had(day, (10 + day) * GIB, "soon"), had(day, (20 + day) * GIB, "late")]
        rows += [had(day, 9 * GIB, "still"), had(day, GIB, "unlimited")]
    rows.append(had(9, 8 * GIB, "new"))
    limits = {"above": 40, "soon": 30, "late": 90, "still": 10, "new": 100, "unseen": 1}
    found = told(rows, {name: limited(limit * GIB) for name, limit in limits.items()} | {"unlimited": limited(None)})
    assert [row.tenant for row in found.budgets] == ["above", "soon", "late", "still", "new"]
    above, soon, _, still, new = found.budgets
    assert above.levels[-1].already
    assert not soon.levels[-1].already
    assert still.levels[-1].day is None
    assert new.reason == "too little history (1 day, 3 are needed)"
    assert (found.budget_count, found.full) == (len(limits), 1)


def test_only_the_nearest_of_many_budgets_are_forecast(told: Callable[..., Tenants], monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = []
    real = budget_forecast.forecast
    monkeypatch.setattr(budget_forecast, "forecast", lambda history, limits: fitted.append(1) or real(history, limits))
    names = [f"t{number:04d}" for number in range(1000)]
    rows = [had(day, (1000 - number + day) * GIB, name) for day in range(3) for number, name in enumerate(names)]
    found = told(rows, {name: limited(1100 * GIB) for name in names})
    assert [row.tenant for row in found.budgets] == names[:MAX_BUDGETS]
    assert (len(fitted), found.budget_count, found.count) == (MAX_BUDGETS, 1000, 1000)
    full = told(rows, {name: limited(952 * GIB) for name in names})
    assert [row.tenant for row in full.budgets] == [*names[:20], *names[51:71]], "who is full does not hide who will be"
    assert full.full == 51


def test_without_limits_there_are_no_budgets_but_what_tenants_have(told: Callable[..., Tenants]) -> None:
    rows = [had(day, (100 + 10 * day) * GIB) for day in range(9)]
    rows += [had(day, None, "users-alone", topic_count=None, partition_count=None) for day in range(9)]
    decided = [
        {"date": FIRST, "entity_tenant": "payments", "decisions": 4},
        {"date": FIRST, "entity_tenant": "gone", "decisions": 1},
    ]
    found = told(rows, throttles=decided)
    assert not found.budgets
    assert not found.members
    payments = found.rows[0]
    assert (payments.tenant, payments.topics, payments.partitions, payments.stored) == ("payments", 3, 12, 180 * GIB)
    assert payments.growth == pytest.approx(180 / 110 - 1)
    assert (payments.decisions, payments.produced) == (4, None)
    assert {row.tenant: (row.stored, row.decisions) for row in found.rows[1:]} == {"users-alone": (None, 0), "gone": (None, 1)}


def test_what_members_moved_and_the_largest_topic_go_by_the_settings(told: Callable[..., Tenants]) -> None:
    rows = [had(0, GIB), had(1, GIB)]
    rows.append(had(0, 99, None, topic="pay.old"))
    rows += [had(1, size, None, topic=name) for name, size in (("pay.a", 5), ("pay.b", 7), ("x", 9))]

    def moved(user: str, produced: int, refused: int | None = None) -> Row:
        counts = {"produced_bytes": produced, "fetched_bytes": 2 * produced, "throttle_ms": 10}
        return {"scope": "principal", "principal": f"User:{user}", **counts, "refused": [("x", refused)] if refused else None}

    users = [moved("alice", 1, 3), moved("pay-1", 20), moved("pay-x-1", 300), moved("bob", 4000)]
    settings = {
        "payments": Tenant(("alice",), ("pay-",), {}, ("pay.",)),
        "more": Tenant((), ("pay-x-", "alice"), {}),
    }
    found = {row.tenant: row for row in told(rows, settings, entities=users).rows}
    payments, more = found["payments"], found["more"]
    assert (payments.produced, payments.fetched, payments.refused, payments.throttle_ms) == (21, 42, 3, 20)
    assert (payments.largest_topic, payments.largest_topic_bytes) == ("pay.b", 7)
    assert (more.produced, more.stored, more.largest_topic) == (300, None, None), "the longest prefix counts"


@pytest.mark.spark
def test_a_report_of_several_proxies_has_the_largest_figures_of_each_day(make: Callable[..., Made], tmp_path: Path) -> None:
    log, behind = Log(), Log("proxy-b")
    for day in range(6):
        begin = 86_400 * day
        log.usage(begin, request_bytes=1000).owned(begin, stored_bytes=999 * GIB)  # a cleanup in the morning
        for minute in range(600, 603):
            log.owned(begin + 60 * minute, stored_bytes=(100 + day) * GIB)
            behind.owned(begin + 60 * minute + 7, topic_count=2, stored_bytes=(99 + day) * GIB)
        behind.owned(begin + 60 * 602 + 20, topic_count=None, partition_count=None)
        log.owned(begin, tenant=None, topic="pay.a", topic_count=None, partition_count=None, stored_bytes=GIB)
        log.owned(begin, tenant=None, user="alice")
    for each in (log, behind):
        each.write(tmp_path / "logs")
    quotas = tmp_path / "quotas.yaml"
    members = "users: [alice], topic_prefixes: [pay.]"
    quotas.write_text(f"tenants: {{payments: {{{members}, stored_bytes_soft: 50GiB, stored_bytes_hard: 120GiB}}}}")
    made = make(quotas=quotas, made=NOON + timedelta(days=6))
    days = [(FIRST + timedelta(day), 3, 12, (100 + day) * GIB) for day in range(6)]
    shown = [row for row in made.rows("owned", "date", "topic_count", "partition_count", "stored_bytes", "tenant") if row[-1]]
    assert [row[:-1] for row in shown] == days
    tenants = made.report.capacity.tenants
    (row,) = tenants.rows
    assert (row.stored, row.produced, row.largest_topic) == (105 * GIB, 6000, "pay.a")
    soft, hard = tenants.budgets[0].levels
    assert soft.already
    assert hard.day is not None
    assert hard.day.date() == date(2026, 3, 21)
    said = "Tenant payments will be the first tenant to reach its limit of stored bytes (120.0 GiB): on 2026-03-21"
    assert said in made.page
    assert made.rows("budgets", "tenant", "used_bytes", "case", "level", "at_bytes", "already") == [
        ("payments", 105 * GIB, "in force", "hard", 120 * GIB, False),
        ("payments", 105 * GIB, "in force", "soft", 50 * GIB, True),
    ]
    assert '<a href="budgets/">Parquet: budgets</a>' in made.page
    assert made.report.capacity.quotas is not None
    assert made.report.capacity.quotas.not_looked_at == ()
