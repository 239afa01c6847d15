"""Which clients are told of a throttle, by API and version: a table to be checked against the protocol, and every row of it tried
with a client that is over its `request_rate` (KIP-124, KIP-219). A client that is not told is muted all the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import timedelta
from random import Random

import pytest
from kio.index import load_response_schema

from proxy.session.session import State
from tests.apis.topic_frames import HEARTBEAT
from tests.messages import api_key_map, batch, produce, read_response, request, response, versions_of
from tests.support import ANYBODY, World

FIRST = {
    "produce": 1,
    "fetch": 1,
    "list_offsets": 2,
    "metadata": 3,
    "offset_commit": 3,
    "offset_fetch": 3,
    "find_coordinator": 1,
    "join_group": 2,
    "heartbeat": 1,
    "leave_group": 1,
    "sync_group": 1,
    "describe_groups": 1,
    "list_groups": 1,
    "api_versions": 1,
    "create_topics": 2,
    "delete_topics": 1,
    "offset_for_leader_epoch": 2,
}
"""API → the first version whose answers have `throttle_time_ms`; of all others every version has it."""
NEVER = {
    *("sasl_handshake", "sasl_authenticate", "write_txn_markers", "vote", "begin_quorum_epoch", "end_quorum_epoch"),
    *("describe_quorum", "envelope", "initialize_share_group_state", "read_share_group_state", "write_share_group_state"),
    *("delete_share_group_state", "read_share_group_state_summary"),
}
"""APIs whose answers have no such field."""
BEHIND_OTHERS = {
    *("api_versions", "create_delegation_token", "renew_delegation_token", "expire_delegation_token"),
    *("describe_delegation_token", "offset_delete"),
}
"""APIs whose answers have the field behind others, where the proxy does not look for it: their clients are muted and not told."""
FREE = {"sasl_handshake", "sasl_authenticate"}
"""A login counts towards no rate."""
OWN = {"describe_client_quotas", "alter_client_quotas"}
"""The proxy asks the broker in its own words for them (tests/apis/test_client_quotas.py)."""


def rows() -> Iterator[tuple[int, str, int]]:
    """Every API and version that kio knows."""
    for key, name in sorted(api_key_map.items()):
        for version in sorted(versions_of(key)):
            yield key, name, version


def has_field(name: str, version: int) -> bool:
    """What the table says."""
    return name not in NEVER and version >= FIRST.get(name, 0)


@pytest.mark.parametrize(("key", "name", "version"), list(rows()))
def test_the_table_is_that_of_the_protocol(key: int, name: str, version: int) -> None:
    fields = {field.name for field in dataclasses.fields(load_response_schema(key, version))}
    assert has_field(name, version) == ("throttle_time" in fields)


@pytest.mark.parametrize(("key", "name", "version"), [row for row in rows() if row[1] not in FREE | OWN])
def test_a_client_over_its_rate_is_told_where_there_is_a_field_and_muted_in_any_case(
    world: Callable[..., World], key: int, name: str, version: int
) -> None:
    d = world(requests={ANYBODY: 0.5}, knows_nothing=True).dialogue()
    calm = response(12, 4, 77, Random(5), throttle_time=timedelta(0))
    for _ in range(5):
        d.client(HEARTBEAT).broker(calm)
    assert d.to_broker == HEARTBEAT * 5
    assert d.to_client == calm * 5
    if name == "api_versions":  # the first of a connection is free
        d.client(request(18, 0, 9)).broker(response(18, 0, 9))
        assert d.to_broker
        assert d.to_client
    frame = produce(version, 1, batch()) if name == "produce" else request(key, version, 1)
    given = {"throttle_time": timedelta(0)} if has_field(name, version) else {}
    d.client(frame).broker(response(key, version, 1, **given))
    assert d.to_broker
    told = read_response(key, version, d.to_client)
    assert d.session.state is State.MUTED
    if has_field(name, version) and name not in BEHIND_OTHERS:
        assert told.throttle_time == timedelta(seconds=2)
    else:
        assert getattr(told, "throttle_time", timedelta(0)) == timedelta(0)
