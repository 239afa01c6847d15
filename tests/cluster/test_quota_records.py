"""Quotas as records of a topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.cluster.quota_records import BadRecord, author, decode, encode
from quota.addresses import DEFAULT_ADDRESS, with_limit
from quota.entity import DEFAULT, Entity
from quota.overrides import Change

BY = {"principal": "User:admin", "client": "10.0.0.1:5", "client_id": None, "proxy": "one", "at": "2026-01-01T00:00:00.000Z"}
ADDRESSES = "connection_creation_rate"
RATE, IDS = "controller_mutations_rate", "producer_ids_rate"
ALICE = Entity("alice", None)
names = st.none() | st.sampled_from([DEFAULT, "alice", "CN=a, O=b", "ü\n\0"])
values = st.none() | st.floats(1e-9, 1e12)


@given(st.builds(Entity, names, names, st.none()).filter(any), values)
def test_a_change_comes_back(entity, value):
    record = encode(Change(entity, RATE, value), BY)
    assert decode(record.key, record.value) == Change(entity, RATE, value)
    assert author(record.headers) == BY


def test_the_same_limit_has_the_same_key_always():
    """Compaction compares bytes."""
    key = b'{"client_id":null,"quota":"producer_ids_rate","user":"alice"}'
    assert encode(Change(ALICE, IDS, 5.0), BY).key == key
    assert encode(Change(ALICE, IDS, None), {}).key == key
    assert encode(Change(ALICE, IDS, None), BY).value is None


@pytest.mark.parametrize(("entity", "name"), [(with_limit("2001:db8::1"), b"2001:db8::1"), (DEFAULT_ADDRESS, b"<default>")])
def test_the_rate_of_an_address_comes_back(entity: Entity, name: bytes) -> None:
    record = encode(Change(entity, ADDRESSES, 5.0), BY)
    assert record.key == b'{"ip":"%s","quota":"connection_creation_rate"}' % name
    assert decode(record.key, record.value) == Change(entity, ADDRESSES, 5.0)


GOOD = encode(Change(ALICE, IDS, 5.0), BY)
assert GOOD.value is not None


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        (None, b"{}", "no JSON object"),
        (b"", b"{}", "no JSON object"),
        (b"[]", b"{}", "no JSON object"),
        (b"{}", b"{}", "user, client_id and quota"),
        (GOOD.key.replace(b'"alice"', b"5"), GOOD.value, "not text"),
        (GOOD.key.replace(b'"alice"', b'""'), GOOD.value, "empty"),
        (GOOD.key.replace(b'"alice"', b"null"), GOOD.value, "neither"),
        (GOOD.key.replace(IDS.encode(), b"new_rate"), GOOD.value, "knows no quota 'new_rate'"),
        (GOOD.key.replace(b":null", b':"app"'), GOOD.value, "users and the default user only"),
        (GOOD.key, b"", "no JSON object"),
        (GOOD.key, b"5", "no JSON object"),
        (GOOD.key, b"{", "no JSON object"),
        (GOOD.key, b'{"value":5}', "not of version 1"),
        (GOOD.key, b'{"v":1}', "no number"),
        (GOOD.key, b'{"v":1,"value":true}', "no number"),
        (GOOD.key, b'{"v":1,"value":0}', "out of range"),
    ],
)
def test_what_cannot_be_used_says_why(key, value, why):
    with pytest.raises(BadRecord, match=why):
        decode(key, value)


@given(st.binary(max_size=200), st.none() | st.binary(max_size=50))
def test_anything_else_is_bad(key, value):
    with pytest.raises(BadRecord):
        decode(key, value)


def test_nobody_knows_who_it_was():
    assert author([]) == {}
    assert author([("by", b"\xff")]) == {}
    assert author([("other", b"{}")]) == {}
    with pytest.raises(BadRecord, match=r"^.{,500}$"):
        decode(b"x" * 10_000, b"")
