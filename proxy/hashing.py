"""MurmurHash3 of 64-bit ids (seed s2), for the Bloom filters of `quota`, which may import the standard library only.

In: an id. Out: its 128 bits, in two halves."""

from __future__ import annotations

from typing import Final

import mmh3

SEED: Final = 936
"""Always the same, so that saved filters are of use after a restart."""


def murmur3(id: int) -> tuple[int, int]:
    """Both halves of MurmurHash3 x64 128 of an id >= 0, big-endian as in a batch; OverflowError for one of more than 64 bits."""
    halves: tuple[int, int] = mmh3.mmh3_x64_128_utupledigest(id.to_bytes(8, "big"), SEED)
    return halves
