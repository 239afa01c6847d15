"""No client learns where a broker really is, and learns everything else."""

import dataclasses
from random import Random
from typing import Any

import pytest

from proxy.wire.addresses import holds_addresses, patch_addresses
from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import response_layout
from proxy.wire.layout import layout_of
from tests.messages import REAL_HOST, api_versions, read_response, response, schemas

WITH_ADDRESSES = [(key, version) for key, version in api_versions() if holds_addresses(key, version)]
CLIENTS_OWN = {88, 89}
"""StreamsGroupHeartbeat and -Describe: addresses that clients gave of themselves."""
OF_CONTROLLERS = {52, 53, 54, 55, 59, 82}
"""Vote, Begin- and EndQuorumEpoch, DescribeQuorum, FetchSnapshot, UpdateRaftVoter: their nodes are controllers, for which
the proxy has one address only."""


def shown(node_id: int | None) -> tuple[str, int]:
    return "proxy.example.com", 9192 if node_id is None else 10_000 + node_id % 1000


def masked(entity: Any, key: int) -> Any:
    """The entity as it should look: every host and port replaced by what is shown for the node beside it."""
    if isinstance(entity, tuple):
        return tuple(masked(part, key) for part in entity)
    if not dataclasses.is_dataclass(entity):
        return entity
    names = {f.name for f in dataclasses.fields(entity)}
    node_id = next((getattr(entity, name) for name in ("node_id", "broker_id") if name in names), None)
    changes = {name: masked(getattr(entity, name), key) for name in names}
    if "host" in names and entity.host:
        changes["host"], changes["port"] = shown(None if key in OF_CONTROLLERS else node_id)
    return dataclasses.replace(entity, **changes)  # type: ignore[type-var]


def test_every_response_that_can_hold_an_address_is_known():
    found = {(key, version) for kind, key, version, schema in schemas() if kind == "response" and layout_of(schema).holds_endpoint}
    assert {at for at in found if at[0] not in CLIENTS_OWN} == set(WITH_ADDRESSES)


@pytest.mark.parametrize(("key", "version"), WITH_ADDRESSES)
def test_no_real_host_survives_and_everything_else_does(key, version):
    hosts = 0
    for seed in range(12):
        frame = response(key, version, 77, chance=Random(seed))
        hosts += REAL_HOST.encode() in frame
        pieces = patch_addresses(key, version, frame, shown)
        patched = frame if pieces is None else b"".join(pieces)
        assert REAL_HOST.encode() not in patched
        assert patched[4:8] == frame[4:8]
        assert read_response(key, version, patched) == masked(read_response(key, version, frame), key)
        body = response_body(patched, 0, len(patched), key, version)
        assert response_layout(key, version).skip(patched, body, len(patched)) == len(patched), "kio does not look at sizes of tags"
    assert hosts, "no host in any of the messages: nothing was tested"


@pytest.mark.parametrize(("key", "version"), [at for at in WITH_ADDRESSES if at[0] not in (10, 78, 79, 82)])
def test_a_response_without_addresses_is_left_as_it_is(key, version):
    names = {"brokers": (), "node_endpoints": (), "nodes": ()}
    fields = {f.name for f in dataclasses.fields(type(read_response(key, version, response(key, version))))}
    frame = response(key, version, **{name: value for name, value in names.items() if name in fields})
    assert patch_addresses(key, version, frame, shown) is None


def test_a_coordinator_that_was_not_found_names_no_broker():
    frame = response(10, 3, node_id=-1, host="", port=-1)
    assert patch_addresses(10, 3, frame, shown) is None


def test_unknown_tagged_fields_beside_addresses_survive():
    frame = response(0, 10, responses=(), node_endpoints=())
    assert frame[-1] == 0
    node = b"\0\0\0\7" + b"\x0areal-host" + b"\0\0\x23\x84" + b"\0" + b"\1\x05\2xy"  # its own unknown tag 5
    tags = b"\2" + b"\0" + bytes([len(node) + 1]) + b"\2" + node + b"\x63\1z"
    frame = frame[:-1] + tags
    frame = (len(frame) - 4).to_bytes(4, "big") + frame[4:]
    patched = b"".join(patch_addresses(0, 10, frame, shown) or [])
    assert b"real-host" not in patched
    assert b"proxy.example.com" in patched
    assert patched.endswith(b"\x63\1z")
    assert b"\1\x05\2xy" in patched
    assert int.from_bytes(patched[:4], "big") == len(patched) - 4
