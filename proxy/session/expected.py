"""Topics that are about to be there, because a client's Metadata request had them created. In: what each was charged, and when.
Out: whether one is still to be waited for, and the charges of those that did not come. One for all connections of a proxy."""

from __future__ import annotations

from typing import Final, NamedTuple

WITHIN: Final = 5.0
"""Seconds in which a topic that a request had created is there, or is not coming."""
MOST: Final = 10_000
"""Topics that are remembered; the oldest is forgotten first."""


class Charge(NamedTuple):
    """What a topic was charged: the receipt of its request, its place in there, and when."""

    receipt: object
    item: int
    when: float


class Expected:
    """By name."""

    def __init__(self) -> None:
        self._charges: dict[str, Charge] = {}

    def add(self, name: str, charge: Charge) -> None:
        self._charges[name] = charge
        if len(self._charges) > MOST:
            del self._charges[next(iter(self._charges))]

    def still(self, name: str, now: float) -> bool:
        """Is it a moment only since it was charged?"""
        charge = self._charges.get(name)
        return charge is not None and now - charge.when <= WITHIN

    def missed(self, name: str) -> Charge | None:
        """It is not there, and not expected any more: what it was charged, to be given back once."""
        return self._charges.pop(name, None)
