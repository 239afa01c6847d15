"""The brokers of the cluster. In: lists of live brokers, from Metadata responses. Out: for a node id the real address, to
connect to. What clients are shown instead is the business of `routes`, which are given the known brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from proxy.cluster.routes import Route
from proxy.config.units import HostPort
from proxy.wire.metadata import Broker


class Mistaken(NamedTuple):
    """Clients of a broker were led to an address that is another one's, as the cluster says by now."""

    node_id: int
    address: HostPort
    really: int


@dataclass(frozen=True, slots=True)
class Change:
    """What a list of brokers changed."""

    joined: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    mistaken: tuple[Mistaken, ...] = ()
    """of those that moved or left"""


class Brokers:
    """`changed` is called with what a list changed. A broker that is no longer named is kept for `forget_after` seconds: one that
    restarts is away for a while, and its clients come back to it. `given`: brokers that are known from the start, and kept.

    Addresses are compared as they are written. Where a name leads to says nothing: brokers that are told apart by their names
    in TLS have one address in common."""

    def __init__(
        self,
        bootstrap: Iterable[HostPort],
        changed: Callable[[Change], None],
        clock: Callable[[], float],
        forget_after: float = 600.0,
        given: Mapping[int, HostPort] | None = None,
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._given = given or {}
        self._routes: list[Route] = []
        self._turn = 0
        self._changed, self._clock, self._forget_after = changed, clock, forget_after
        self._known: dict[int, Broker] = {}
        self._seen_at: dict[int, float] = {}
        self._last: list[Broker] = []

    def __len__(self) -> int:
        return len(self._known)

    def lead_by(self, route: Route) -> None:
        """Clients of one more listener are led to these brokers."""
        self._routes.append(route)

    def begin(self) -> None:
        """Let clients come to the brokers that are given."""
        if self._given:
            self.learn([Broker(node_id, *address) for node_id, address in self._given.items()])

    def learn(self, brokers: list[Broker]) -> None:
        """These are the live brokers now."""
        now = self._clock()
        joined: list[int] = []
        moved: list[int] = []
        mistaken: list[Mistaken] = []
        if brokers != self._last:
            self._last = brokers
            mistaken = _mistaken({node_id: HostPort(each.host, each.port) for node_id, each in self._known.items()}, brokers)
            for broker in sorted(brokers):
                if not broker.host:
                    continue
                before = self._known.get(broker.node_id)
                self._known[broker.node_id] = broker
                if before != broker:
                    (joined if before is None else moved).append(broker.node_id)
        live = {broker.node_id for broker in brokers}
        self._seen_at.update(dict.fromkeys(self._known.keys() & live, now))
        left = self._forget(now, {each.node_id for each in mistaken} - live)
        if joined or moved or left or not self._covered():
            for route in self._routes:
                route.cover(self._known)
        if joined or moved or left:
            self._changed(Change(tuple(joined), tuple(moved), left, tuple(mistaken)))

    def wrongly_given(self) -> list[Mistaken]:
        """Brokers that were given with the address of another one, as the cluster says by now."""
        return _mistaken(self._given, self._last)

    def broker_addresses(self, node_id: int) -> list[HostPort]:
        """Where a broker really is; empty when it has left the cluster."""
        broker = self._known.get(node_id)
        return [HostPort(broker.host, broker.port)] if broker else []

    def known(self) -> list[Broker]:
        """Those to which clients are led."""
        return list(self._known.values())

    def addresses(self) -> list[HostPort]:
        """Where the live brokers really are, then the bootstrap servers: whom to ask for the state of the cluster."""
        return list(dict.fromkeys([*(HostPort(broker.host, broker.port) for broker in self._last), *self._bootstrap]))

    def bootstrap_addresses(self) -> list[HostPort]:
        """The same, beginning with another one each time: where a client that bootstraps may be led."""
        addresses = self.addresses()
        self._turn = (self._turn + 1) % len(addresses)
        return addresses[self._turn :] + addresses[: self._turn]

    def _covered(self) -> bool:
        return all(route.covers(self._known) for route in self._routes)

    def _forget(self, now: float, at_once: Collection[int]) -> tuple[int, ...]:
        away = [node_id for node_id, seen in self._seen_at.items() if now - seen > self._forget_after]
        left = tuple(dict.fromkeys([*at_once, *(node_id for node_id in away if node_id not in self._given)]))
        for node_id in left:
            del self._known[node_id], self._seen_at[node_id]
        return left


def _mistaken(places: Mapping[int, HostPort], brokers: Iterable[Broker]) -> list[Mistaken]:
    """Those of these addresses at which the cluster says that other brokers are."""
    at = {HostPort(broker.host, broker.port): broker.node_id for broker in brokers if broker.host}
    return [Mistaken(node_id, place, at[place]) for node_id, place in sorted(places.items()) if at.get(place, node_id) != node_id]
