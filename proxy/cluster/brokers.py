"""The brokers of the cluster, and the ports of the proxy that stand for them.

In: lists of live brokers, from Metadata responses. Out: for a node id the real address (to connect to) and the port (to
show to clients). Broker `id` is at port `first + id % size` of the range, so that all proxies of a cluster agree and
nothing changes at a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from proxy.config.units import HostPort, PortRange
from proxy.wire.metadata import Broker


@dataclass(frozen=True, slots=True)
class Change:
    """What a list of brokers changed."""

    joined: tuple[int, ...] = ()
    moved: tuple[int, ...] = ()
    left: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Hooks:
    """Whom to tell: `listen` opens a port (0: any) for a node id and returns the one it got, or None when it cannot;
    `unlisten` closes it."""

    listen: Callable[[int, int], int | None]
    unlisten: Callable[[int], None]
    changed: Callable[[Change], None]


class Brokers:
    """`forget_after` seconds a broker is kept that is no longer named: one that restarts is away for a while, and its
    clients come back to it."""

    def __init__(
        self, bootstrap: Iterable[HostPort], ports: PortRange, hooks: Hooks, clock: Callable[[], float], forget_after: float = 600.0
    ) -> None:
        self._bootstrap = list(bootstrap)
        self._turn = 0
        self._ports, self._hooks, self._clock, self._forget_after = ports, hooks, clock, forget_after
        self._known: dict[int, Broker] = {}
        self._seen_at: dict[int, float] = {}
        self._port_of: dict[int, int] = {}
        self._last: list[Broker] = []
        self.bootstrap_port = 0
        """Where the bootstrap listener is."""

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, brokers: list[Broker]) -> None:
        """These are the live brokers now."""
        now = self._clock()
        if brokers == self._last and not self._missing_listeners():
            for node_id in self._known.keys() & {broker.node_id for broker in brokers}:
                self._seen_at[node_id] = now
            self._forget(now, ())
            return
        self._last = brokers
        joined, moved = [], []
        for broker in sorted(brokers):
            if not broker.host:
                continue
            before = self._known.get(broker.node_id)
            self._known[broker.node_id] = broker
            self._seen_at[broker.node_id] = now
            if before is None:
                joined.append(broker.node_id)
            elif before != broker:
                moved.append(broker.node_id)
            self._listen(broker.node_id)
        self._forget(now, (tuple(joined), tuple(moved)))

    def broker_addresses(self, node_id: int) -> list[HostPort]:
        """Where a broker really is; empty when it has left the cluster."""
        broker = self._known.get(node_id)
        return [HostPort(broker.host, broker.port)] if broker else []

    def addresses(self) -> list[HostPort]:
        """Where the live brokers really are, then the bootstrap servers: whom to ask for the state of the cluster."""
        return list(dict.fromkeys([*(HostPort(broker.host, broker.port) for broker in self._last), *self._bootstrap]))

    def bootstrap_addresses(self) -> list[HostPort]:
        """The same, beginning with another one each time: where a client that bootstraps may be led."""
        addresses = self.addresses()
        self._turn = (self._turn + 1) % len(addresses)
        return addresses[self._turn :] + addresses[: self._turn]

    def port(self, node_id: int | None) -> int:
        """The port that stands for a broker; that of the bootstrap listener for None and for a broker that has none."""
        if node_id is None:
            return self.bootstrap_port
        return self._port_of.get(node_id) or self.bootstrap_port

    def _missing_listeners(self) -> bool:
        return self._known.keys() != self._port_of.keys()

    def _listen(self, node_id: int) -> None:
        if node_id not in self._port_of:
            port = self._hooks.listen(node_id, self._wanted_port(node_id))
            if port is not None:
                self._port_of[node_id] = port

    def _wanted_port(self, node_id: int) -> int:
        """The port of a broker; where two brokers would have the same, the next one that is free of the proxy's own."""
        first, last = self._ports
        if first == 0:
            return 0
        size = last - first + 1
        taken = set(self._port_of.values())
        ports = (first + (node_id + i) % size for i in range(size))
        return next((port for port in ports if port not in taken), first + node_id % size)

    def _forget(self, now: float, joined_moved: tuple[tuple[int, ...], tuple[int, ...]] | tuple[()]) -> None:
        left = tuple(node_id for node_id, seen in self._seen_at.items() if now - seen > self._forget_after)
        for node_id in left:
            del self._known[node_id], self._seen_at[node_id]
            if self._port_of.pop(node_id, None) is not None:
                self._hooks.unlisten(node_id)
        joined, moved = joined_moved or ((), ())
        if joined or moved or left:
            self._hooks.changed(Change(joined, moved, left))
