"""Stored bytes of tenants and topics: what counts, what a look at the log dirs changes, and what other proxies tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from proxy.hashing import murmur3
from quota.batch import Batch
from quota.catalogue import TOPIC_STORED
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.stored_bytes import AT_ONCE, TENANT_STORED, Budget, Stands, StoredBytesOptions, StoredLimit, TopicBudgets
from quota.kinds.tenant_rates import TenantTable
from quota.produce import Judgement, Judging
from quota.rules import Rules
from quota.steps import Steps, finish_at_once
from quota.tenants import Tenant, Tenants, owner_of
from tests.support import changed, limits_of, paused

APPS = Tenants({"apps": Tenant(user_prefixes=("app-",), topic_prefixes=("apps.",)), "ops": Tenant(topic_prefixes=("apps.ops.",))})
Sizes = Mapping[int, Mapping[str, Mapping[int, int]]]
"""By broker, topic and partition."""


def engine_of(
    tenants: Mapping[str, StoredLimit] | None = None, topics: Mapping[str, StoredLimit] | None = None, **options: Any
) -> Engine:
    tables = {TENANT_STORED: TenantTable(APPS, tenants or {}), TOPIC_STORED: TopicBudgets(topics or {})}
    return Engine(limits_of(APPS, StoredBytesOptions(**options), **tables), murmur3)


def limit(hard: int, soft: int | None = None) -> StoredLimit:
    return StoredLimit(hard, hard if soft is None else soft)


def look(engine: Engine, sizes: Sizes, now: float = 0.0, *, everything: bool = True, meanwhile: Any = lambda: None) -> Any:
    """A look at these brokers; which topics were asked for. `meanwhile` happens while they are asked."""
    found = finish_at_once(engine.stored.begin(now, everything=everything))
    if found is None:
        return None
    meanwhile()
    found.brokers = dict(sizes)
    engine.stored.understand(found)
    finish_at_once(engine.stored.finish(found))
    return found.wanted


def one(topic: str, size: int) -> Sizes:
    return {1: {topic: {0: size}}}


def write(engine: Engine, *batches: tuple[str, int], user: str = "alice", now: float = 0.0) -> Judgement:
    """A request that brokers write."""
    judging = Judging(
        engine, Rules(engine, user, "app", now), [Batch(it, True, None, i, n, -1, -1, -1) for i, (it, n) in enumerate(batches)]
    )
    judging.judge(len(batches), now)
    return judging.finish()


def budget(engine: Engine, tenant: str = "apps") -> Budget:
    return engine.stored.of_tenants.budgets[owner_of(tenant)]


def told(engine: Engine) -> list[tuple[str, Stands]]:
    return [(str(it.owner), it.told) for it in finish_at_once(engine.look_at_stored())]


# ------------------------------------------------------------------ what is stored


@pytest.mark.parametrize(
    ("every_copy", "expected"),
    [(False, {"apps": 100 + 7, "ops": 30}), (True, {"apps": 100 + 90 + 7, "ops": 60})],
)
def test_topics_count_for_the_tenant_of_the_longest_prefix_once_or_with_every_replica(
    every_copy: bool, expected: dict[str, int]
) -> None:
    engine = engine_of({"apps": limit(1000), "ops": limit(1000)}, replicas=every_copy)
    copies: Sizes = {
        1: {"apps.a": {0: 100}, "apps.ops.x": {0: 10, 1: 20}, "other": {0: 5000}},
        2: {"apps.a": {0: 90}, "apps.ops.x": {0: 10, 1: 20}, "apps.b": {0: 7}},
    }
    look(engine, copies)
    assert {name: budget(engine, name).used for name in expected} == expected


def test_a_topic_belongs_to_the_tenant_of_who_created_it() -> None:
    engine = engine_of({"apps": limit(1000)})
    engine.owned.topic_sized("mine", 1)
    engine.owned.created("mine", "app-1")
    look(engine, one("mine", 40))
    assert budget(engine).used == 40
    write(engine, ("mine", 60))
    assert budget(engine).used == 100


def test_every_written_byte_counts_as_often_as_its_topic_has_replicas() -> None:
    engine = engine_of({"apps": limit(1000)}, replicas=True)
    look(engine, {1: {"apps.a": {0: 10}}, 2: {"apps.a": {0: 10}}})
    write(engine, ("apps.a", 100))
    assert budget(engine).used == 220
    write(engine, ("apps.new", 100))
    assert budget(engine).used == 420, "of one that was not seen yet, as many as any topic has"


# ------------------------------------------------------------------ written since the last look


def test_what_was_written_since_the_last_look_counts_and_no_look_takes_it_back_before_it_was_seen() -> None:
    engine = engine_of({"apps": limit(1000)})
    look(engine, one("apps.a", 500))
    assert not write(engine, ("apps.a", 300)).refused
    assert budget(engine).used == 800

    look(engine, one("apps.a", 800), 1.0, meanwhile=lambda: write(engine, ("apps.a", 150)))
    assert budget(engine).used == 950, "the look may not have seen what was written while it went on"
    assert write(engine, ("apps.a", 51)).refused
    assert not write(engine, ("apps.a", 50)).refused


def test_what_retention_and_deletes_free_is_free_with_the_next_look() -> None:
    engine = engine_of({"apps": limit(1000)})
    look(engine, one("apps.a", 1000))
    assert write(engine, ("apps.a", 1)).refused
    look(engine, one("apps.a", 300), 1.0, everything=False)
    assert not write(engine, ("apps.a", 700)).refused
    look(engine, {1: {}}, 2.0)
    assert budget(engine).used == 0, "the topic is gone"


def test_batches_of_one_request_are_judged_as_if_those_before_them_were_written() -> None:
    engine = engine_of({"apps": limit(100)})
    look(engine, {1: {}})
    judged = write(engine, ("apps.a", 60), ("apps.b", 60), ("apps.c", 40), ("other", 500))
    assert set(judged.refused) == {1}
    (decision,) = judged.decisions
    assert (decision.quota, str(decision.entity), decision.items, decision.throttle) == (TENANT_STORED, "tenant apps", (1,), 0.0)
    assert budget(engine).used == 100


def test_a_batch_counts_for_its_tenant_and_its_topic_and_the_tightest_holds() -> None:
    engine = engine_of({"apps": limit(1000)}, {"apps.a": limit(100), "other": limit(50)})
    look(engine, one("apps.a", 40))
    assert set(write(engine, ("apps.a", 61), ("apps.b", 61), ("other", 50), ("other", 1)).refused) == {0, 3}
    assert not write(engine, ("apps.a", 60)).refused
    assert budget(engine).used == 40 + 61 + 60
    assert engine.stored.of_topics.budgets[Entity(None, None, "apps.a")].used == 100


def test_before_the_first_look_nothing_is_refused_and_what_was_written_before_it_is_not_counted_twice() -> None:
    engine = engine_of({"apps": limit(100)})
    assert not write(engine, ("apps.a", 5000)).refused
    look(engine, one("apps.a", 5000))
    assert budget(engine).used == 5000
    assert write(engine, ("apps.a", 1)).refused


# ------------------------------------------------------------------ limits that change


def test_a_limit_below_what_is_stored_refuses_growth_and_is_told_once() -> None:
    engine = engine_of({"apps": limit(1000)})
    look(engine, one("apps.a", 500))
    assert told(engine) == []
    engine.change(changed(engine.limits, **{TENANT_STORED: TenantTable(APPS, {"apps": limit(400)})}))
    assert budget(engine).used == 500, "what is stored stays stored"
    assert told(engine) == [("tenant apps", Stands.HARD)]
    assert told(engine) == []
    assert write(engine, ("apps.a", 1)).refused
    assert told(engine) == []


def test_a_tenant_that_is_removed_while_it_is_over_limits_nobody_any_more() -> None:
    engine = engine_of({"apps": limit(10)})
    look(engine, one("apps.a", 500))
    assert write(engine, ("apps.a", 1)).refused
    none = Tenants({})
    engine.change(changed(engine.limits, none, **{TENANT_STORED: TenantTable(none, {"apps": limit(10)})}))
    assert not write(engine, ("apps.a", 1)).refused
    assert not engine.stored


def test_topics_move_with_their_prefix_at_the_next_look() -> None:
    engine = engine_of({"apps": limit(1000), "ops": limit(1000)})
    look(engine, one("apps.ops.x", 70))
    assert (budget(engine).used, budget(engine, "ops").used) == (0, 70)
    moved = Tenants({**APPS.tenants, "ops": Tenant(topic_prefixes=("elsewhere.",))})
    both = TenantTable(moved, {"apps": limit(1000), "ops": limit(1000)})
    engine.change(changed(engine.limits, moved, **{TENANT_STORED: both}))
    write(engine, ("apps.ops.x", 5))
    look(engine, one("apps.ops.x", 75), 1.0)
    assert (budget(engine).used, budget(engine, "ops").used) == (75, 0)


# ------------------------------------------------------------------ slowing


def test_above_the_soft_limit_producers_are_slowed_more_and_more() -> None:
    mib = 1 << 20
    engine = engine_of({"apps": limit(100 * mib, 50 * mib)})
    engine.stored.produced = lambda: {"alice": 4.0 * mib}
    look(engine, one("apps.a", 60 * mib))
    throttles = [write(engine, ("apps.a", 10 * mib)).throttle for _ in range(3)]
    assert throttles == sorted(throttles)
    assert throttles[-1] > 0
    assert told(engine) == [("tenant apps", Stands.SOFT)]
    look(engine, one("apps.a", mib), 1.0)
    assert told(engine) == [("tenant apps", Stands.WITHIN)]
    assert not write(engine, ("apps.a", 10 * mib), now=100.0).decisions


# ------------------------------------------------------------------ which looks


def test_only_topics_of_owners_that_are_near_a_limit_are_looked_at_between() -> None:
    engine = engine_of({"apps": limit(1000), "ops": limit(1000)}, {"other": limit(1000)})
    look(engine, {1: {"apps.a": {0: 10}, "apps.ops.x": {0: 400, 1: 510}, "other": {0: 1}}})
    assert look(engine, {1: {"apps.ops.x": {0: 400, 1: 520}}}, 1.0, everything=False) == {"apps.ops.x": 2}
    assert (budget(engine).used, budget(engine, "ops").used) == (10, 920)
    write(engine, ("apps.a", 500))
    engine.owned.topic_sized("apps.new", 3)
    wanted = look(engine, {1: {"apps.a": {0: 510}, "apps.new": {2: 5}, "apps.ops.x": {0: 1}}}, 2.0, everything=False)
    assert wanted == {"apps.ops.x": 2, "apps.a": 1, "apps.new": 3}, "one that is written to so fast that it would soon be full"
    assert (budget(engine).used, budget(engine, "ops").used) == (515, 1)
    look(engine, {1: {"apps.a": {0: 510}}}, 3.0, everything=False)
    assert look(engine, {}, 4.0, everything=False) is None, "nobody is near any more"


def test_a_broker_that_is_gone_keeps_its_sizes_until_they_are_too_old() -> None:
    engine = engine_of({"apps": limit(1000)}, validity=300.0)
    both: Sizes = {1: {"apps.a": {0: 100}}, 2: {"apps.b": {0: 50}}}
    look(engine, both, 0.0)
    look(engine, {1: both[1]}, 300.0)
    assert budget(engine).used == 150
    look(engine, {1: both[1]}, 301.0)
    assert budget(engine).used == 100


# ------------------------------------------------------------------ other proxies


def test_what_other_proxies_let_through_counts_here_and_is_not_told_back() -> None:
    here, there = engine_of({"apps": limit(1000)}), engine_of({"apps": limit(1000)})
    for engine in (here, there):
        look(engine, one("apps.a", 500))
    sums = {it.name: it for it in here.publish()}[TENANT_STORED]
    others = {it.name: it for it in there.publish()}[TENANT_STORED]
    write(here, ("apps.a", 400))
    taken = list(sums.take_charged())
    assert taken == [(owner_of("apps"), 400.0)]
    for owner, amount in taken:
        others.learn(owner, amount, 0.0)
    assert write(there, ("apps.a", 101)).refused
    assert not write(there, ("apps.a", 100)).refused
    assert list(others.take_charged()) == [(owner_of("apps"), 100.0)]
    assert list(sums.take_charged()) == []
    assert here.stored.topic("apps.a").take(30)
    write(here, ("apps.a", 20))
    assert list(sums.take_charged()) == [(owner_of("apps"), 50.0)], "of several, once, and again after the last time"


def test_a_tenant_and_a_topic_of_the_same_name_are_two() -> None:
    named = Tenants({"orders": Tenant(topic_prefixes=("x.",))})
    tables = {
        TENANT_STORED: TenantTable(named, {"orders": limit(100)}),
        TOPIC_STORED: TopicBudgets({"orders": limit(100)}),
    }
    engine = Engine(limits_of(named, **tables), murmur3)
    look(engine, {1: {"x.a": {0: 10}, "orders": {0: 70}}})
    assert sorted(it.used for it in engine.stored.budgets) == [10, 70]


def test_what_concerns_very_many_budgets_is_done_in_steps_between_which_others_are_served() -> None:
    count = 5 * AT_ONCE
    names = [f"t{i}" for i in range(count)]
    engine = engine_of(topics=dict.fromkeys(names, limit(100, 50)))
    stored = engine.stored
    for name in names:
        stored.topic(name)

    def steps(work: Steps[Any], passes: int) -> Any:
        pauses, given = paused(work)
        assert passes * 5 <= pauses <= passes * 10
        return given

    found = steps(stored.begin(0.0, everything=True), 3)  # to make budgets, to look for those of no limit, and to begin
    found.brokers = {1: {name: {0: 60} for name in names}}
    stored.understand(found)
    steps(stored.finish(found), 2)
    assert len(steps(engine.look_at_stored(), 1)) == count
    near = steps(stored.begin(1.0, everything=False), 2)
    assert near.wanted == dict.fromkeys(names, 1)
    engine.change(limits_of(APPS, StoredBytesOptions(), **{TOPIC_STORED: TopicBudgets({})}))
    assert told(engine) == []
    assert not stored.of_topics.budgets, "they are gone with their limits"


def test_before_the_first_look_all_is_written_and_after_it_everything_is_known() -> None:
    engine = engine_of(topics={"a": limit(100, 50)})
    assert engine.stored.topic("a").take(10**9)
    assert engine.stored.unknown()
    look(engine, one("a", 60))
    assert not engine.stored.unknown()
    assert not engine.stored.topic("a").take(1)
