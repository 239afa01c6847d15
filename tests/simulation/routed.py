"""A client that has partitions, and a connection to the leader of each: what producers and consumers have in common. In:
partitions, a bootstrap address. Out: connections that can be used. It leaves to others: what is asked there.

Leaders and addresses are those that Metadata tells. A connection that was lost is opened again after a pause."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, Generic, TypeVar

from tests.simulation import messages as m
from tests.simulation.clients import Connection, History
from tests.simulation.network import Network, Node, on


class Part:
    """A partition as a client sees it; `leader` -1 while none is known."""

    def __init__(self, topic: str, index: int) -> None:
        self.topic, self.index, self.leader = topic, index, -1


P = TypeVar("P", bound=Part)


class Routed(Generic[P]):
    """One such client. `backoff`: seconds before it connects again, about; `patience`: seconds for an answer."""

    def __init__(
        self, network: Network, history: History, chance: Random, client_id: str, user: str, parts: Sequence[P],
        bootstrap: tuple[str, int], backoff: float, patience: float,
    ) -> None:  # fmt: skip
        self.network, self.history, self.chance, self.user, self.client_id = network, history, chance, user, client_id
        self.parts = list(parts)
        self._bootstrap, self._backoff, self._patience = bootstrap, backoff, patience
        self.node = Node(client_id)
        self._context, self._loop = on(self.node), network.loop
        self._connections: dict[int, Connection | None] = {}
        self._addresses: dict[int, tuple[str, int]] = {-1: bootstrap}
        self._retry_at: dict[int, float] = {}
        self._asking_metadata, self._metadata_at = False, -1.0
        self._opened = 0
        self.stopped = self.closed = False

    def start(self) -> None:
        self._context.run(self._loop.call_later, self.chance.random(), self._tick)

    def stop(self) -> None:
        """Nothing new; what is there still goes."""
        self.stopped = True

    def close(self) -> None:
        self.closed = True
        for connection in list(self._connections.values()):
            if connection is not None and not connection.over:
                connection.close(at_once=False)

    def _send(self) -> None:
        """Send what may go now."""
        raise NotImplementedError

    def _dropped(self, broker: int, connection: Connection) -> None:
        """A connection is over: what was asked there has no answer."""
        raise NotImplementedError

    def _tick(self) -> None:
        """Once a second: metadata that is old, answers that do not come."""
        if self.closed:
            return
        self._loop.call_later(1.0, self._tick)
        now = self._loop.time()
        for connection in list(self._connections.values()):
            if connection is not None and connection.asked and now - connection.asked[0].sent > self._patience:
                connection.look_at_wait(connection.asked[0], now)
                connection.close()
        if now - self._metadata_at > 10:
            self._refresh()
        self._send()

    def _by_leader(self, parts: Sequence[P]) -> dict[int, list[P]]:
        """Those that have a leader; metadata is asked for where one has none."""
        now, found = self._loop.time(), dict[int, list[P]]()
        for part in parts:
            if part.leader >= 0:
                found.setdefault(part.leader, []).append(part)
            elif now - self._metadata_at > 0.5:
                self._refresh()
        return found

    def _connection(self, broker: int) -> Connection | None:
        """One that can be used now, else None: it is opened, or opened again after a pause."""
        if broker in self._connections:
            found = self._connections[broker]
            return found if found is not None and found.ready else None
        address = self._addresses.get(broker)
        now = self._loop.time()
        if address is None or now < self._retry_at.get(broker, 0.0) or self.closed:
            return None
        self._connections[broker] = None
        self._context.run(self._loop.create_task, self._open(broker, address))
        return None

    async def _open(self, broker: int, address: tuple[str, int]) -> None:
        def down() -> None:
            self._lost(broker, made)

        made = Connection(self.history, self.user, self.client_id, self._send, down)
        self._opened += 1
        made.number_of = self._opened
        self._connections[broker] = made
        try:
            await self._loop.create_connection(lambda: made, *address)
        except OSError:
            made.over = True
            down()
        else:
            if self.closed and not made.over:
                made.close()

    def _lost(self, broker: int, connection: Connection) -> None:
        now = self._loop.time()
        if self._connections.get(broker) is connection:
            del self._connections[broker]
        self._retry_at[broker] = now + self._backoff * self.chance.uniform(1, 3)
        if broker >= 0:
            self._metadata_at = -100.0
        else:
            self._asking_metadata = False
        self._dropped(broker, connection)

    def _refresh(self) -> None:
        connection = self._connection(-1)
        if connection is None or self._asking_metadata:
            return
        self._asking_metadata = True
        names = sorted({part.topic for part in self.parts})
        topics = tuple(m.part(m.METADATA, 9, "MetadataRequestTopic", name=name) for name in names)
        connection.ask(
            m.METADATA, 9, self._told, topics=topics, allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
        )  # fmt: skip

    def _told(self, body: Any, _: float) -> None:
        self._asking_metadata, self._metadata_at = False, self._loop.time()
        for broker in body.brokers:
            self._addresses[int(broker.node_id)] = str(broker.host), int(broker.port)
        leaders = {(str(t.name), int(p.partition_index)): int(p.leader_id) for t in body.topics for p in t.partitions}
        for part in self.parts:
            part.leader = leaders.get((part.topic, part.index), -1)
            if part.leader < 0:
                self._metadata_at = self._loop.time() - 9.5
        self._send()
