"""Traffic of users and client ids in the last ten minutes, limited or not: for metrics and the console.

In: the rows of the usage log's intervals, when they are closed, so no frame costs anything; it is done in steps of one client. Out:
rates, reckoned and ranked once for all who ask until the next interval ends. Time is cut into points of `POINT` seconds of the wall
clock, so that those of several workers can be added up. Bounded: `MOST` users with client ids, of which each principal has a share
(`quota.fair_share`); its further client ids are one, `<other>`."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from math import floor
from typing import Final, NamedTuple

from proxy.session.tally import OTHER, Row
from quota.entity import Entity
from quota.fair_share import FairShare
from quota.steps import Steps

POINT: Final = 10
"""Seconds of a point."""
POINTS: Final = 60
"""Of the history."""
_RING: Final = POINTS + 1
"""One more: the newest is not complete yet."""
MOST: Final = 2000
MOMENT: Final = 0.001
"""Seconds: the times of intervals are cut to milliseconds."""
SORTED_AT_ONCE: Final = 250
MEASURES: Final = ("bytes_in", "bytes_out", "requests", "mutations")


class Rates(NamedTuple):
    """Per second: bytes of requests and of responses, requests, partition mutations."""

    bytes_in: float
    bytes_out: float
    requests: float
    mutations: float

    @property
    def bytes(self) -> float:
        """In both directions."""
        return self.bytes_in + self.bytes_out


NO_RATES: Final = Rates(0.0, 0.0, 0.0, 0.0)


class Traffic:
    """What one user with one client id did: an amount for each measure and point."""

    __slots__ = ("last", "owner", "sums")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.last = 0
        """the newest point with anything in it"""
        self.sums = [array("d", bytes(8 * _RING)) for _ in MEASURES]

    def add(self, point: int, amounts: Sequence[float]) -> None:
        """At `point`, or in the newest one for an older."""
        point = max(point, self.last)
        for passed in range(max(self.last, point - _RING) + 1, point + 1):
            for sums in self.sums:
                sums[passed % _RING] = 0.0
        self.last = point
        for sums, amount in zip(self.sums, amounts, strict=True):
            sums[point % _RING] += amount

    def rates(self, point: int) -> Rates:
        """In that point."""
        known = self.last - _RING < point <= self.last
        return Rates(*(sums[point % _RING] / POINT if known else 0.0 for sums in self.sums))

    def history(self, measure: int, newest: int) -> list[float]:
        """Amounts of a measure, the oldest point first, `newest` last."""
        sums, oldest = self.sums[measure], (self.last + 1) % _RING
        known = [*sums[oldest:], *sums[:oldest]]  # up to the point `last`
        later = max(min(newest - self.last, POINTS), -_RING)
        if later < 0:
            return [*[0.0] * (-1 - later), *known[:later]]
        return [*known, *[0.0] * later][-POINTS:]


class Activity:
    """The traffic of all users and client ids."""

    def __init__(self) -> None:
        self.newest = 0
        """the newest point that is complete"""
        self.rows: list[Row] = []
        """of the last interval"""
        self.intervals = 0
        """that have been closed: what is told of traffic stays as it is until there is another one"""
        self.ranked: list[tuple[Entity, Rates]] = []
        """all, in the newest point, those with most traffic first"""
        self.total = NO_RATES
        """of all of them"""
        self._traffic: dict[Entity, Traffic] = {}
        self._shares = FairShare(MOST)

    def __len__(self) -> int:
        return len(self._traffic)

    def closed(self, end: float, seconds: float, rows: list[Row]) -> Steps[None]:
        """An interval has ended. `end`: seconds since the epoch."""
        last = floor((end - MOMENT) / POINT)
        points = min(max(round(seconds / POINT), 1), POINTS)
        by_client = yield from _by_client(rows)
        for entity, (principal, amounts) in by_client.items():
            traffic = self._traffic_of(entity, principal)
            each = [amount / points for amount in amounts]
            for point in range(last - points + 1, last + 1):
                traffic.add(point, each)
            yield
        newest = floor((end + MOMENT) / POINT) - 1
        for entity, traffic in list(self._traffic.items()):
            if traffic.last <= newest - POINTS:
                self._shares.give_back(self._traffic.pop(entity).owner)
        yield from self._rank(newest)
        self.rows, self.newest = rows, newest
        self.intervals += 1

    def _rank(self, newest: int) -> Steps[None]:
        ranked: list[tuple[float, float, int, tuple[Entity, Rates]]] = []
        total = [0.0] * len(MEASURES)
        for entity, traffic in list(self._traffic.items()):
            rates = traffic.rates(newest)
            ranked.append((-rates.bytes, -rates.requests, len(ranked), (entity, rates)))
            for i, rate in enumerate(rates):
                total[i] += rate
            yield
        sorted_parts = []
        for start in range(0, len(ranked), SORTED_AT_ONCE):
            sorted_parts.append(sorted(ranked[start : start + SORTED_AT_ONCE]))
            yield
        found = []
        for *_, one in merge(*sorted_parts):
            found.append(one)
            yield
        self.ranked, self.total = found, Rates(*total)

    def _traffic_of(self, entity: Entity, principal: str) -> Traffic:
        found = self._traffic.get(entity)
        if found is None and not self._shares.has_room(principal):
            entity = Entity(entity.user, OTHER)
            found = self._traffic.get(entity)
        if found is None:
            found = self._traffic[entity] = Traffic(principal)
            self._shares.charge(principal, 1)
        return found

    def __iter__(self) -> Iterator[tuple[Entity, Traffic]]:
        return iter(self._traffic.items())

    def of(self, entity: Entity) -> Traffic | None:
        """None where nothing is known."""
        return self._traffic.get(entity)


def _by_client(rows: Iterable[Row]) -> Steps[dict[Entity, tuple[str, list[float]]]]:
    """The principal and the amount of each measure, by user and client id."""
    found: dict[Entity, tuple[str, list[float]]] = {}
    for row in rows:
        yield
        principal, client_id, topic, _, _ = row.key
        if topic is not None:
            continue
        entity = Entity(principal.removeprefix("User:"), client_id or "")
        _, amounts = found.setdefault(entity, (principal, [0.0] * len(MEASURES)))
        for i, amount in enumerate((row.request_bytes, row.response_bytes, row.requests, row.mutations)):
            amounts[i] += amount
    return found
