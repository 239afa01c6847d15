"""How the clients of one listener are led to brokers. Out: for a node id the (host, port) to show them.

- `PortRoute`  a port of its own for every broker, which its id alone says (`config.broker_ports`).
- `NameRoute`  one port for all; the name that a client asks for in TLS (SNI) says which broker it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from proxy.config.broker_ports import BrokerPorts

Listen = Callable[[int, int], int | None]
"""Opens a port (0: any) for a node id: the one it got, None where no more are opened; OSError when it cannot be had."""
Complain = Callable[[int, str], None]
"""Is told of a broker that cannot be reached, and why; again only when there is another reason."""
NOWHERE: Final = "broker-{id}-has-no-port.invalid"
"""The host of a broker that cannot be reached: a name that no DNS knows (RFC 2606), so that clients fail at once, and their logs
say why."""


class Route(Protocol):
    """The way from one listener to the brokers."""

    bootstrap_port: int
    """Where clients bootstrap, as they are told."""

    @property
    def refused(self) -> Mapping[int, str]:
        """Brokers that cannot be reached, and why."""

    def cover(self, known: Collection[int]) -> None:
        """These are the brokers that can be reached; to be called until `covers` says so."""

    def covers(self, known: Collection[int]) -> bool: ...

    def endpoint(self, node_id: int | None, reached_at: str) -> tuple[str, int]:
        """What a client that reached the proxy at this host is shown: (host, port) of a broker, of the bootstrap for None."""


class PortRoute:
    """`advertise`: the host to show, None for the one at which a client reached the proxy."""

    def __init__(
        self, advertise: str | None, ports: BrokerPorts, listen: Listen, unlisten: Callable[[int], None], complain: Complain
    ) -> None:
        self._advertise, self._ports = advertise, ports
        self._listen, self._unlisten, self._complain = listen, unlisten, complain
        self._port_of: dict[int, int] = {}
        self._refused: dict[int, str] = {}
        self._for_good: set[int] = set()
        """those of them that have no port as long as the brokers are the same"""
        self.bootstrap_port = 0

    @property
    def refused(self) -> Mapping[int, str]:
        return self._refused

    def covers(self, known: Collection[int]) -> bool:
        return set(known) == self._port_of.keys() | self._for_good

    def cover(self, known: Collection[int]) -> None:
        refused = self._ports.refused(known)
        self._for_good = set(refused)
        wanted = set(known) - self._for_good
        for node_id in self._port_of.keys() - wanted:
            del self._port_of[node_id]
            self._unlisten(node_id)
        for node_id in sorted(wanted - self._port_of.keys()):
            try:
                port = self._listen(node_id, self._ports.of(node_id) or 0)
            except OSError as e:
                refused[node_id] = f"its port {self._ports.of(node_id)} cannot be had: {e.strerror}"
            else:
                if port is not None:
                    self._port_of[node_id] = port
        before, self._refused = self._refused, refused
        for node_id, reason in refused.items():
            if before.get(node_id) != reason:
                self._complain(node_id, reason)

    def endpoint(self, node_id: int | None, reached_at: str) -> tuple[str, int]:
        """A broker that is not known yet is shown at the port that it will have; one that cannot be reached, nowhere: at any other
        port its clients would be led to another broker."""
        host = self._advertise or reached_at
        if node_id is None:
            return host, self.bootstrap_port
        port = self._port_of.get(node_id) or self._port_to_be(node_id)
        return (host, port) if port else (NOWHERE.format(id=node_id), self.bootstrap_port)

    def _port_to_be(self, node_id: int) -> int | None:
        if node_id in self._refused or node_id in self._ports.refused({*self._port_of, node_id}):
            return None
        port = self._ports.of(node_id)
        return None if port in self._port_of.values() else port


class NameRoute:
    """`broker_name` has `{id}` in it once."""

    def __init__(self, advertise: str, broker_name: str) -> None:
        self._advertise = advertise
        self.bootstrap_port = 0
        self._before, self._after = broker_name.replace("{advertise}", advertise).split("{id}")
        self._name = re.compile(rf"{re.escape(self._before)}(\d{{1,10}}){re.escape(self._after)}", re.IGNORECASE)

    @property
    def refused(self) -> Mapping[int, str]:
        return {}

    def covers(self, known: Collection[int]) -> bool:  # noqa: ARG002
        return True

    def cover(self, known: Collection[int]) -> None: ...

    def endpoint(self, node_id: int | None, reached_at: str) -> tuple[str, int]:  # noqa: ARG002
        return (self._advertise if node_id is None else f"{self._before}{node_id}{self._after}"), self.bootstrap_port

    def node_of(self, server_name: str | None) -> int | None:
        """The broker that is meant; None for the bootstrap: no name, or another one."""
        match = self._name.fullmatch(server_name or "")
        return int(match[1]) if match else None
