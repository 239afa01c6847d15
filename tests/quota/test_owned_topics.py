"""Who owns which topics, and how many there are of how many. The table of docs/tenants.md about numbers is a test here."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.limits import limits_of
from proxy.config.load import SettingsError, load_settings
from proxy.config.models import Settings
from proxy.hashing import murmur3
from quota import owned_topics
from quota.decision import Action, Decision
from quota.engine import Engine
from quota.entity import Entity
from quota.fleet_events import FleetEvents
from quota.kinds.topic_numbers import Judged, conclude, judging
from quota.owned_topics import HEARD_FOR, MAX_RESERVED, Owned, OwnedTopics, WantedTopic
from quota.steps import STEP, finish_at_once
from quota.tenants import Tenant, Tenants, owner_of
from tests.quota.test_tenants import rows
from tests.support import paused

APPS, ALICE, BOB = owner_of("apps"), Entity("alice", None), Entity("bob", None)
TENANTS = {"apps": {"users": ["alice"], "topic_prefixes": ["apps."]}}


def engine_of(tenant: Mapping[str, object] | None = None, *entities: Mapping[str, object], **quotas: object) -> Engine:
    """The tenant apps with these limits, and entities."""
    tenants = {"apps": TENANTS["apps"] | (tenant or {})}
    settings = Settings.model_validate({"tenants": tenants, "quotas": {"entities": list(entities), **quotas}})
    return Engine(limits_of(settings), murmur3)


def asks(engine: Engine, user: str, *wanted: WantedTopic, now: float = 0.0) -> Mapping[int, Decision]:
    """What is refused of a request."""
    judged = Judged()
    finish_at_once(judging(engine, user, wanted, now + 30, judged))
    return conclude(engine, judged, now)


def new(name: str, partitions: int = 1) -> WantedTopic:
    return WantedTopic(name, partitions, True)


def test_topics_of_a_tenant_are_those_of_its_prefix_and_those_that_its_users_created_elsewhere():
    owned = OwnedTopics()
    owned.configure(Tenants({"apps": Tenant(users=("alice",), topic_prefixes=("apps.",)), "b": Tenant(topic_prefixes=("b.",))}))
    for name, creator in (("apps.1", None), ("apps.2", "bob"), ("x", "alice"), ("b.1", "alice"), ("y", None)):
        if creator is not None:
            owned.created(name, creator)
        owned.topic_sized(name, 3)
    assert owned.owned(APPS) == (3, 9)
    assert owned.owned(owner_of("b")) == (1, 3)
    assert owned.owned(ALICE) == (2, 6)
    assert owned.owned(BOB) == (1, 3)
    owned.topic_sized("x", 5)
    owned.topic_sized("apps.1", 0)
    assert owned.owned(APPS) == (2, 8)
    owned.configure(Tenants({"apps": Tenant(users=("bob",))}))
    assert owned.owned(APPS) == (1, 3), "tenants that are others own others"
    assert owned.owned(owner_of("b")) == (0, 0)


@pytest.mark.parametrize("row", rows("limits of the tenant"), ids=str)
def test_the_table_of_the_page(row):
    limits, there, asked, refused = row
    engine = engine_of({name: int(value) for name, value in (part.split(": ") for part in limits.split(", "))})
    for i, size in enumerate(int(cell) for cell in there.split(", ") if cell != "none"):
        engine.owned.topic_sized(f"apps.{i}", size)
    wanted = [new(f"apps.new-{i}", int(cell)) for i, cell in enumerate(asked.split(", "))]
    found = asks(engine, "alice", *wanted)
    assert {i + 1 for i in found} == {int(cell) for cell in refused.split(", ") if cell != "none"}


def test_the_message_says_how_many_there_are_of_how_many():
    engine = engine_of({"max_topics": 2, "max_partitions": 10})
    engine.owned.topic_sized("apps.1", 8)
    (decision,) = asks(engine, "bob", new("apps.2", 3)).values()
    assert (decision.quota, decision.action, decision.entity) == ("tenant_partition_count", Action.REFUSE, APPS)
    assert decision.message == "tenant apps has 8 of 10 partitions (max_partitions); 3 more are too many."
    assert (decision.usage, decision.limit, decision.left, decision.throttle) == (8, 10, 2, 0)
    engine.owned.topic_sized("apps.2", 1)
    (decision,) = asks(engine, "bob", new("apps.3")).values()
    assert decision.message == "tenant apps has 2 of 2 topics (max_topics); 1 more is too many."


def test_users_have_numbers_of_their_own_and_a_default():
    engine = engine_of(None, {"user": "alice", "max_topics": 2}, {"user": "<default>", "max_topics": 1})
    assert not asks(engine, "bob", new("one"))
    assert asks(engine, "bob", new("two"))[0].entity == BOB
    assert list(asks(engine, "alice", new("a"), new("b"), new("c"))) == [2]


def test_partitions_that_are_added_count_for_the_owner_of_the_topic_whoever_adds_them():
    engine = engine_of(None, {"user": "alice", "max_partitions": 5})
    engine.owned.created("t", "alice")
    engine.owned.topic_sized("t", 3)
    assert not asks(engine, "bob", WantedTopic("t", 2, False))
    (decision,) = asks(engine, "bob", WantedTopic("t", 3, False)).values()
    assert decision.entity == ALICE


def test_a_limit_below_what_there_is_refuses_what_is_more_only():
    engine = engine_of({"max_topics": 1, "max_partitions": 100})
    for i in range(3):
        engine.owned.topic_sized(f"apps.{i}", 1)
    assert not asks(engine, "alice", WantedTopic("apps.0", 2, False)), "that is no topic more"
    assert asks(engine, "alice", new("apps.3"))


def test_what_is_asked_for_counts_until_it_is_there_or_is_not_coming():
    engine = engine_of({"max_topics": 1})
    assert not asks(engine, "alice", new("apps.1"))
    assert asks(engine, "alice", new("apps.2"))
    assert not asks(engine, "alice", new("apps.1")), "asked for again"
    engine.sweep(30.0)
    assert not asks(engine, "alice", new("apps.2"), now=30.0)
    engine.owned.topic_sized("apps.2", 1)
    assert len(engine.owned) == 0
    assert asks(engine, "alice", new("apps.3"), now=30.0)
    engine.owned.topic_sized("apps.2", 0)
    assert not asks(engine, "alice", new("apps.3"), now=30.0), "deleting frees"


def test_who_brokers_do_not_let_create_topics_keeps_nobody_else_from_it():
    engine = engine_of({"max_topics": 1})
    assert not asks(engine, "mallory", new("apps.1"))
    assert asks(engine, "mallory", new("apps.2")), "it counts for mallory"
    assert not asks(engine, "alice", new("apps.2"))


def test_the_creator_is_who_asked_until_a_broker_says_more():
    owned = OwnedTopics()
    owned.reserve("alice", new("auto"), 30.0)
    owned.topic_sized("auto", 2)
    assert owned.owned(ALICE) == (1, 2)
    owned.created("auto", "bob")
    assert (owned.owned(ALICE), owned.owned(BOB)) == ((0, 0), (1, 2))


def test_observed_limits_refuse_nothing_and_are_told():
    engine = engine_of({"max_topics": 1}, observe=["tenant_topic_count"])
    assert not asks(engine, "alice", new("apps.1"), new("apps.2"))
    assert [(it.quota, it.action, it.items) for it in engine.would] == [("tenant_topic_count", Action.REFUSE, (1,))]
    assert asks(engine, "alice", new("apps.3")) == {}, "what went on counts"
    assert engine.would[-1].usage == 2


def test_reservations_are_bounded():
    owned = OwnedTopics()
    for i in range(MAX_RESERVED + 100):
        owned.reserve("alice", new(f"t{i}"), 30.0)
    assert len(owned) < MAX_RESERVED
    assert owned.reserve("bob", new("t"), 30.0) is not None, "others have room"


def test_another_proxy_counts_at_once_what_this_one_tells():
    here, there = engine_of({"max_topics": 2}), engine_of({"max_topics": 2})
    told, heard = FleetEvents(here, lambda: 0.0), FleetEvents(there, lambda: 0.0)
    here.owned.tell("alice", "apps.1", 3)
    heard.hear("here", [event for _, (_, event) in told.take(10)], 0.1, 0.0)
    assert list(asks(there, "bob", new("apps.2"), new("apps.3"))) == [1]
    there.owned.topic_sized("apps.1", 3)
    assert there.owned.owned(APPS) == (1, 3)
    assert there.owned.creator("apps.1") == "alice"
    there.owned.hear("alice", "apps.9", 1, 0.0)
    there.sweep(HEARD_FOR)
    assert there.owned.used(APPS, "bob") == (1, 3), "nobody else has heard of it"


def test_nothing_is_told_where_nothing_is_limited():
    engine = engine_of()
    events = FleetEvents(engine, lambda: 0.0)
    engine.owned.tell("alice", "apps.1", 3)
    assert len(events) == 0


def test_what_cannot_be_a_number_is_refused_with_its_line(tmp_path):
    path = tmp_path / "settings.yaml"
    for wrong in ("0", "-1", "2.5", "many"):
        path.write_text(f"tenants:\n  apps:\n    max_topics: {wrong}\n")
        with pytest.raises(SettingsError, match="line 3"):
            load_settings(path)


names = st.sampled_from([f"apps.{i}" for i in range(3)] + ["x", "y"])
users = st.sampled_from(["alice", "bob"])
steps = st.one_of(
    st.tuples(st.just("sized"), names, st.integers(0, 4)),
    st.tuples(st.just("created"), names, users),
    st.tuples(st.just("reserve"), names, users),
    st.tuples(st.just("sweep"), st.integers(0, 100)),
    st.tuples(st.just("tenants"), st.booleans()),
)


@given(st.lists(steps, max_size=40))
def test_numbers_are_those_of_counting_all_topics(done):
    owned, sizes = OwnedTopics(), dict[str, int]()
    some = Tenants({"apps": Tenant(users=("alice",), topic_prefixes=("apps.",))})
    for step in done:
        match step:
            case ("sized", name, size):
                owned.topic_sized(name, size)
                sizes = {**sizes, name: size} if size else {other: n for other, n in sizes.items() if other != name}
            case ("created", name, user) if name in sizes:
                owned.created(name, user)
            case ("reserve", name, user):
                owned.reserve(user, new(name), 50.0)
            case ("sweep", now):
                owned.sweep(now)
            case ("tenants", there):
                owned.configure(some if there else Tenants({}))
    for owner in (APPS, ALICE, BOB):
        mine = [size for name, size in sizes.items() if owner in owned.owners(name, owned.creator(name))]
        assert owned.owned(owner) == Owned(len(mine), sum(mine))
    owned.sweep(1000.0)
    assert len(owned) == 0
    for owner in (APPS, ALICE, BOB):
        assert owned.used(owner, "alice") == owned.owned(owner)


def test_while_topics_are_counted_anew_owners_have_what_they_had_and_then_all(monkeypatch):
    monkeypatch.setattr(owned_topics, "AT_ONCE", 1)
    owned = OwnedTopics()
    for topic in ("t", "apps.u"):
        owned.topic_sized(topic, 2)
    owned.created("t", "alice")
    owned.configure(Tenants({"apps": Tenant(users=("alice",), topic_prefixes=("apps.",))}))
    counting = owned.recount()
    next(counting)
    owned.topic_sized("t", 5)  # which was counted anew already
    owned.topic_sized("v", 1)
    owned.created("v", "alice")
    assert owned.recounting
    assert (owned.owned(ALICE), owned.owned(APPS)) == (Owned(2, 6), Owned(0, 0))
    finish_at_once(counting)
    assert not owned.recounting
    assert (owned.owned(ALICE), owned.owned(APPS)) == (Owned(2, 6), Owned(3, 8))


def test_those_owners_are_shown_first_that_have_most_of_what_they_may_have():
    users = [{"user": "bob", "max_partitions": 100}, {"user": "carol", "max_partitions": 20}, {"user": "dave", "max_topics": 1}]
    engine = engine_of({"max_partitions": 1000}, *users)
    for number, creator in enumerate(("alice", "bob", "carol", "dave", *(f"user-{i}" for i in range(5 * STEP)))):
        engine.owned.created(f"t{number}", creator)
        engine.owned.topic_sized(f"t{number}", 10)
    kinds = {kind.name: kind for kind in engine.topic_numbers}
    pauses, told = paused(kinds["partition_count"].fullest(5))
    assert [(owner.user, stands.usage, stands.limit, stands.left) for owner, stands in told] == [
        ("carol", 10, 20, 10),
        ("bob", 10, 100, 90),
    ]
    assert 5 <= pauses <= 10, "others are served between two steps"
    assert finish_at_once(kinds["partition_count"].fullest(1)) == told[:1]
    assert [owner for owner, _ in finish_at_once(kinds["tenant_partition_count"].fullest(5))] == [APPS]
    assert [owner.user for owner, _ in finish_at_once(kinds["topic_count"].fullest(5))] == ["dave"]
    assert finish_at_once(kinds["tenant_topic_count"].fullest(5)) == []
