"""Dividing a bounded resource among principals, so that nobody can use up what others need.

In: who takes and gives back how much. Out: whether there is room for more. Each principal may hold at most `EAGERNESS` times what
is still free then: dynamic thresholds, as switches divide their buffer among queues (Choudhury and Hahne, 1998). One principal
alone gets 8/9 of the total, and the next one 8/9 of what is left. However many were there before, each principal may hold
`least` units, so that all of them hold `total` and `least` for each principal at most.

Pure bookkeeping: whether something is really allocated is the caller's affair."""

from __future__ import annotations

from typing import Final

EAGERNESS: Final = 8
LEAST: Final = 1000
"""The part of the total, as a divisor, that each principal may hold whatever the others do."""


class FairShare:
    """`total` units may be held by all principals together; operators may change it at any time."""

    __slots__ = ("_held_by", "held", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.held = 0
        self._held_by: dict[str, int] = {}

    @property
    def least(self) -> int:
        """Units that each principal may hold whatever the others do."""
        return max(self.total // LEAST, 1)

    def held_by(self, principal: str) -> int:
        """Units that this principal holds."""
        return self._held_by.get(principal, 0)

    def by_principal(self) -> dict[str, int]:
        """Units that each principal holds; principals without any are left out."""
        return dict(self._held_by)

    def has_room(self, principal: str, amount: int = 1, *, elsewhere: int = 0, all_elsewhere: int = 0) -> bool:
        """True if this principal may hold so much more. Nothing is taken. What is held `elsewhere` of the same total, by this
        principal and by all, counts too."""
        wanted = self._held_by.get(principal, 0) + elsewhere + amount
        return wanted <= EAGERNESS * (self.total - self.held - all_elsewhere - amount) or wanted <= self.least

    def has_room_for_all(self, elsewhere: int) -> bool:
        """True if each principal may hold more, whoever of them holds what is held here and `elsewhere`."""
        held = self.held + elsewhere
        return held <= EAGERNESS * (self.total - held)

    def take(self, principal: str, amount: int = 1) -> bool:
        """Hold so much more if there is room for it; False, and nothing is taken, if not."""
        if not self.has_room(principal, amount):
            return False
        self.charge(principal, amount)
        return True

    def charge(self, principal: str, amount: int) -> None:
        """Hold so much more, or less when negative, whether or not there is room: for what is there already."""
        self.held += amount
        held = self._held_by.get(principal, 0) + amount
        if held > 0:
            self._held_by[principal] = held
        else:
            self._held_by.pop(principal, None)

    def give_back(self, principal: str, amount: int = 1) -> None:
        """Hold so much less."""
        self.charge(principal, -amount)
