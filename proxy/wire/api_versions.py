"""ApiVersions (key 18, KIP-35, KIP-511): clamp of the ranges that a broker advertises; and the broker that a client expects
(KIP-1242), taken out of a request.

In: a response frame and the ranges that the proxy understands of the APIs it must understand, or a request frame. Out: the frame
in pieces. An API whose range becomes empty is left out: some clients refuse to start when they see an empty one. Everything else,
features and unknown tags included, stays as it is. Version 5, of Kafka 4.4, is one that kio has no schema of: its request has a
cluster id (null when not known) and a node id (-1) behind the fields of version 4, its response has the fields of version 4."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

from proxy.wire.headers import API_VERSIONS
from proxy.wire.kio_bridge import response_frame
from proxy.wire.primitives import INT16, INT32, Buffer, array, encode_array_length, fixed, skip_tags, span

UNSUPPORTED_VERSION = 35
MAX_VERSION = 5
FIRST_WITH_TARGET = 5
_NOT_KNOWN = b"\0" + INT32.pack(-1)
"""No cluster id and no node id: the broker compares nothing."""
_RANGE = Struct(">hhh")

Understood = Mapping[int, tuple[int, int]]
"""api key -> (lowest, highest version) that the proxy understands"""


def clamp(frame: Buffer, version: int, understood: Understood) -> list[Buffer]:
    """The response with every range cut to what is understood. An UNSUPPORTED_VERSION answer has the shape of version
    0, whatever was asked."""
    end = len(frame)
    after_error = fixed(8, 2, end)
    if INT16.unpack_from(frame, 8)[0] == UNSUPPORTED_VERSION:
        version = 0
    compact = version >= 3
    count, pos = array(frame, after_error, end, compact, _RANGE.size + compact)
    kept: list[bytes] = []
    for _ in range(count):
        stop = fixed(pos, _RANGE.size, end)
        key, low, high = _RANGE.unpack_from(frame, pos)
        entry = clamp_range(key, low, high, understood)
        pos = skip_tags(frame, stop, end) if compact else stop
        if entry is not None:
            kept.append(_RANGE.pack(*entry) + bytes(frame[stop:pos]))
    ranges = encode_array_length(len(kept), compact) + b"".join(kept)
    size = after_error - 4 + len(ranges) + end - pos
    return [INT32.pack(size) + frame[4:after_error], ranges, memoryview(frame)[pos:]]


def without_target(buf: Buffer, start: int, body: int, end: int) -> list[Buffer] | None:
    """The request frame of version 5 at buf[start:end] without the cluster and the node that its client expects to reach; None
    when it names none, or only one of the two, which is for the broker to refuse."""
    pos = body
    for _ in ("client software name", "client software version"):
        _, pos = span(buf, pos, end, compact=True)
    cluster, at = span(buf, pos, end, compact=True)
    stop = fixed(at, INT32.size, end)
    if cluster < 0 or INT32.unpack_from(buf, at)[0] == -1:
        return None
    size = pos - start - INT32.size + len(_NOT_KNOWN) + end - stop
    return [INT32.pack(size) + bytes(buf[start + INT32.size : pos]), _NOT_KNOWN, memoryview(buf)[stop:end]]


def read_ranges(frame: Buffer, version: int) -> dict[int, tuple[int, int]]:
    """The ranges in a response to the proxy's own request; empty when the broker does not know the version that was asked."""
    end = len(frame)
    pos = fixed(8, 2, end)
    if INT16.unpack_from(frame, 8)[0]:
        return {}
    compact = version >= 3
    count, pos = array(frame, pos, end, compact, _RANGE.size + compact)
    ranges = {}
    for _ in range(count):
        stop = fixed(pos, _RANGE.size, end)
        key, low, high = _RANGE.unpack_from(frame, pos)
        ranges[key] = (low, high)
        pos = skip_tags(frame, stop, end) if compact else stop
    return ranges


def clamp_range(key: int, low: int, high: int, understood: Understood) -> tuple[int, int, int] | None:
    """The range to advertise; None when nothing is left of it."""
    ours = understood.get(key)
    if ours is None:
        return key, low, high
    low, high = max(low, ours[0]), min(high, ours[1])
    return (key, low, high) if low <= high else None


def unsupported(correlation_id: int) -> bytes:
    """What Kafka answers to an ApiVersions version that it does not know: error 35 in the shape of version 0, with the
    range of ApiVersions itself."""
    body = INT16.pack(UNSUPPORTED_VERSION) + INT32.pack(1) + _RANGE.pack(API_VERSIONS, 0, MAX_VERSION)
    return response_frame(correlation_id, body, tagged=False)
