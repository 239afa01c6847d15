"""Two layers of limits: what can be a limit, which of two holds, what a change changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.addresses import AddressEntity, entity_of
from quota.catalogue import DEPRECATED, ENTITY_KEYS, KEYS
from quota.entity import DEFAULT, Entity
from quota.keys import MAX_NAME, named, unit_of, wrong_entity, wrong_together, wrong_value
from quota.overrides import Change, Difference, changed, differences, merged

RATE, BURST, IDS = "controller_mutations_rate", "controller_mutations_burst", "producer_ids_rate"
ALICE, BOB, APP = Entity("alice", None), Entity("bob", None), Entity(None, "app")

entities = st.sampled_from([ALICE, BOB, APP, Entity("alice", "app"), Entity(DEFAULT, None)])
changes = st.lists(st.builds(Change, entities, st.sampled_from([RATE, BURST, IDS]), st.none() | st.integers(1, 3).map(float)))


def test_the_dynamic_layer_wins_limit_by_limit():
    file = {ALICE: {RATE: 5.0, IDS: 50.0}, BOB: {RATE: 1.0}}
    assert merged(file, {ALICE: {RATE: 7.0}, APP: {RATE: 2.0}}) == {
        ALICE: {RATE: 7.0, IDS: 50.0},
        BOB: {RATE: 1.0},
        APP: {RATE: 2.0},
    }
    assert merged(file, {}) == file
    assert merged({}, {ALICE: {IDS: 1.0}}) == {ALICE: {IDS: 1.0}}


@pytest.mark.parametrize("file", [{}, {ALICE: {RATE: 600.0}}], ids=["no rate", "a rate above it"])
def test_a_burst_that_fits_no_rate_is_left_out(file):
    assert merged(file, {ALICE: {BURST: 500.0}}) == file
    assert merged({ALICE: {RATE: 5.0}}, {ALICE: {BURST: 500.0}}) == {ALICE: {RATE: 5.0, BURST: 500.0}}


@given(changes)
def test_changes_one_by_one_or_at_once(made):
    table = {}
    for one in made:
        table = changed(table, [one])
    assert table == changed({}, made)
    for entity, values in table.items():
        assert values
        for key, value in values.items():
            assert [one.value for one in made if (one.entity, one.key) == (entity, key)][-1] == value


@given(changes, changes)
def test_differences_lead_from_one_table_to_the_other(before, after):
    old, new = changed({}, before), changed({}, after)
    found = list(differences(old, new))
    assert changed(old, [Change(one.entity, one.key, one.new) for one in found]) == new
    assert all(one.old != one.new for one in found)
    assert not list(differences(old, old))


def test_a_change_leaves_the_table_that_others_read_as_it_is():
    table = {ALICE: {RATE: 5.0}}
    assert changed(table, [Change(ALICE, RATE, None), Change(BOB, IDS, 3.0)]) == {BOB: {IDS: 3.0}}
    assert table == {ALICE: {RATE: 5.0}}
    assert list(differences(table, {})) == [Difference(ALICE, RATE, 5.0, None)]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({}, None),
        ({RATE: 5}, None),
        ({RATE: 5, BURST: 5}, None),
        ({BURST: 5}, "needs `controller_mutations_rate`"),
        ({RATE: 5, BURST: 4.9}, "at least 5"),
        ({RATE: 1e-3, BURST: 1e9}, "at most 1e+06"),
    ],
)
def test_limits_beside_each_other(values, wrong):
    said = wrong_together(values)
    assert (said is None) if wrong is None else (said is not None and wrong in said)


@pytest.mark.parametrize("value", [0, -1, 2e12, float("inf"), float("nan")])
def test_values_out_of_range(value):
    assert "out of range" in str(wrong_value(ALICE, RATE, value))


def test_who_can_have_which_limit():
    assert wrong_value(ALICE, IDS, 5) is None
    assert wrong_value(Entity(DEFAULT, None), IDS, 5) is None
    for entity in (APP, Entity("alice", "app"), Entity("alice", DEFAULT)):
        assert "users and the default user only" in str(wrong_value(entity, IDS, 5))
        assert wrong_value(entity, RATE, 5) is None
    for byte_rate in ("cluster_producer_byte_rate", "cluster_consumer_byte_rate"):
        assert wrong_value(APP, byte_rate, 1 << 50) is None
        assert "out of range" in str(wrong_value(APP, byte_rate, 1 << 51))
        assert "not a whole number" in str(wrong_value(APP, byte_rate, 1.5))
    assert wrong_value(APP, "cluster_request_rate", 0.5) is None


def test_who_can_be_called_how():
    assert wrong_entity(ALICE) is None
    assert wrong_entity(Entity("ä" * (MAX_NAME // 2), DEFAULT)) is None
    assert wrong_entity(Entity(None, None)) is not None
    assert wrong_entity(Entity("", None)) is not None
    assert wrong_entity(Entity(None, "ä" * MAX_NAME)) is not None
    assert named(Entity("alice", DEFAULT)) == "user alice, default client-id"
    assert wrong_entity(entity_of("10.0.0.1")) is None
    assert "not an IP address" in str(wrong_entity(AddressEntity(None, None, "host")))
    assert wrong_entity(AddressEntity(None, None, "::FFFF")) == "the address ::FFFF is spelled ::ffff"
    assert (unit_of(RATE), unit_of("of somebody else")) == (KEYS[RATE].unit, "")


def test_no_key_of_the_proxy_is_one_of_a_broker():
    brokers = {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
        "connection_creation_rate",
    }
    assert not brokers & set(ENTITY_KEYS)
    assert brokers & set(KEYS) == {"connection_creation_rate"}, "which brokers cannot hold behind a proxy"
    assert not set(DEPRECATED) & set(KEYS)
    assert len(DEPRECATED) == sum(name.startswith("cluster_") for name in KEYS)
