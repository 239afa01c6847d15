"""Describing and altering quotas: which part of a request goes where, and how the two answers come together."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_request_schema, load_response_schema

from proxy.session.dynamic_quotas import Alteration, Refusal
from proxy.session.requester import Requester
from proxy.session.session import State
from proxy.wire.client_quotas import Component, Filter
from quota.addresses import DEFAULT_ADDRESS, with_limit
from quota.entity import DEFAULT, Entity
from quota.keys import Values
from quota.overrides import Change, Table, changed
from tests.apis.topic_frames import BEAT, HEARTBEAT
from tests.messages import make, part_of, read_request, read_response, request, response
from tests.properties import examples
from tests.support import ALICE, Dialogue, World

CONNECTIONS = "connection_creation_rate"
RATE, BURST, IDS, THEIRS = "controller_mutations_rate", "controller_mutations_burst", "producer_ids_rate", "consumer_byte_rate"
USER, CLIENT = "user", "client-id"


class DynamicQuotas:
    """Takes every change, when it is told to."""

    def __init__(self) -> None:
        self.table: Table = {}
        self.refusal: Refusal | None = None
        self.at_once = False
        self.asked: list[tuple[Sequence[Change], Requester, Alteration]] = []

    def may_alter(self, user: str) -> bool:
        return user == "admin"

    def closed(self) -> Refusal | None:
        return self.refusal

    def outlook(self, changes: Sequence[Change]) -> Mapping[Entity, Values]:
        return changed(self.table, changes)

    def alter(self, changes: Sequence[Change], by: Requester) -> Alteration:
        alteration = Alteration()
        self.asked.append((changes, by, alteration))
        if self.at_once:
            self.done()
        return alteration

    def done(self, refusal: Refusal | None = None, now: float = 0.0) -> None:
        changes, _, alteration = self.asked[-1]
        alteration.refusal = refusal
        if refusal is None:
            self.table = changed(self.table, changes)
        alteration.finish(now)


@pytest.fixture
def dynamic_quotas() -> DynamicQuotas:
    return DynamicQuotas()


@pytest.fixture
def admin(dynamic_quotas: DynamicQuotas) -> Iterator[Dialogue]:
    world = World(dynamic_quotas=dynamic_quotas)
    yield world.dialogue("admin")
    world.nothing_left()


Ops = dict[str, float | None]
Who = tuple[tuple[str, str | None], ...]


def alter(number: int, *entries: tuple[Who, Ops], version: int = 1, validate_only: bool = False) -> bytes:
    schema = load_request_schema(49, version)
    entry = part_of(schema, "entries")
    entity, op = part_of(entry, "entity"), part_of(entry, "ops")
    made = tuple(
        entry(
            entity=tuple(entity(entity_type=kind, entity_name=name) for kind, name in who),
            ops=tuple(op(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()),
        )
        for who, ops in entries
    )
    return request(49, version, number, entries=made, validate_only=validate_only)


def altered(number: int, *entries: tuple[Who, int, str | None], version: int = 1, throttle_ms: int = 0) -> bytes:
    schema = load_response_schema(49, version)
    entry = part_of(schema, "entries")
    entity = part_of(entry, "entity")
    made = tuple(
        make(
            entry,
            Random(1),
            error_code=code,
            error_message=message,
            entity=tuple(entity(entity_type=kind, entity_name=name) for kind, name in who),
        )
        for who, code, message in entries
    )
    return response(49, version, number, entries=made, throttle_time=datetime.timedelta(milliseconds=throttle_ms))


def results(frame: bytes, version: int = 1) -> list[tuple[Who, int]]:
    answer = read_response(49, version, frame)
    return [(tuple((e.entity_type, e.entity_name) for e in one.entity), int(one.error_code)) for one in answer.entries]


def message(frame: bytes, number: int = 0) -> str:
    return str(read_response(49, 1, frame).entries[number].error_message)


A, B = ((USER, "alice"),), ((USER, "bob"),)


@pytest.mark.parametrize("version", [0, 1])
def test_own_limits_are_answered_once_they_are_written(admin: Dialogue, dynamic_quotas: DynamicQuotas, version: int) -> None:
    admin.client(alter(1, (A, {IDS: 5.0, RATE: None}), version=version) + HEARTBEAT)
    assert admin.to_broker == b""
    assert admin.to_client == b""
    assert not admin.port.reading, "nothing behind it is looked at before"
    ((changes, by, _),) = dynamic_quotas.asked
    assert list(changes) == [Change(ALICE, IDS, 5.0), Change(ALICE, RATE, None)]
    assert (by.principal, by.client_address) == ("User:admin", "10.0.0.1:1234")
    dynamic_quotas.done(now=3.0)
    assert results(admin.to_client, version) == [(A, 0)]
    assert admin.to_broker == HEARTBEAT
    admin.broker(BEAT)
    assert admin.to_client == BEAT
    assert len(dynamic_quotas.asked) == 1


def test_what_is_done_at_once_is_answered_at_once(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    dynamic_quotas.at_once = True
    admin.client(alter(1, (A, {IDS: 5.0})))
    assert results(admin.to_client) == [(A, 0)]
    admin.client(alter(2, (A, {IDS: 6.0})))
    assert results(admin.to_client) == [(A, 0)], "the next is not taken for the one before"
    assert dynamic_quotas.table == {ALICE: {IDS: 6.0}}


def test_what_is_about_the_brokers_alone_passes_as_it_is(admin: Dialogue) -> None:
    frame, answer = alter(1, (A, {THEIRS: 5.0})), altered(1, (A, 0, None))
    admin.client(frame).broker(answer)
    assert admin.to_broker == frame
    assert admin.to_client == answer


def test_both_parts_go_where_they_belong(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(7, (A, {IDS: 5.0, THEIRS: 6.0}), (B, {THEIRS: 7.0}), (((USER, None),), {RATE: 8.0})))
    asked = read_request(49, 1, admin.to_broker)
    assert [[(op.key, op.value) for op in entry.ops] for entry in asked.entries] == [[(THEIRS, 6.0)], [(THEIRS, 7.0)]]
    assert not dynamic_quotas.asked, "the broker's verdict comes first"
    admin.broker(altered(7, (B, 42, "no"), (A, 0, None), throttle_ms=20))
    assert admin.to_client == b""
    assert [list(changes) for changes, _, _ in dynamic_quotas.asked] == [
        [Change(ALICE, IDS, 5.0), Change(Entity(DEFAULT, None), RATE, 8.0)]
    ]
    dynamic_quotas.done()
    frame = admin.to_client
    assert results(frame) == [(A, 0), (B, 42), (((USER, None),), 0)]
    assert message(frame, 1) == "no"
    assert read_response(49, 1, frame).throttle_time == datetime.timedelta(milliseconds=20)


def test_what_the_broker_refuses_is_not_done_here_either(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(7, (A, {IDS: 5.0, THEIRS: -6.0})))
    assert admin.to_broker
    admin.broker(altered(7, (A, 31, "not you")))
    assert results(admin.to_client) == [(A, 31)]
    assert not dynamic_quotas.asked


def test_a_broker_that_takes_its_time_is_waited_for(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(7, (A, {IDS: 5.0, THEIRS: 6.0})) + HEARTBEAT)
    assert admin.to_broker
    admin.wake()
    assert admin.port.wake is None
    assert admin.to_client == admin.to_broker == b""
    assert not dynamic_quotas.asked
    admin.broker(altered(7, (A, 0, None)))
    dynamic_quotas.done()
    assert results(admin.to_client) == [(A, 0)]
    assert admin.to_broker == HEARTBEAT
    admin.broker(BEAT)
    assert admin.to_client == BEAT


def test_an_answer_of_the_broker_that_nobody_understands(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(7, (A, {IDS: 5.0, THEIRS: 6.0}), (B, {IDS: 1.0})))
    assert admin.to_broker
    frame = altered(7, (A, 0, None))
    admin.broker(frame[:12] + b"\xff" * (len(frame) - 12))
    assert [list(changes) for changes, _, _ in dynamic_quotas.asked] == [[Change(Entity("bob", None), IDS, 1.0)]]
    dynamic_quotas.done()
    assert results(admin.to_client) == [(A, -1), (B, 0)]


def test_a_write_that_fails_is_told(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(7, (A, {IDS: 5.0}), (B, {IDS: 0.0})))
    dynamic_quotas.done(Refusal(8, "the topic is away"))
    frame = admin.to_client
    assert results(frame) == [(A, 8), (B, 42)]
    assert message(frame) == "the topic is away"


def test_only_validating(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(1, (A, {IDS: 5.0}), (B, {IDS: -1.0}), validate_only=True))
    assert results(admin.to_client) == [(A, 0), (B, 42)]
    admin.client(alter(2, (A, {IDS: 5.0, THEIRS: 6.0}), validate_only=True))
    assert read_request(49, 1, admin.to_broker).validate_only
    admin.broker(altered(2, (A, 0, None)))
    assert results(admin.to_client) == [(A, 0)]
    assert not dynamic_quotas.asked


def test_who_is_no_admin_alters_nothing_of_the_proxys(dynamic_quotas: DynamicQuotas) -> None:
    world = World(dynamic_quotas=dynamic_quotas)
    bob = world.dialogue("bob").client(alter(1, (A, {IDS: 5.0, THEIRS: 1.0}), (B, {THEIRS: 1.0})))
    assert [len(entry.ops) for entry in read_request(49, 1, bob.to_broker).entries] == [1]
    bob.broker(altered(1, (B, 0, None)))
    frame = bob.to_client
    assert results(frame) == [(A, 31), (B, 0)]
    assert "User:bob may not alter producer_ids_rate" in message(frame)


@pytest.mark.parametrize("refusal", [Refusal(42, "off"), Refusal(8, "away")])
def test_a_desk_that_is_closed_says_why(admin: Dialogue, dynamic_quotas: DynamicQuotas, refusal: Refusal) -> None:
    dynamic_quotas.refusal = refusal
    admin.client(alter(1, (A, {IDS: 5.0})))
    frame = admin.to_client
    assert results(frame) == [(A, refusal.error)]
    assert message(frame) == refusal.message


@pytest.mark.parametrize(
    ("who", "ops", "said"),
    [
        (((USER, "a"), (USER, "b")), {IDS: 1.0}, "user stands twice"),
        ((("ip", "1.1.1.1"),), {RATE: 1.0}, "is not for addresses; these have connection_creation_rate"),
        ((("ip", "1.1.1.1"), (USER, "a")), {CONNECTIONS: 1.0}, "an ip alone"),
        ((("ip", "localhost"),), {CONNECTIONS: 1.0}, "'localhost' is not an IP address; names of hosts are not looked up"),
        ((("ip", "10.0.0.0/8"),), {CONNECTIONS: 1.0}, "is not an IP address"),
        ((("ip", None),), {CONNECTIONS: 0.0}, "must be more than 0 and at most 2.14748e+09 connections/s"),
        ((("ip", None),), {CONNECTIONS: 2.5}, "is not a whole number"),
        (A, {CONNECTIONS: 5.0}, "is for addresses only"),
        ((), {RATE: 1.0}, "neither a user nor a client-id"),
        (((USER, ""),), {RATE: 1.0}, "is empty"),
        (((USER, DEFAULT),), {RATE: 1.0}, "is not a name"),
        (((CLIENT, "x"),), {IDS: 1.0}, "for users and the default user only"),
        (A, {RATE: 9.0, BURST: 5.0}, "at least 9"),
        (A, {"cluster_producer_byte_rate": 0.5}, "not a whole number"),
    ],
)
def test_what_is_wrong_is_said(admin: Dialogue, dynamic_quotas: DynamicQuotas, who: Who, ops: Ops, said: str) -> None:
    admin.client(alter(1, (who, {**ops, THEIRS: 5.0})))
    frame = admin.to_client
    assert results(frame) == [(who, 42)]
    assert said in message(frame)
    assert not dynamic_quotas.asked


def test_an_entity_that_stands_twice_is_refused_twice(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    pair = ((USER, "a"), (CLIENT, "c"))
    admin.client(alter(1, (pair, {RATE: 1.0}), (pair[::-1], {RATE: 2.0})))
    assert results(admin.to_client) == [(pair, 42), (pair[::-1], 42)]
    assert not dynamic_quotas.asked


def test_the_rate_that_a_burst_needs_may_stand_already_and_may_not_go(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    dynamic_quotas.table, dynamic_quotas.at_once = {ALICE: {RATE: 5.0}}, True
    admin.client(alter(1, (A, {BURST: 50.0})))
    assert results(admin.to_client) == [(A, 0)]
    admin.client(alter(2, (A, {RATE: None})))
    assert results(admin.to_client) == [(A, 42)]
    admin.client(alter(3, (A, {RATE: None, BURST: None})))
    assert results(admin.to_client) == [(A, 0)]
    assert dynamic_quotas.table == {}


def test_a_client_that_went_away_is_altered_for_all_the_same(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(1, (A, {IDS: 5.0})) + HEARTBEAT)
    admin.session.client_lost()
    dynamic_quotas.done()
    assert dynamic_quotas.table == {ALICE: {IDS: 5.0}}
    assert admin.to_broker == HEARTBEAT, "what it sent is still passed on"
    admin.broker(BEAT)
    assert admin.session.state is State.CLOSED
    assert admin.to_client == b""


def test_a_session_that_ended_meanwhile_is_left_alone(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(1, (A, {IDS: 5.0})))
    admin.session.broker_lost("gone")
    dynamic_quotas.done()
    assert admin.session.state is State.CLOSED
    assert admin.port.closes == 1


def test_a_proxy_that_stops_answers_first(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    admin.client(alter(1, (A, {IDS: 5.0})))
    admin.session.drain()
    assert admin.port.closes == 0
    dynamic_quotas.done()
    assert results(admin.to_client) == [(A, 0)]
    assert admin.port.closes == 1


def test_what_is_not_understood_is_for_the_broker_to_judge(admin: Dialogue) -> None:
    for key in (48, 49):
        frame = request(key, 1, 5, **({"entries": ()} if key == 49 else {"components": ()}))
        broken = frame[:-1] + b"\x01\x63\x00"  # an unknown tagged field
        broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
        admin.client(broken)
        assert admin.to_broker == broken
        answer = altered(5) if key == 49 else described(5, {})
        admin.broker(answer)
        assert admin.to_client == answer


# ---------------------------------------------------------------------- describing


def describe(number: int, *components: tuple[str, int, str | None], strict: bool = False, version: int = 1) -> bytes:
    part = part_of(load_request_schema(48, version), "components")
    made = tuple(part(entity_type=kind, match_type=how, match=name) for kind, how, name in components)
    return request(48, version, number, components=made, strict=strict)


def described(number: int, found: dict[Who, dict[str, float]] | None, version: int = 1, error: int = 0) -> bytes:
    schema = load_response_schema(48, version)
    entry = part_of(schema, "entries")
    entity, value = part_of(entry, "entity"), part_of(entry, "values")
    made = None
    if found is not None:
        made = tuple(
            entry(
                entity=tuple(entity(entity_type=kind, entity_name=name) for kind, name in who),
                values=tuple(value(key=key, value=number) for key, number in values.items()),
            )
            for who, values in found.items()
        )
    return response(48, version, number, error_code=error, error_message=None, entries=made)


def seen(frame: bytes, version: int = 1) -> dict[Who, dict[str, float]]:
    entries = read_response(48, version, frame).entries
    found = {
        tuple((e.entity_type, e.entity_name) for e in one.entity): {value.key: value.value for value in one.values}
        for one in entries
    }
    assert len(found) == len(entries), "nobody stands twice"
    return found


@pytest.mark.parametrize("version", [0, 1])
def test_both_are_described(admin: Dialogue, dynamic_quotas: DynamicQuotas, version: int) -> None:
    dynamic_quotas.table = {ALICE: {RATE: 5.0}, Entity("bob", DEFAULT): {RATE: 6.0}, Entity(None, "app"): {RATE: 7.0}}
    frame = describe(3, version=version)
    admin.client(frame)
    assert admin.to_broker == frame
    other = ((USER, "eve"),)
    admin.broker(described(3, {other: {THEIRS: 1.0}, A: {THEIRS: 2.0}}, version))
    bob, app = ((USER, "bob"), (CLIENT, None)), ((CLIENT, "app"),)
    expected = {other: {THEIRS: 1.0}, A: {THEIRS: 2.0, RATE: 5.0}, bob: {RATE: 6.0}, app: {RATE: 7.0}}
    assert seen(admin.to_client, version) == expected


def test_parts_of_an_entity_in_another_order_are_the_same_entity(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    dynamic_quotas.table = {Entity("a", "c"): {RATE: 5.0}}
    reverse = ((CLIENT, "c"), (USER, "a"))
    admin.client(describe(3)).broker(described(3, {reverse: {THEIRS: 1.0}}))
    assert admin.to_broker
    assert seen(admin.to_client) == {reverse: {THEIRS: 1.0, RATE: 5.0}}


@pytest.mark.parametrize("error", [31, 29])
def test_who_may_not_see_the_brokers_sees_none(admin: Dialogue, dynamic_quotas: DynamicQuotas, error: int) -> None:
    dynamic_quotas.table = {ALICE: {RATE: 5.0}}
    answer = described(3, None, error=error)
    admin.client(describe(3)).broker(answer)
    assert admin.to_broker
    assert admin.to_client == answer


def test_an_answer_with_nothing_to_add_stays_as_it_is(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    dynamic_quotas.table = {ALICE: {RATE: 5.0}}
    answer = described(3, {B: {THEIRS: 1.0}})
    admin.client(describe(3, (USER, 0, "bob"))).broker(answer)
    assert admin.to_broker
    assert admin.to_client == answer


names = st.sampled_from([None, "a", "b"])
whos = st.dictionaries(st.sampled_from([USER, CLIENT]), names, min_size=1).map(lambda parts: tuple(parts.items()))
components = st.lists(
    st.tuples(st.sampled_from([USER, CLIENT]), st.integers(0, 2), st.sampled_from(["a", "b"])), max_size=2, unique_by=lambda c: c[0]
)


@examples(300)
@given(whos, components, st.booleans())
def test_filters_are_those_of_kafka(who: Any, asked: Any, strict: bool) -> None:
    """Compared with the words of KIP-546, one after the other."""
    parts = dict(who)
    expected = not strict or set(parts) <= {kind for kind, _, _ in asked}
    for kind, how, name in asked:
        if kind not in parts:
            expected = False
        elif how == 0:
            expected = expected and parts[kind] == name
        elif how == 1:
            expected = expected and parts[kind] is None
    assert Filter(tuple(Component(*one) for one in asked), strict).matches(who) == expected


def test_a_large_request_of_somebody_who_may_not_alter_quotas_is_the_brokers_alone(world, dynamic_quotas: DynamicQuotas) -> None:
    """Reading it would keep the others waiting, for nothing."""
    d = world(dynamic_quotas=dynamic_quotas).dialogue("mallory")
    many = alter(1, *(((("user", f"u{i}"),), {"controller_mutations_rate": 1.0}) for i in range(500)))
    d.client(many)
    assert d.to_broker == many
    d.client(alter(2, ((("user", "u"),), {"controller_mutations_rate": 1.0})))
    assert d.to_broker == b""


MANY = [((USER, f"user-{i}"),) for i in range(1000)]


def test_very_many_alterations_are_looked_at_in_several_turns(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    dynamic_quotas.at_once = True
    other = admin.world.dialogue("bob")
    admin.port.out_of_time = True
    admin.client(alter(1, *((who, {IDS: 5.0, THEIRS: 7.0}) for who in MANY)))
    assert admin.port.wants_turn
    other.client(HEARTBEAT)
    assert other.to_broker == HEARTBEAT
    assert admin.turns() > 20
    entries = read_request(49, 1, admin.to_broker).entries
    assert [(e.entity[0].entity_name, e.ops[0].key) for e in entries] == [(who[0][1], THEIRS) for who in MANY]
    admin.broker(altered(1, *((who, 0, None) for who in MANY)))
    assert admin.turns() > 20
    assert results(admin.to_client) == [(who, 0) for who in MANY]
    assert len(dynamic_quotas.table) == len(MANY)
    assert admin.session.idle


def test_very_many_limits_are_described_in_several_turns(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    dynamic_quotas.table = {Entity(f"user-{i}", None): {IDS: 5.0} for i in range(1000)}
    admin.port.out_of_time = True
    asked = request(48, 1, 7, components=(), strict=False)
    admin.client(asked)
    assert admin.to_broker == asked
    admin.broker(response(48, 1, 7, error_code=0, error_message=None, entries=()))
    assert admin.to_client == b""
    assert admin.turns() > 20
    assert len(read_response(48, 1, admin.to_client).entries) == 1000


def test_the_rate_of_an_address_never_reaches_a_broker(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    """Brokers see the address of the proxy alone: there, the rate of the default address would be one for all clients together."""
    dynamic_quotas.at_once = True
    v6, default = (("ip", "2001:DB8::1"),), (("ip", None),)
    admin.client(alter(1, (v6, {CONNECTIONS: 5.0}), (default, {CONNECTIONS: 7.0})))
    assert admin.to_broker == b""
    assert results(admin.to_client) == [(v6, 0), (default, 0)]
    assert dynamic_quotas.table == {with_limit("2001:db8::1"): {CONNECTIONS: 5.0}, DEFAULT_ADDRESS: {CONNECTIONS: 7.0}}
    asked = describe(2, ("ip", 0, "2001:0db8::1"))
    admin.client(asked)
    assert admin.to_broker == asked
    admin.broker(described(2, {}))
    assert seen(admin.to_client) == {(("ip", "2001:db8::1"),): {CONNECTIONS: 5.0}}
    asked = describe(3, ("ip", 2, None))
    admin.client(asked)
    assert admin.to_broker == asked
    admin.broker(described(3, {v6: {CONNECTIONS: 1.0}}))
    assert seen(admin.to_client)[("ip", None),] == {CONNECTIONS: 7.0}


@pytest.mark.parametrize(
    ("ops", "said"),
    [
        ({"max_topics": 0.0}, "max_topics 0 is out of range"),
        ({"stored_bytes_hard": -1.0}, "stored_bytes_hard -1 is out of range"),
        ({"max_partitions": 1.5}, "max_partitions 1.5 is not a whole number"),
        ({"stored_bytes_soft": 5.0}, "`stored_bytes_soft` needs `stored_bytes_hard` beside it"),
        ({"stored_bytes_soft": 5.0, "stored_bytes_hard": 4.0}, "slowing begins before the stop"),
        ({"controller_mutations_rate": 1.0}, "controller_mutations_rate is not for tenants"),
        ({"max_topic": 5.0}, "max_topic is no limit of tenants; max_topics is probably meant"),
        ({"producer_byte_rate": 5.0}, "producer_byte_rate is no limit of tenants; cluster_producer_byte_rate is probably meant"),
        ({"colour": None}, "colour is no limit of tenants."),
        ({"users.bob": 2.0}, "users.bob has the value 1 where it is a member"),
        ({"topic_prefixes.": 1.0}, "topic_prefixes. names nobody: a member of `topic_prefixes` has at least one character"),
    ],
)
def test_what_a_tenant_cannot_have_never_reaches_a_broker(
    admin: Dialogue, dynamic_quotas: DynamicQuotas, ops: Ops, said: str
) -> None:
    admin.client(alter(1, ((("tenant", "apps"),), ops)))
    frame = admin.to_client
    assert results(frame) == [((("tenant", "apps"),), 42)]
    assert said in message(frame)
    assert (admin.to_broker, dynamic_quotas.asked) == (b"", [])


def test_a_tenant_with_the_name_of_an_address_is_another_entity(admin: Dialogue, dynamic_quotas: DynamicQuotas) -> None:
    dynamic_quotas.at_once = True
    address, tenant = (("ip", "10.0.0.1"),), (("tenant", "10.0.0.1"),)
    admin.client(alter(1, (address, {CONNECTIONS: 5.0}), (tenant, {"cluster_request_rate": 7.0})))
    assert results(admin.to_client) == [(address, 0), (tenant, 0)]
    assert sorted(map(list, dynamic_quotas.table.values())) == [["cluster_request_rate"], [CONNECTIONS]]
