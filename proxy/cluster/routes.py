"""How the clients of one listener are led to brokers. Out: for a node id the (host, port) to show them.

- `PortRoute`  a port of its own for every broker. Broker `id` is at port `first + id % size` of the range, so that all
               proxies of a cluster agree and nothing changes at a restart.
- `NameRoute`  one port for all; the name that a client asks for in TLS (SNI) says which broker it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Protocol

from proxy.config.units import PortRange

Listen = Callable[[int, int], int | None]
"""Opens a port (0: any) for a node id: the one it got, or None when it cannot be had."""


class Route(Protocol):
    """The way from one listener to the brokers."""

    bootstrap_port: int
    """Where clients bootstrap, as they are told."""

    def cover(self, known: Collection[int]) -> None:
        """These are the brokers that can be reached; to be called until `covers` says so."""

    def covers(self, known: Collection[int]) -> bool: ...

    def endpoint(self, node_id: int | None, reached_at: str) -> tuple[str, int]:
        """What a client that reached the proxy at this host is shown: (host, port) of a broker, of the bootstrap for None."""


class PortRoute:
    """`advertise`: the host to show, None for the one at which a client reached the proxy. `reserved`: ports that no
    broker gets."""

    def __init__(
        self, advertise: str | None, ports: PortRange, reserved: Collection[int], listen: Listen, unlisten: Callable[[int], None]
    ) -> None:
        self._advertise, self._ports, self._reserved = advertise, ports, reserved
        self._listen, self._unlisten = listen, unlisten
        self._port_of: dict[int, int] = {}
        self.bootstrap_port = 0

    def covers(self, known: Collection[int]) -> bool:
        return set(known) == self._port_of.keys()

    def cover(self, known: Collection[int]) -> None:
        for node_id in self._port_of.keys() - set(known):
            del self._port_of[node_id]
            self._unlisten(node_id)
        for node_id in sorted(set(known) - self._port_of.keys()):
            port = self._listen(node_id, self._wanted(node_id))
            if port is not None:
                self._port_of[node_id] = port

    def endpoint(self, node_id: int | None, reached_at: str) -> tuple[str, int]:
        """A broker that has no port is shown at the bootstrap port."""
        port = None if node_id is None else self._port_of.get(node_id)
        return self._advertise or reached_at, port or self.bootstrap_port

    def _wanted(self, node_id: int) -> int:
        """The port of a broker; where that is taken, the next one that is free of the proxy's own."""
        first, last = self._ports
        if first == 0:
            return 0
        size = last - first + 1
        taken = {*self._port_of.values(), *self._reserved}
        ports = (first + (node_id + i) % size for i in range(size))
        return next((port for port in ports if port not in taken), first + node_id % size)


class NameRoute:
    """`broker_name` has `{id}` in it once."""

    def __init__(self, advertise: str, broker_name: str) -> None:
        self._advertise = advertise
        self.bootstrap_port = 0
        self._before, self._after = broker_name.replace("{advertise}", advertise).split("{id}")
        self._name = re.compile(rf"{re.escape(self._before)}(\d{{1,10}}){re.escape(self._after)}", re.IGNORECASE)

    def covers(self, known: Collection[int]) -> bool:  # noqa: ARG002
        return True

    def cover(self, known: Collection[int]) -> None: ...

    def endpoint(self, node_id: int | None, reached_at: str) -> tuple[str, int]:  # noqa: ARG002
        return (self._advertise if node_id is None else f"{self._before}{node_id}{self._after}"), self.bootstrap_port

    def node_of(self, server_name: str | None) -> int | None:
        """The broker that is meant; None for the bootstrap: no name, or another one."""
        match = self._name.fullmatch(server_name or "")
        return int(match[1]) if match else None
