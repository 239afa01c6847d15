"""Brokers and topics, as sessions see the cluster. In: Metadata responses. Out: names of topic ids.
Reads large responses a little at a time."""

from __future__ import annotations

import asyncio

from proxy.cluster.brokers import Brokers
from proxy.cluster.topics import Topics
from proxy.wire.metadata import Broker
from proxy.wire.primitives import Buffer


class Directory:
    """The `Cluster` of all sessions. `brokers` is set once the listeners that stand for them are there."""

    brokers: Brokers

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self._working = False

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
