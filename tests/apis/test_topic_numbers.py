"""Numbers of topics and partitions of tenants and users, as clients see them."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from proxy.config.limits import limits_of
from proxy.config.models import Settings
from quota.entity import Entity
from quota.kinds.controller_mutations import MutationLimit
from quota.tenants import owner_of
from tests.apis.topic_frames import (
    beat,
    create,
    created,
    delete,
    deleted,
    described,
    grow,
    grown,
    heartbeat,
    metadata,
    subtopology,
)
from tests.messages import read_response

APPS = owner_of("apps")
MESSAGE = "tenant apps has 2 of 2 topics (max_topics); 1 more is too many."


def tenants(w: Any, *entities: dict[str, object], observe: tuple[str, ...] = (), **limits: int) -> Any:
    """The tenant apps owns what begins with `apps.`."""
    apps = {"users": ["alice"], "topic_prefixes": ["apps."], **limits}
    quotas = {"entities": list(entities), "observe": list(observe)}
    w.engine.change(limits_of(Settings.model_validate({"tenants": {"apps": apps}, "quotas": quotas})))
    return w


def topics(frame: bytes, key: int, version: int) -> list[tuple[str, int, str | None]]:
    """(name, error, message) of each topic of a response."""
    answer = read_response(key, version, frame)
    told = {19: "topics", 20: "responses", 37: "results"}[key]
    return [(it.name, int(it.error_code), getattr(it, "error_message", None)) for it in getattr(answer, told)]


@pytest.fixture
def full(world):
    """The tenant has as many topics as it may have."""
    w = tenants(world(knows_nothing=True), max_topics=2)
    for i in range(2):
        w.cluster.learn_size(f"apps.{i}", 3)
    return w


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_beyond_the_number_are_refused_and_the_others_go_on(full, version):
    d = full.dialogue("bob")
    d.client(create(version, 1, ("other", 1), ("apps.new", 1), ("more", 1)))
    assert d.to_broker.endswith(create(version, 1, ("other", 1), ("more", 1)))
    d.broker(created(version, 1, "other", "more"))
    told = [("other", 0, None), ("apps.new", 44, MESSAGE), ("more", 0, None)]
    assert topics(d.to_client, 19, version) == told
    ((decision, by),) = full.watcher.decisions
    assert (decision.quota, decision.entity, by.topics) == ("tenant_topic_count", APPS, ("apps.new",))
    (row,) = [row for row in full.rows() if row.refused]
    assert row.refused == {"tenant_topic_count": 1}


@pytest.mark.parametrize("validate_only", [False, True])
def test_when_nothing_is_left_the_proxy_answers_requests_that_only_validate_too(full, validate_only):
    d = full.dialogue("alice")
    d.client(create(7, 1, ("apps.new", 1), validate_only=validate_only))
    d.to_broker  # noqa: B018  (the question about apps.new)
    assert topics(d.to_client, 19, 7) == [("apps.new", 44, MESSAGE)]
    assert len(full.engine.owned) == 0


def test_a_request_that_only_validates_reserves_nothing(world):
    w = tenants(world(knows_nothing=True), max_topics=1)
    d = w.dialogue("alice")
    for number in (1, 2):
        asked = create(7, number, ("apps.a", 1), validate_only=True)
        d.client(asked)
        assert d.to_broker == asked
        d.broker(created(7, number, "apps.a"))
        assert topics(d.to_client, 19, 7) == [("apps.a", 0, None)]
    assert w.engine.owned.owned(APPS) == (0, 0)


def test_a_topic_that_is_there_is_the_brokers(world):
    w = tenants(world(), max_topics=1)
    w.cluster.learn_size("apps.0", 1)
    d = w.dialogue("alice")
    asked = create(7, 1, ("apps.0", 1))
    d.client(asked)
    assert d.told({"apps.0": 1}) == b""
    assert d.to_broker == asked
    d.broker(created(7, 1, "apps.0", error=36))
    assert topics(d.to_client, 19, 7) == [("apps.0", 36, None)]
    assert w.watcher.decisions == []


def test_what_is_created_counts_and_what_is_deleted_frees(world):
    w = tenants(world(knows_nothing=True), max_topics=1)
    d = w.dialogue("alice")
    for number in (1, 3):
        d.client(create(7, number, ("apps.a", 4)))
        assert d.to_broker.endswith(create(7, number, ("apps.a", 4)))
        d.broker(created(7, number, "apps.a", partitions=4))
        assert topics(d.to_client, 19, 7) == [("apps.a", 0, None)]
        assert w.engine.owned.owned(APPS) == w.engine.owned.owned(Entity("alice", None)) == (1, 4)
        d.client(create(7, 9, ("apps.b", 1)))
        d.to_broker  # noqa: B018
        assert topics(d.to_client, 19, 7)[0][1] == 44
        d.client(delete(5, number + 1, "apps.a"))
        assert d.to_broker == delete(5, number + 1, "apps.a")
        d.broker(deleted(5, number + 1, "apps.a"))
        assert topics(d.to_client, 20, 5) == [("apps.a", 0, None)]
        assert w.engine.owned.owned(APPS) == (0, 0)


def test_a_tenant_that_is_removed_while_it_is_over_limits_nobody_any_more(full):
    d, asked = full.dialogue("alice"), create(7, 1, ("apps.new", 1))
    full.engine.change(limits_of(Settings()))
    d.client(asked)
    assert d.to_broker == asked
    d.broker(created(7, 1, "apps.new"))
    assert topics(d.to_client, 19, 7) == [("apps.new", 0, None)]


def test_what_the_broker_did_not_do_is_given_back(world):
    w = tenants(world(knows_nothing=True), max_topics=1)
    d = w.dialogue("alice")
    d.client(create(7, 1, ("apps.a", 1)))
    assert d.to_broker
    assert len(w.engine.owned) == 1
    d.broker(created(7, 1, "apps.a", error=38))
    assert topics(d.to_client, 19, 7) == [("apps.a", 38, None)]
    assert len(w.engine.owned) == 0


def test_requests_on_their_way_count_so_that_two_at_once_do_not_both_pass(world):
    w = tenants(world(knows_nothing=True), max_topics=1)
    one, two = w.dialogue("alice"), w.dialogue("alice")
    one.client(create(7, 1, ("apps.a", 1)))
    assert one.to_broker
    two.client(create(7, 1, ("apps.b", 1)))
    two.to_broker  # noqa: B018
    assert topics(two.to_client, 19, 7)[0][:2] == ("apps.b", 44)


@pytest.mark.parametrize("version", range(4))
def test_partitions_that_are_added_are_within_the_number(world, version):
    w = tenants(world(), max_partitions=10)
    w.cluster.learn_size("apps.0", 3)
    w.cluster.learn_size("apps.1", 3)
    d = w.dialogue("alice")
    d.client(grow(version, 1, ("apps.0", 6), ("apps.1", 6)))
    assert d.told({"apps.1": 3}) == b""
    assert d.to_broker == grow(version, 1, ("apps.0", 6))
    d.broker(grown(version, 1, "apps.0"))
    message = "tenant apps has 9 of 10 partitions (max_partitions); 3 more are too many."
    assert topics(d.to_client, 37, version) == [("apps.0", 0, None), ("apps.1", 44, message)]
    assert w.engine.owned.owned(APPS) == (2, 9)


def test_the_broker_is_asked_how_large_a_topic_is_that_is_to_grow(world):
    w = tenants(world(), max_partitions=10)
    d = w.dialogue("alice")
    d.client(grow(3, 1, ("apps.0", 9)))
    d.told({"apps.0": 3})
    assert d.to_broker == grow(3, 1, ("apps.0", 9))
    d.broker(grown(3, 1, "apps.0"))
    assert topics(d.to_client, 37, 3) == [("apps.0", 0, None)]


def test_numbers_go_before_rates_and_what_they_refuse_is_not_charged(world):
    w = world(knows_nothing=True)
    tenants(w, {"user": "alice", "controller_mutations_rate": 1, "controller_mutations_burst": 2}, max_topics=1)
    d = w.dialogue("alice")
    d.client(create(7, 1, ("apps.a", 1), ("apps.b", 50), ("x", 1), ("y", 1), ("z", 1)))
    asked = d.to_broker
    d.broker(created(7, 1, *(name for name in ("apps.a", "x", "y", "z") if name.encode() in asked)))
    told = topics(d.to_client, 19, 7)
    assert [(name, error) for name, error, _ in told[:3]] == [("apps.a", 0), ("apps.b", 44), ("x", 44)]
    assert w.engine.controller_mutations.average(w.engine.find(w.engine.controller_mutations, "alice", "app"), 0.0) < 50


def test_what_rates_refuse_is_merged_with_what_numbers_refuse(world):
    w = world(knows_nothing=True)
    settings = {"user": "bob", "controller_mutations_rate": 1, "controller_mutations_burst": 1}
    tenants(w, settings, max_topics=1)
    w.cluster.learn_size("apps.0", 1)
    d = w.dialogue("bob")
    d.client(create(7, 1, ("one", 5), ("apps.a", 1), ("two", 1)))
    assert d.to_broker.endswith(create(7, 1, ("one", 5)))
    d.broker(created(7, 1, "one", partitions=5))
    assert [(name, error) for name, error, _ in topics(d.to_client, 19, 7)] == [("one", 0), ("apps.a", 44), ("two", 89)]
    d.now = 0.5


def test_when_rates_refuse_all_that_numbers_left_the_proxy_answers(world):
    w = world(knows_nothing=True)
    w.engine.change(w.engine.limits)
    tenants(w, {"user": "bob", "controller_mutations_rate": 1, "controller_mutations_burst": 1}, max_topics=1)
    w.cluster.learn_size("apps.0", 1)
    mutations = w.engine.controller_mutations
    found = w.engine.find(mutations, "bob", "app")
    assert found.limit == MutationLimit.of(1, 1)
    mutations.charge(found, [100], 0.0)
    d = w.dialogue("bob")
    d.client(create(7, 1, ("apps.a", 1), ("two", 1)))
    d.to_broker  # noqa: B018
    assert [(name, error) for name, error, _ in topics(d.to_client, 19, 7)] == [("apps.a", 44), ("two", 89)]


def test_a_name_that_stands_twice_is_the_brokers(full):
    d = full.dialogue("alice")
    asked = create(7, 1, ("apps.new", 1), ("apps.new", 1))
    d.client(asked)
    assert d.to_broker == asked
    d.broker(created(7, 1, "apps.new", error=42))
    assert topics(d.to_client, 19, 7) == [("apps.new", 42, None)]


def test_observed_numbers_refuse_nothing(world):
    w = tenants(world(knows_nothing=True), max_topics=1, observe=("tenant_topic_count",))
    w.cluster.learn_size("apps.0", 1)
    d = w.dialogue("alice")
    d.client(create(7, 1, ("apps.new", 1)))
    assert d.to_broker.endswith(create(7, 1, ("apps.new", 1)))
    d.broker(created(7, 1, "apps.new"))
    assert topics(d.to_client, 19, 7) == [("apps.new", 0, None)]
    assert [decision.quota for decision, _ in w.watcher.would] == ["tenant_topic_count"]
    assert w.watcher.decisions == []


def test_users_are_limited_in_what_they_created(world):
    w = tenants(world(knows_nothing=True), {"user": "<default>", "max_topics": 1})
    d, other = w.dialogue("bob"), w.dialogue("carol")
    d.client(create(7, 1, ("a", 1), ("b", 1)))
    assert d.to_broker.endswith(create(7, 1, ("a", 1)))
    d.broker(created(7, 1, "a"))
    assert [error for _, error, _ in topics(d.to_client, 19, 7)] == [0, 44]
    other.client(create(7, 1, ("c", 1)))
    assert other.to_broker == create(7, 1, ("c", 1))
    assert w.watcher.decisions[0][0].message == "user bob has 1 of 1 topics (max_topics); 1 more is too many."


def test_exempt_users_and_topics_are_not_limited(world):
    w = world(knows_nothing=True)
    settings = {
        "tenants": {"apps": {"topic_prefixes": ["apps."], "max_topics": 1}},
        "exempt": {"users": ["root"], "topics": ["apps.free"]},
    }
    w.engine.change(limits_of(Settings.model_validate(settings)))
    w.cluster.learn_size("apps.0", 1)
    for user, name in (("root", "apps.x"), ("alice", "apps.free")):
        d = w.dialogue(user)
        d.client(create(7, 1, (name, 1)))
        assert d.to_broker == create(7, 1, (name, 1))


# ------------------------------------------------------------------ topics that other requests create


def test_names_beyond_the_number_are_cut_out_of_metadata(full):
    d = full.dialogue("bob")
    d.client(metadata(9, 1, "apps.new", "apps.0", "x"))
    assert d.to_broker.endswith(metadata(9, 1, "apps.0", "x"))
    d.broker(described(9, 1, {"apps.0": 3, "x": 0}))
    found = read_response(3, 9, d.to_client)
    assert {it.name: int(it.error_code) for it in found.topics} == {"apps.0": 0, "x": 3, "apps.new": 3}
    ((decision, by),) = full.watcher.decisions
    assert (decision.quota, by.topics) == ("tenant_topic_count", ("apps.new",))


def test_a_name_that_is_asked_for_again_and_again_counts_once(world):
    w = tenants(world(knows_nothing=True), max_topics=1)
    d = w.dialogue("alice")
    for number in range(3):
        d.client(metadata(9, number, "apps.new"))
        assert d.to_broker.endswith(metadata(9, number, "apps.new"))
        d.broker(described(9, number, {"apps.new": 0}))
        assert d.to_client
    assert w.watcher.decisions == []
    assert w.engine.owned.used(APPS, "alice") == (1, 1)


def test_metadata_that_creates_nothing_is_not_judged(full):
    d = full.dialogue("alice")
    d.client(metadata(9, 1, "apps.new", create=False))
    assert d.to_broker == metadata(9, 1, "apps.new", create=False)


def test_a_topology_whose_topics_are_too_many_ends_the_member(world):
    w = tenants(world(knows_nothing=True), max_topics=2)
    w.cluster.learn_size("apps.in", 3)
    d = w.dialogue("alice")
    parts = subtopology(sources=("apps.in",), changelogs=("apps.store-1", "apps.store-2"))
    d.client(heartbeat(1, "g", parts))
    d.to_broker  # noqa: B018
    answer = read_response(88, 0, d.to_client)
    assert int(answer.error_code) == 44
    assert answer.error_message == "tenant apps has 2 of 2 topics (max_topics); 1 more is too many."
    assert len(w.engine.owned) == 0, "all of them or none"


def test_a_topology_whose_topics_fit_goes_on_and_counts_once(world):
    w = tenants(world(knows_nothing=True), max_topics=3)
    w.cluster.learn_size("apps.in", 3)
    d = w.dialogue("alice")
    parts = subtopology(sources=("apps.in",), changelogs=("apps.store-1", "apps.store-2"))
    for number in (1, 2):
        d.client(heartbeat(number, "g", parts))
        assert d.to_broker.endswith(heartbeat(number, "g", parts))
        d.broker(beat(number))
        assert d.to_client == beat(number)
    assert w.engine.owned.used(APPS, "alice") == (3, 9)


def test_a_heartbeat_that_two_quotas_look_at_asks_for_sizes_once(world):
    w = tenants(world(), {"user": "alice", "controller_mutations_rate": 100}, max_topics=5)
    w.cluster.learn_size("apps.in", 3)
    d = w.dialogue("alice")
    frame = heartbeat(1, "g", subtopology(sources=("apps.in",), changelogs=("apps.store",)))
    d.client(frame)
    d.told()
    assert d.to_broker == frame
    d.broker(beat(1))
    assert d.to_client == beat(1)


@pytest.mark.parametrize("version", [0, 1])
def test_the_oldest_versions_are_refused_in_their_own_form(full, version):
    """Version 0 has neither a message nor a throttle time; brokers before 4.0 speak both."""

    def text(value: str) -> bytes:
        return pack(">h", len(value)) + value.encode()

    def framed(body: bytes) -> bytes:
        return pack(">i", len(body)) + body

    def asked(*names: str) -> bytes:
        made = b"".join(text(name) + pack(">ihii", 1, 1, 0, 0) for name in names)
        last = pack(">i", 1000) + (b"\0" if version else b"")
        return framed(pack(">hhi", 19, version, 1) + text("app") + pack(">i", len(names)) + made + last)

    def told(*results: tuple[str, int, str]) -> bytes:
        made = b"".join(text(name) + pack(">h", error) + (text(message) if version else b"") for name, error, message in results)
        return framed(pack(">ii", 1, len(results)) + made)

    d = full.dialogue("bob")
    d.client(asked("apps.new", "other"))
    assert d.to_broker.endswith(asked("other"))
    d.broker(told(("other", 0, "")))
    assert d.to_client == told(("apps.new", 44, MESSAGE), ("other", 0, ""))
    d.client(asked("apps.new"))
    d.to_broker  # noqa: B018
    assert d.to_client == told(("apps.new", 44, MESSAGE))
