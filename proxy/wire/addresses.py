"""Patch of broker addresses in responses, so that no client learns where a broker really is.

In: a whole response frame and what to show for a node id. Out: the frame in pieces. Sources: the schemas of Apache
Kafka 4.3; KIP-951 (NodeEndpoints in Produce and Fetch), KIP-932 (share groups), KIP-853 (the controllers' listeners in
DescribeQuorum). StreamsGroupHeartbeat and -Describe hold addresses of clients, not of brokers: they pass."""

from __future__ import annotations

from typing import Final

from proxy.wire.headers import response_body
from proxy.wire.kio_bridge import response_layout
from proxy.wire.layout import Endpoint, rewrite_endpoints
from proxy.wire.primitives import INT32, Buffer

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, DESCRIBE_QUORUM, DESCRIBE_CLUSTER, SHARE_FETCH, SHARE_ACKNOWLEDGE = (
    0,
    1,
    3,
    10,
    55,
    60,
    78,
    79,
)

_FIRST_WITH_ADDRESSES: Final = {
    PRODUCE: 10,
    FETCH: 16,
    METADATA: 0,
    FIND_COORDINATOR: 0,
    DESCRIBE_QUORUM: 2,
    DESCRIBE_CLUSTER: 0,
    SHARE_FETCH: 1,
    SHARE_ACKNOWLEDGE: 1,
}


def holds_addresses(key: int, version: int) -> bool:
    """May a response of this API and version name a broker's address?"""
    first = _FIRST_WITH_ADDRESSES.get(key)
    return first is not None and version >= first


def patch_addresses(key: int, version: int, frame: Buffer, endpoint: Endpoint) -> list[Buffer] | None:
    """The response frame in pieces, its size set anew; None when there is no address in it.

    What stands behind the last address is neither read nor copied.
    """
    end = len(frame)
    body = response_body(frame, 0, end, key, version)
    pieces = rewrite_endpoints(response_layout(key, version), frame, body, end, endpoint)
    if len(pieces) == 1:
        return None
    size = body - 4 + sum(len(piece) for piece in pieces)
    return [INT32.pack(size) + frame[4:body], *pieces]
