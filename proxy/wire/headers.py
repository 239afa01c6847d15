"""Request and response headers (protocol guide, "Protocol Request/Response Header"; KIP-482, KIP-511).

In: the first bytes of a frame. Out: api key, version, correlation id, client id, and where the body starts. The body stays raw.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from proxy.wire.primitives import BadBytes, Buffer, fixed, skip_tags

RESPONSE_START: Final = Struct(">ii")
"""size of what follows, correlation id"""
SHORTEST_REQUEST: Final = 8
"""api key, version and correlation id; every client's header has a client id besides"""
CLIENT_ID_AT: Final = 12

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36

_NEVER: Final = 1 << 15
# fmt: off
_FIRST_FLEXIBLE: Final[dict[int, int]] = {
    0: 9, 1: 12, 2: 6, 3: 9, 4: 4, 5: 2, 6: 6, 7: 3, 8: 8, 9: 6, 10: 3, 11: 6, 12: 4, 13: 4, 14: 4, 15: 5, 16: 3, 18: 3, 19: 5,
    20: 4, 21: 2, 22: 2, 23: 4, 24: 3, 25: 3, 26: 3, 27: 1, 28: 3, 29: 2, 30: 2, 31: 2, 32: 4, 33: 2, 34: 2, 35: 2, 36: 2, 37: 2,
    38: 2, 39: 2, 40: 2, 41: 2, 42: 2, 43: 2, 44: 1, 45: 0, 46: 0, 48: 1, 49: 1, 53: 1, 54: 1,
    SASL_HANDSHAKE: _NEVER, 47: _NEVER,
}
# fmt: on


def flexible(key: int, version: int) -> bool:
    """Does this version use compact types and tagged fields? APIs since KIP-482 always do (SaslHandshake and
    OffsetDelete never)."""
    return version >= _FIRST_FLEXIBLE.get(key, 0)


def client_id_end(buf: Buffer, start: int, end: int) -> int:
    """Where the client id of the request frame at `start` ends (it begins with its int16 length at `start + CLIENT_ID_AT`)."""
    at = start + CLIENT_ID_AT
    pos = fixed(at, 2, end)
    length = buf[at] << 8 | buf[at + 1]
    if length == 0xFFFF:
        return pos
    if length > 0x7FFF:
        raise BadBytes(f"a client id of negative length {length - 0x10000}")
    return fixed(pos, length, end)


def request_body(buf: Buffer, client_id_stop: int, end: int, key: int, version: int) -> int:
    """Where the body of a request starts, given where its client id stops."""
    return skip_tags(buf, client_id_stop, end) if flexible(key, version) else client_id_stop


def response_body(buf: Buffer, start: int, end: int, key: int, version: int) -> int:
    """Where the body of the response frame at `start` starts. ApiVersions always has the old header (KIP-511)."""
    pos = fixed(start, 8, end)
    return skip_tags(buf, pos, end) if key != API_VERSIONS and flexible(key, version) else pos
