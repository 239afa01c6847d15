"""Topics that are about to be there, because a client named them or sent a Streams topology. In: what each principal was charged
for them, and when. Out: whether one was charged already, and what to give back for those that did not come. One for all
connections of a proxy.

Each principal has its own names: a charge to one principal does not free another one, and names of one principal do not push out
those of another. A topic that is seen to exist is not expected any more; its charge stays."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from quota.fair_share import FairShare

WITHIN: Final = 5.0
"""Seconds in which a topic that a request had created is there, or is not coming."""
MOST: Final = 10_000
"""Topics that are remembered. A principal that has its share of them forgets its own, the oldest first."""


class Charge(NamedTuple):
    """What a topic was charged: the receipt of its request, its place in there, partitions, and when. `until_seen`: it may come at
    any time, however late; that it is not there does not say that it never comes."""

    receipt: object
    item: int
    amount: int
    when: float
    until_seen: bool = False


class Expected:
    """By name and principal."""

    def __init__(self, capacity: int = MOST) -> None:
        self._share = FairShare(capacity)
        self._charges: dict[str, dict[str, Charge]] = {}
        self._names: dict[str, OrderedDict[str, None]] = {}  # whose first is found at once, however many were dropped before it

    def __len__(self) -> int:
        return self._share.held

    def add(self, principal: str, name: str, charge: Charge) -> None:
        """This principal was charged for this topic."""
        self.drop(principal, name)
        while not self._share.take(principal):
            self.drop(principal, next(iter(self._names[principal])))
        self._charges.setdefault(name, {})[principal] = charge
        self._names.setdefault(principal, OrderedDict())[name] = None

    def still(self, principal: str, name: str, now: float) -> Charge | None:
        """What this principal was charged for this topic, if it may still come because of that."""
        charge = self._charges.get(name, {}).get(principal)
        return charge if charge is not None and (charge.until_seen or now - charge.when <= WITHIN) else None

    def drop(self, principal: str, name: str) -> Charge | None:
        """It is not expected any more: what it was charged."""
        of_name = self._charges.get(name)
        charge = None if of_name is None else of_name.pop(principal, None)
        if of_name is None or charge is None:
            return None
        if not of_name:
            del self._charges[name]
        names = self._names[principal]
        del names[name]
        if not names:
            del self._names[principal]
        self._share.give_back(principal)
        return charge

    def seen(self, name: str) -> list[Charge]:
        """It exists: what was charged for it, and is not to be given back from now on."""
        found = [self.drop(principal, name) for principal in tuple(self._charges.get(name, ()))]
        return [charge for charge in found if charge is not None]
