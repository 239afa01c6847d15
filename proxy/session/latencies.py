"""How long requests take, by broker and API: at the broker, in the proxy, and for quotas. Sessions add to counts that all
connections to a broker share; observers read them.

The time at the broker of a request begins when it goes on, or when the answer before it on its connection came if that is later, as
a broker handles one request of a connection at a time: so a client that sends many at once does not make the broker look slow. It
ends when the answer begins. Some APIs wait by design, Fetch for records and JoinGroup for members: theirs is not the broker's
fault, and counted apart (`WAITING`). The answer to a Produce request with acks=all waits for other replicas; that is left as the
leader's, as the request is seen by it alone.

Times go by the event loop's clock, which stands still during a pass: to 1 ms. Bounded: the APIs of Kafka for `MOST_BROKERS`
brokers, all others together."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from proxy.session.requester import NO_API
from quota.api_groups import GROUP_OF
from quota.windows.durations import Durations

MOST_BROKERS: Final = 100
"""Brokers that have times of their own; node ids are the cluster's, which may use new ones for ever."""
OTHER_BROKERS: Final = -1
WAITING: Final = frozenset({1, 11, 14, 78})
"""Fetch, JoinGroup, SyncGroup, ShareFetch: their answers wait for records, or for other members, as their requests have it."""


class Part(Enum):
    """What took the time."""

    BROKER = "broker"
    WAIT = "wait"
    """at the broker, for an answer that waits by design"""
    PROXY = "proxy"
    """what a request waited for in the proxy, but for quotas: that the broker was asked, or others had their turn"""
    QUOTA = "quota"
    """throttles and holds that quotas decided"""


class Place(NamedTuple):
    """Of which requests. `broker`: node id; None for the bootstrap address, behind which any broker may be; `OTHER_BROKERS`."""

    part: Part
    broker: int | None
    api_key: int


class Latencies:
    """All counts of one proxy."""

    def __init__(self) -> None:
        self._times: dict[Place, Durations] = {}
        self._brokers: set[int | None] = set()

    def of(self, broker: int | None, api_key: int, part: Part = Part.BROKER) -> Durations:
        """What to add to, for this broker and API; `Part.BROKER` of an API that waits is `Part.WAIT`."""
        if broker not in self._brokers:
            if len(self._brokers) >= MOST_BROKERS:
                broker = OTHER_BROKERS
            self._brokers.add(broker)
        if part is Part.BROKER and api_key in WAITING:
            part = Part.WAIT
        place = Place(part, broker, api_key if api_key in GROUP_OF else NO_API)
        found = self._times.get(place)
        if found is None:
            found = self._times[place] = Durations()
        return found

    def __iter__(self) -> Iterator[tuple[Place, Durations]]:
        return iter(self._times.items())
