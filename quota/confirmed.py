"""Which users brokers have let write to which topics: what they write there may count for others before it is written.

In: what brokers answer to Produce requests. Out: whether a user was let write to a topic, as an object that a connection keeps.
An answer without an error confirms the pair, one with an error revokes it, and after `HOLDS` it has to be confirmed again.

Memory: `MOST` pairs, divided among users. A user whose share is used up loses the pair that was confirmed first."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Final

from quota.fair_share import FairShare
from quota.pair import UNCONFIRMED, Pair
from quota.round_robin import RoundRobin

MOST: Final = 100_000
HOLDS: Final = 3600.0
"""seconds"""
SWEEP: Final = 60.0
"""seconds between two looks at all users"""
SWEPT: Final = 100
"""Users that one sweep looks at, and pairs of each; the next goes on from there."""


class Confirmations:
    """All pairs that are confirmed."""

    def __init__(self, capacity: int = MOST) -> None:
        self._shares = FairShare(capacity)
        self._pairs: dict[str, OrderedDict[str, Pair]] = {}
        self._sweeps: RoundRobin[str] = RoundRobin(SWEEP, SWEPT)

    def __len__(self) -> int:
        return self._shares.held

    def find(self, user: str, topic: str) -> Pair:
        """The pair, `UNCONFIRMED` if it is not in the table."""
        pairs = self._pairs.get(user)
        return UNCONFIRMED if pairs is None else pairs.get(topic, UNCONFIRMED)

    def confirm(self, user: str, topic: str, now: float) -> Pair:
        """A broker has written what this user sent to this topic."""
        pairs = self._pairs.setdefault(user, OrderedDict())
        pair = pairs.get(topic)
        if pair is None:
            if pairs and not self._shares.has_room(user):
                self._forget(next(iter(pairs.values())))
                pairs = self._pairs.setdefault(user, pairs)
            self._shares.charge(user, 1)
            pair = pairs[topic] = Pair(user, topic, now, True)
        else:
            pair.since = now
            pairs.move_to_end(topic)
        return pair

    def revoke(self, user: str, topic: str) -> None:
        """A broker has refused what this user sent to this topic."""
        pair = self.find(user, topic)
        if pair.confirmed:
            self._forget(pair)

    def sweep(self, now: float) -> None:
        """Forget what was confirmed long ago."""
        for user in self._sweeps.turn(self._pairs, now):
            for pair in list(islice(self._pairs.get(user, {}).values(), SWEPT)):
                if now - pair.since < HOLDS:
                    break
                self._forget(pair)

    def _forget(self, pair: Pair) -> None:
        pair.confirmed = False
        pairs = self._pairs[pair.user]
        del pairs[pair.topic]
        if not pairs:
            del self._pairs[pair.user]
        self._shares.give_back(pair.user)
