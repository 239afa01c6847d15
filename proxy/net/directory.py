"""Brokers and topics, as sessions see the cluster. In: Metadata responses. Out: endpoints to show, names of topic ids.
Reads large responses a little at a time."""

from __future__ import annotations

import asyncio

from proxy.cluster.brokers import Brokers
from proxy.cluster.topics import Topics
from proxy.wire.metadata import Broker
from proxy.wire.primitives import Buffer


class Directory:
    """The `Cluster` of all sessions. `advertise`: the host name to show, None for the address at which each client
    reached the proxy."""

    def __init__(self, brokers: Brokers, topics: Topics, advertise: str | None) -> None:
        self.brokers, self.topics, self.advertise = brokers, topics, advertise
        self._working = False

    def port(self, node_id: int | None) -> int:
        return self.brokers.port(node_id)

    def learn_brokers(self, brokers: list[Broker]) -> None:
        self.brokers.learn(brokers)

    def learn_topics(self, frame: Buffer, version: int) -> None:
        if self.topics.learn(frame, version) and not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._work)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.topics.name(topic_id)

    def _work(self) -> None:
        self._working = self.topics.work()
        if self._working:
            asyncio.get_running_loop().call_soon(self._work)
