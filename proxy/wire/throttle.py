"""`throttle_time_ms` in responses (KIP-124, KIP-219): where it stands, and the response with another.

In: a whole response frame, or one that is passing, in pieces. Out: the pieces to send instead. Nearly all responses that
have the field begin with it; that to Produce ends with it. Which have it is read from kio's schemas."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Final

from kio.index import KioIndexError, load_response_schema

from proxy.wire.addresses import PRODUCE
from proxy.wire.headers import API_VERSIONS, RESPONSE_START, flexible
from proxy.wire.primitives import INT32, Buffer
from proxy.wire.produce import with_throttle

NOWHERE: Final = -INT32.size
_LIKE_BEFORE: Final = {(28, 6): 5, (42, 3): 2, (89, 1): 0}
"""(API key, version) of Kafka 4.4 that kio has no schema of -> an older version that begins alike: TxnOffsetCommit (KIP-1319),
DeleteGroups and StreamsGroupDescribe (KIP-1331)."""


@cache
def throttle_place(key: int, version: int) -> int:
    """Where the field stands in a response frame that begins with it, as brokers write them: without tagged fields in the
    header. `NOWHERE` where it stands elsewhere, or the version has none, or is not known."""
    try:
        first = fields(load_response_schema(key, _LIKE_BEFORE.get((key, version), version)))[0].name
    except (ImportError, IndexError, KioIndexError):  # not known, or without fields
        return NOWHERE
    if first != "throttle_time":
        return NOWHERE
    return RESPONSE_START.size + (key != API_VERSIONS and flexible(key, version))


def tell(key: int, version: int, pieces: list[Buffer], throttle_ms: int) -> list[Buffer]:
    """A whole response that tells of a throttle time of `throttle_ms` at least; the broker's own if that is larger. As it is
    where the version has no such field."""
    if key == PRODUCE:
        return [with_throttle(pieces[0] if len(pieces) == 1 else b"".join(pieces), version, throttle_ms)]
    place = throttle_place(key, version)
    return overlay(pieces, place, throttle_ms)


def overlay(pieces: list[Buffer], at: int, throttle_ms: int) -> list[Buffer]:
    """These pieces with the number at `at`, counted from the first of them, raised to `throttle_ms`; as far as it is in them:
    `at` may be negative, or beyond their end."""
    old = b"".join(_overlap(piece, at - base) for base, piece in _based(pieces))
    if not old:
        return pieces
    raised = INT32.pack(max(throttle_ms, INT32.unpack(old)[0] if len(old) == INT32.size else 0))
    patched: list[Buffer] = []
    for base, piece in _based(pieces):
        place = at - base
        start, stop = max(place, 0), min(place + INT32.size, len(piece))
        if start < stop:
            patched += [part for part in (piece[:start], raised[start - place : stop - place], piece[stop:]) if part]
        else:
            patched.append(piece)
    return patched


def _based(pieces: list[Buffer]) -> list[tuple[int, Buffer]]:
    """Each with where it starts."""
    found, base = [], 0
    for piece in pieces:
        found.append((base, piece))
        base += len(piece)
    return found


def _overlap(piece: Buffer, place: int) -> Buffer:
    return piece[max(place, 0) : max(place + INT32.size, 0)]
