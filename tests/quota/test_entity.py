"""Kafka's eight levels of precedence: which limit holds, and who shares a window."""

import pytest

from quota.entity import DEFAULT, Entity, levels
from quota.limit_table import LimitTable

ORDER = [
    Entity("alice", "app"),
    Entity("alice", DEFAULT),
    Entity("alice", None),
    Entity(DEFAULT, "app"),
    Entity(DEFAULT, DEFAULT),
    Entity(DEFAULT, None),
    Entity(None, "app"),
    Entity(None, DEFAULT),
]
"""The documentation's list, the most specific first."""

OWNERS = {
    Entity("alice", "app"): Entity("alice", "app"),
    Entity("alice", DEFAULT): Entity("alice", "app"),
    Entity("alice", None): Entity("alice", None),
    Entity(DEFAULT, "app"): Entity("alice", "app"),
    Entity(DEFAULT, DEFAULT): Entity("alice", "app"),
    Entity(DEFAULT, None): Entity("alice", None),
    Entity(None, "app"): Entity("alice", "app"),
    Entity(None, DEFAULT): Entity("alice", "app"),
}


def test_the_levels_are_those_of_kafka_in_its_order():
    assert [level.key for level in levels("alice", "app")] == ORDER


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_limit_holds(first):
    limits = LimitTable({key: i for i, key in enumerate(ORDER) if i >= first})
    found = limits.find("alice", "app")
    assert found is not None
    assert found.limit == first
    assert found.owner == OWNERS[ORDER[first]]
    assert limits.of(found.owner) == first


@pytest.mark.parametrize("key", ORDER, ids=str)
@pytest.mark.parametrize(("user", "client_id"), [("bob", "app"), ("alice", "other"), ("bob", "other")])
def test_a_limit_holds_only_for_those_it_is_about_and_windows_are_shared_per_level(key, user, client_id):
    found = LimitTable({key: "limit"}).find(user, client_id)
    about = key.user in (None, DEFAULT, user) and key.client_id in (None, DEFAULT, client_id)
    assert (found is not None) == about
    if found is not None:
        same_window = found.owner == OWNERS[key]
        differs = user != "alice" or (key.client_id is not None and client_id != "app")
        assert same_window != differs


def test_without_limits_of_client_ids_those_of_users_are_left():
    limits = LimitTable(dict.fromkeys(ORDER[-2:], "limit") | {Entity("bob", DEFAULT): "bob"})
    assert limits.find("alice", "app", client_ids=False) is None
    assert limits.find("bob", "app", client_ids=False) == ("bob", Entity("bob", "app"))


def test_no_limit():
    assert LimitTable[int]({}).find("alice", "app") is None
    assert not LimitTable[int]({})
    assert LimitTable({ORDER[0]: 1}).of(Entity("alice", None)) is None


def test_how_an_entity_reads():
    assert str(Entity("alice", "app")) == "user alice, client-id app"
    assert str(Entity(None, "app")) == "client-id app"
    assert str(Entity("alice", None)) == "user alice"
