"""Which port of a listener stands for which broker. In: a range of ports, and the ids if they are named. Out: for an id its port, a
function of the id alone: so all proxies agree on it, and nothing moves at a restart.

Two brokers may want one port. Then the one with the lowest id has it and the other has none: a client that was led to another
broker than it meant would be worse off than one that is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from proxy.config.units import PortRange

REMEDY: Final = "name all ids in `broker_ids`, or give `broker_ports` more ports"


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """`ports`: (0, 0) for whatever is free. `ids`: those that have ports, in their order; where there are none, broker `id` is at
    `first + id % size`. `reserved`: ports that no broker gets."""

    ports: PortRange
    ids: tuple[range, ...] = ()
    reserved: frozenset[int] = frozenset()

    def of(self, node_id: int) -> int | None:
        """The port of a broker: 0 for any free one, None where there is none for it."""
        first, last = self.ports
        if first == 0:
            return 0
        if not self.ids:
            return first + node_id % (last - first + 1)
        for part in self.ids:
            if node_id in part:
                return first + part.index(node_id)
            first += len(part)
        return None

    def refused(self, node_ids: Collection[int]) -> dict[int, str]:
        """Those of these brokers that have no port, and why."""
        owners = self._owners(node_ids)
        reasons = ((node_id, self._reason(node_id, owners)) for node_id in sorted(node_ids))
        return {node_id: reason for node_id, reason in reasons if reason is not None}

    def _owners(self, node_ids: Iterable[int]) -> dict[int, int]:
        """Port → the lowest of the ids that want it."""
        owners: dict[int, int] = {}
        for node_id in sorted(node_ids):
            if port := self.of(node_id):
                owners.setdefault(port, node_id)
        return owners

    def _reason(self, node_id: int, owners: dict[int, int]) -> str | None:
        port = self.of(node_id)
        if port is None:
            return "it is not among `broker_ids`"
        if port in self.reserved:
            return f"its port {port} is one at which the proxy itself listens"
        owner = owners.get(port, node_id)
        return None if owner == node_id else f"its port {port} is that of broker {owner}"
