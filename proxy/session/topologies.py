"""Topologies of Streams groups, as their members sent them when they joined: brokers create the internal topics of a group at any
later heartbeat too, which does not say what they are. In: topologies and heartbeats, with the time. Out: the topology of a group.
One for all connections of a proxy.

Each principal has groups of its own here, and a share of what may be remembered. Nothing is forgotten to make room, as a client
could have its own groups forgotten in that way: a principal whose share is used up joins later."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from proxy.wire.streams_group_heartbeat import Topology
from quota.fair_share import FairShare

MOST: Final = 100_000
"""Names of topics that are remembered in all."""
MOST_OF_A_GROUP: Final = 2000
"""Names of topics in the topologies of one group: each heartbeat looks at them all, which takes about a millisecond and a half."""
LASTS: Final = 300.0
"""Seconds since the last heartbeat after which a group is forgotten. Its members have to join again long before, and send their
topology again."""


class _Known(NamedTuple):
    topology: Topology
    size: int
    when: float


_NOTHING: Final = _Known((), 0, 0.0)


class Topologies:
    """By principal and group."""

    def __init__(self, capacity: int = MOST) -> None:
        self._share = FairShare(capacity)
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, principal: str, group: str, now: float) -> Topology | None:
        """A heartbeat of this group came: what is known of it."""
        key = principal, group
        known = self._known.get(key)
        if known is None:
            return None
        self._known[key] = known._replace(when=now)
        self._known.move_to_end(key)
        return known.topology

    def join(self, principal: str, group: str, topology: Topology, now: float) -> Topology | None:
        """A member joins with this topology: all that is known of the group from now on, as the group may have another one that a
        member brought before. None when there is no room."""
        self._sweep(now)
        key = principal, group
        before = self._known.get(key, _NOTHING)
        there = set(before.topology)
        new = tuple(part for part in dict.fromkeys(topology) if part not in there)
        size = sum(part.names + 1 for part in new)
        if before.size + size > MOST_OF_A_GROUP or not self._share.take(principal, size):
            return None
        self._known[key] = known = _Known(before.topology + new, before.size + size, now)
        self._known.move_to_end(key)
        return known.topology

    def _sweep(self, now: float) -> None:
        while self._known:
            key, known = next(iter(self._known.items()))
            if now - known.when <= LASTS:
                return
            del self._known[key]
            self._share.give_back(key[0], known.size)
