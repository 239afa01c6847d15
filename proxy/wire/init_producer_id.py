"""InitProducerId requests: which producer id the client has already (KIP-360).

In: a body. Out: that id. What stands behind it is not read, so versions to come pass."""

from __future__ import annotations

from struct import Struct
from typing import Final

from proxy.wire.headers import flexible
from proxy.wire.primitives import Buffer, fixed, span

INIT_PRODUCER_ID: Final = 22
FIRST_CURRENT: Final = 3
"""The first version that names it."""
NO_ID: Final = -1
_INT64: Final = Struct(">q")


def current_id(body: Buffer, version: int) -> int:
    """The id of a producer that only wants another epoch; `NO_ID` of one that has none, or does not say."""
    if version < FIRST_CURRENT:
        return NO_ID
    end = len(body)
    _, timeout = span(body, 0, end, flexible(INIT_PRODUCER_ID, version))
    at = fixed(timeout, 4, end)
    fixed(at, _INT64.size, end)
    found: int = _INT64.unpack_from(body, at)[0]
    return found
