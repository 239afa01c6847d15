"""What every kind of quota promises, whatever it limits. A kind that is new in the catalogue has to stand in `CASES` too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from proxy.hashing import murmur3
from quota.batch import Batch
from quota.catalogue import KINDS, RATES, TENANT_KINDS, TENANT_RATES, TOPIC_NUMBERS, TOPIC_STORED
from quota.decision import Action, Decision
from quota.engine import Engine
from quota.entity import DEFAULT, Entity
from quota.kind import EntityKind
from quota.kinds import topic_policy
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.kinds.connections import ConnectionLimits
from quota.kinds.controller_mutations import MutationLimit
from quota.kinds.overload import OverloadOptions
from quota.kinds.producer_ids import ProducerIdLimit, user_limit_table
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Check, StorageLimits, Volume
from quota.kinds.stored_bytes import TENANT_STORED, StoredLimit, TopicBudgets
from quota.kinds.tenant_rates import TenantTable
from quota.kinds.topic_numbers import Judged, conclude, judging
from quota.kinds.topic_policy import PARTITIONS, AskedTopic, Rule, TopicPolicy, TopicPolicyOptions
from quota.kinds.topic_rates import TOPIC_IN, TOPIC_OUT, TopicTable
from quota.limit_table import LimitTable
from quota.limits import Exempt, Limits
from quota.overload import Goal
from quota.owned_topics import WantedTopic
from quota.produce import Judging
from quota.rules import Rules
from quota.steps import finish_at_once
from quota.tenants import Tenant, Tenants
from tests.support import limits_of, rate_table

EVERYBODY = Entity(DEFAULT, None)
LATER = 1e6
"""Seconds after which nothing of what was used weighs."""
CAP = 5.0

Use = Callable[[Engine, str, int, float], Decision | None]
"""A request of a user that uses this much, at this time; what is decided about it."""


@dataclass(frozen=True)
class Case:
    """`within` and `over` are what may be used, and what is too much. `of_user`: each user has a limit of its own. `adds_up`:
    proxies add up what they charge."""

    limits: Limits
    use: Use
    within: int
    over: int
    of_user: bool = True
    adds_up: bool = True


def of_entities(name: str) -> Use:
    """For kinds with limits of users and client ids."""

    def use(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
        kind: EntityKind[Any] = next(kind for kind in engine.kinds if kind.name == name)  # type: ignore[assignment]
        found = engine.find(kind, user, "app")
        ids = list(range(amount)) if name == "producer_ids" else [1] * amount
        return None if found is None else engine.enforce(kind.charge(found, ids, now), now).decision

    return use


def produces(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """For kinds that judge Produce requests."""
    judging = Judging(engine, Rules(engine, user, "app", now), [Batch("orders", True, None, 0, amount, -1, -1, -1)])
    judging.judge(1, now)
    return next(iter(judging.finish().decisions), None)


def fills(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """The volume has this much in use, then somebody writes to it."""
    engine.observe(Check(now, (Volume(1, "/data", 1000, 1000 - amount),)), dict)
    return produces(engine, user, 1, now)


def stores(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """Somebody writes to a topic that has nothing stored."""
    for budget in engine.stored.budgets:
        budget.begin()
        budget.finish(0)
    return produces(engine, user, amount, now)


def reads(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """Somebody reads from a topic."""
    rate = Rules(engine, user, "app", now).topic_out("orders")
    return None if rate is None else rate.charge(amount, now)


def connects(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """So many connections from an address come, which belongs to a user here."""
    user_exempt = engine.limits.exempt.everywhere(user, "app")
    host = f"10.0.0.{len(user)}" if not user_exempt else "no address"
    decided = [engine.arrive(host, now) for _ in range(amount)]
    return next((decision for decision in decided if decision is not None), None)


def creates(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """A request that creates `amount` topics, all of one tenant."""
    if engine.limits.exempt.everywhere(user, "app"):
        return None
    judged, names = Judged(), count(len(engine.owned))
    wanted = [WantedTopic(f"all.{next(names)}", 1, True) for _ in range(amount)]
    finish_at_once(judging(engine, user, wanted, now + 10, judged))
    return next(iter(conclude(engine, judged, now).values()), None)


def shapes(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """A request that creates a topic with `amount` partitions."""
    asked = [AskedTopic("t", True, {PARTITIONS: amount})]
    if engine.limits.exempt.everywhere(user, "app"):
        return None
    found = finish_at_once(topic_policy.judging(engine, user, asked, now))
    return next((decision for decision, _ in found.values()), None)


def overloads(engine: Engine, user: str, amount: int, now: float) -> Decision | None:
    """Somebody writes twice to a broker that is overloaded: everybody may have 10 bytes under way there, which takes a second."""
    window = Rules(engine, user, "app", now, 1).window
    if window is None:
        return None
    window.resize(10.0, 1.0, now)
    window.owe(amount, now)
    if window.has_room(amount) and not window.pause(now):
        return None
    return engine.enforce(engine.overload.waits(window, amount, (0,), now), now).decision


MUTATIONS = limits_of(controller_mutations=LimitTable({EVERYBODY: MutationLimit.of(5, 50)}), max_throttle=CAP)
IDS = limits_of(producer_ids=user_limit_table({EVERYBODY: ProducerIdLimit(10)}), max_throttle=CAP)
TOPICS = limits_of(TopicLimits(100, {"orders": 10}, "window", Mode.THROTTLE), max_throttle=CAP)
ADDRESSES = limits_of(ConnectionLimits(10), max_throttle=CAP)
TOPIC = TopicTable({"orders": RateLimit(10)})
STORAGE = limits_of(StorageLimits(Below(100), Below(100)), max_throttle=CAP)
POLICY = limits_of(TopicPolicyOptions(TopicPolicy({PARTITIONS: Rule(most=10)})), max_throttle=CAP)
TENANTS = Tenants({"all": Tenant(users=("alice", "bob"), topic_prefixes=("orders",))})
TENANT_OF_ALL = TenantTable(TENANTS, {"all": RateLimit(10)})
CASES = (
    {
        "controller_mutations": Case(MUTATIONS, of_entities("controller_mutations"), 5, 200),
        "producer_ids": Case(IDS, of_entities("producer_ids"), 5, 20, adds_up=False),
        "bytes_in": Case(TOPICS, produces, 5, 50_000, of_user=False),
        "address_connection_rate": Case(ADDRESSES, connects, 5, 500),
        TOPIC_IN: Case(limits_of(max_throttle=CAP, **{TOPIC_IN: TOPIC}), produces, 5, 500, of_user=False),
        TOPIC_OUT: Case(limits_of(max_throttle=CAP, **{TOPIC_OUT: TOPIC}), reads, 5, 500, of_user=False),
        "storage": Case(STORAGE, fills, 5, 950, of_user=False, adds_up=False),
    }
    | {
        row.kind: Case(limits_of(max_throttle=CAP, **{row.kind: rate_table({EVERYBODY: 10.0})}), of_entities(row.kind), 5, 500)
        for row in RATES
    }
    | {
        TENANT_STORED: Case(
            limits_of(TENANTS, max_throttle=CAP, **{TENANT_STORED: TenantTable(TENANTS, {"all": StoredLimit(100, 100)})}),
            *(stores, 100, 101, False, False),
        ),
        TOPIC_STORED: Case(
            limits_of(max_throttle=CAP, **{TOPIC_STORED: TopicBudgets({"orders": StoredLimit(100, 100)})}),
            *(stores, 100, 101, False, False),
        ),
    }
    | {"overload": Case(limits_of(OverloadOptions(Goal(0.1, 1.0)), max_throttle=CAP), overloads, 1, 500, adds_up=False)}
    | {"topic_policy": Case(POLICY, shapes, 5, 20, adds_up=False)}
    | {
        row.kind: Case(limits_of(max_throttle=CAP, **{row.kind: LimitTable({EVERYBODY: 10})}), creates, 5, 20, adds_up=False)
        for row in TOPIC_NUMBERS
    }
    | {
        TENANT_KINDS[row.kind]: Case(
            limits_of(TENANTS, max_throttle=CAP, **{TENANT_KINDS[row.kind]: TenantTable(TENANTS, {"all": 10})}),
            *(creates, 5, 20, False, False),
        )
        for row in TOPIC_NUMBERS
    }
    | {
        kind: Case(limits_of(max_throttle=CAP, **{kind: TENANT_OF_ALL}), of_entities(kind), 5, 500, of_user=False)
        for kind in TENANT_RATES.values()
    }
)


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def case(name: str) -> Case:
    return CASES[name]


def engine_of(limits: Limits) -> Engine:
    return Engine(limits, murmur3)


def exceed(case: Case, engine: Engine, now: float = 0.0, user: str = "alice") -> Decision | None:
    """Use too much, twice, as some kinds decide about the next request only."""
    first = case.use(engine, user, case.over, now)
    return first or case.use(engine, user, case.over, now)


def test_the_engine_has_every_kind_of_the_catalogue(name):
    assert name in {kind.name for kind in engine_of(limits_of()).kinds}
    assert {kind.name for kind in engine_of(limits_of()).kinds} == set(KINDS) == set(CASES)


def test_what_is_within_the_limit_goes_on_and_leaves_nobody_muted(case):
    engine = engine_of(case.limits)
    assert case.use(engine, "alice", case.within, 0.0) is None
    assert engine.mutes.active(0.0) == {}


def test_what_is_too_much_is_told_with_its_quota_and_the_throttle_is_capped(name, case):
    decision = exceed(case, engine_of(case.limits))
    assert decision is not None
    assert decision.quota == name
    assert 0 <= decision.throttle <= CAP
    assert decision.usage >= decision.limit or "stor" in name, "of a volume it is what is left, of a budget what is there"
    assert decision.message.endswith(".")


def test_without_a_limit_nothing_is_decided(case):
    assert exceed(case, engine_of(limits_of())) is None


def test_a_kind_that_is_observed_decides_nothing_and_tells_what_it_would_have_done(name, case):
    engine = engine_of(replace(case.limits, observed={name: Action.THROTTLE}))
    assert exceed(case, engine) is None
    assert engine.mutes.active(0.0) == {}
    assert {decision.quota for decision in engine.would} == {name}


def test_who_is_exempt_is_not_limited(case):
    engine = engine_of(replace(case.limits, exempt=Exempt(users=frozenset({"alice"}))))
    assert exceed(case, engine) is None
    assert exceed(case, engine, user="bob") is not None


def test_a_user_has_a_limit_of_its_own_unless_it_is_one_of_the_cluster(case):
    engine = engine_of(case.limits)
    assert exceed(case, engine) is not None
    assert (case.use(engine, "bob", case.within, 0.0) is None) == case.of_user or case.use in (fills, stores)


def test_what_was_used_passes_and_is_forgotten(name, case):
    engine = engine_of(case.limits)
    assert exceed(case, engine) is not None
    for _ in range(3):
        engine.sweep(LATER)
    kept = [kind for kind in engine.kinds if kind.name == name and hasattr(kind, "__len__") and name != "storage"]
    assert [len(kind) for kind in kept] == [0] * len(kept)  # type: ignore[arg-type]
    assert case.use(engine, "alice", case.within, LATER) is None
    assert engine.mutes.active(LATER) == {}


def test_what_was_used_stays_used_when_limits_change(name, case):
    engine = engine_of(case.limits)
    assert exceed(case, engine) is not None
    engine.change(replace(case.limits, max_throttle=CAP / 2))
    decision = exceed(case, engine)
    assert decision is not None
    assert decision.quota == name
    assert decision.throttle <= CAP / 2


def test_a_limit_that_is_taken_away_holds_no_more(case):
    engine = engine_of(case.limits)
    assert exceed(case, engine) is not None
    engine.change(limits_of())
    assert exceed(case, engine, 1.0) is None


def test_what_one_proxy_charges_another_learns(name, case):
    here, there = engine_of(case.limits), engine_of(case.limits)
    sums = {it.name: it for it in here.publish()}
    others = {it.name: it for it in there.publish()}
    if not case.adds_up:
        assert name not in sums or not list(sums[name].take_charged())
        return
    exceed(case, here)
    taken = list(sums[name].take_charged())
    assert taken
    for owner, amount in taken:
        others[name].learn(owner, amount, 0.0)
    assert not list(others[name].take_charged()), "what is learned is not told back"
    decision = case.use(there, "alice", case.within, 0.0)
    assert decision is not None
    assert decision.quota == name


def test_every_rate_is_called_as_its_key_says():
    engine = Engine(Limits(), murmur3)
    for kind in (*engine.rates.values(), *engine.tenant_rates.values(), engine.topic_in, engine.topic_out):
        assert kind.title == kind.name.replace("_", " ")
