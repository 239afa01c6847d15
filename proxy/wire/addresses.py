"""Patch of broker addresses in responses, so that no client learns where a broker really is.

In: a whole response frame and what to show for a node id. Out: the frame in pieces. Sources: the schemas of Apache
Kafka 4.3; KIP-951 (NodeEndpoints in Produce and Fetch), KIP-932 (share groups), KIP-853 (the controllers' listeners in
DescribeQuorum and in the messages of the quorum). StreamsGroupHeartbeat and -Describe hold addresses of clients, not of
brokers: they pass."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Final

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import response_layout
from proxy.wire.layout import Endpoint, rewriting_endpoints
from proxy.wire.primitives import INT32, Buffer
from proxy.wire.steps import finish_at_once

PRODUCE: Final = 0
FETCH: Final = 1
METADATA: Final = 3
FIND_COORDINATOR: Final = 10
VOTE: Final = 52
BEGIN_QUORUM_EPOCH: Final = 53
END_QUORUM_EPOCH: Final = 54
DESCRIBE_QUORUM: Final = 55
FETCH_SNAPSHOT: Final = 59
DESCRIBE_CLUSTER: Final = 60
SHARE_FETCH: Final = 78
SHARE_ACKNOWLEDGE: Final = 79
UPDATE_RAFT_VOTER: Final = 82

_FIRST_WITH_ADDRESSES: Final = {
    PRODUCE: 10,
    FETCH: 16,
    METADATA: 0,
    FIND_COORDINATOR: 0,
    VOTE: 1,
    BEGIN_QUORUM_EPOCH: 1,
    END_QUORUM_EPOCH: 1,
    DESCRIBE_QUORUM: 2,
    FETCH_SNAPSHOT: 1,
    DESCRIBE_CLUSTER: 0,
    SHARE_FETCH: 1,
    SHARE_ACKNOWLEDGE: 1,
    UPDATE_RAFT_VOTER: 0,
}
_OF_CONTROLLERS: Final = frozenset({VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, DESCRIBE_QUORUM, FETCH_SNAPSHOT, UPDATE_RAFT_VOTER})
"""Their node ids are of controllers, for which the proxy has no ports: all are shown as one address."""


def holds_addresses(key: int, version: int) -> bool:
    """True if a response of this API and version may name a broker's address."""
    first = _FIRST_WITH_ADDRESSES.get(key)
    return first is not None and version >= first


def patch_addresses(key: int, version: int, frame: Buffer, endpoint: Endpoint) -> list[Buffer] | None:
    """The response frame in pieces, its size set anew; None when there is no address in it.

    What stands behind the last address is neither read nor copied.
    """
    return finish_at_once(patching_addresses(key, version, frame, endpoint))


def patching_addresses(key: int, version: int, frame: Buffer, endpoint: Endpoint) -> Generator[None, None, list[Buffer] | None]:
    """The same in steps, as far as `rewriting_endpoints` is."""
    end = len(frame)
    body = response_body(frame, 0, end, key, version)
    shown = partial(_of_no_broker, endpoint) if key in _OF_CONTROLLERS else endpoint
    pieces = yield from rewriting_endpoints(response_layout(key, version), frame, body, end, shown)
    if len(pieces) == 1:
        return None
    size = body - 4 + sum(len(piece) for piece in pieces)
    return [INT32.pack(size) + frame[4:body], *pieces]


def _of_no_broker(endpoint: Endpoint, node_id: int | None) -> tuple[str, int]:  # noqa: ARG001
    return endpoint(None)
