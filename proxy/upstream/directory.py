"""Brokers and topics, as sessions see the cluster. In: Metadata responses. Out: names of topic ids, sizes of topics.
Reads large responses a little at a time."""

from __future__ import annotations

import asyncio

from proxy.cluster.brokers import Brokers
from proxy.cluster.topics import Topics
from proxy.wire.metadata import Broker
from proxy.wire.primitives import Buffer


class Directory:
    """The `Cluster` of all sessions. `default_partitions`: what the operator says of them; None for what the cluster says, and 1
    until it does."""

    def __init__(self, brokers: Brokers, topics: Topics, default_partitions: int | None) -> None:
        self.brokers, self.topics = brokers, topics
        self._default_partitions = default_partitions
        self._learnt_default = 1
        self._working = False

    def learn_brokers(self, brokers: list[Broker]) -> None:
        self.brokers.learn(brokers)

    def learn_topics(self, frame: Buffer, version: int) -> None:
        if self.topics.learn(frame, version):
            self._begin()

    def learn_all_topics(self, frame: Buffer, version: int) -> None:
        """A Metadata response that names all topics."""
        self.topics.learn_all(frame, version)
        self._begin()

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.topics.name(topic_id)

    def topic_size(self, name: str) -> int | None:
        return self.topics.size(name)

    def learn_size(self, name: str, partitions: int) -> None:
        self.topics.learn_size(name, partitions)

    def forget_topic(self, name: str) -> None:
        self.topics.deleted(name)

    @property
    def default_partitions(self) -> int:
        return self._learnt_default if self._default_partitions is None else self._default_partitions

    def learn_default_partitions(self, partitions: int) -> None:
        self._learnt_default = partitions

    def _begin(self) -> None:
        if not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        self._working = self.topics.work()
        if self._working:
            asyncio.get_running_loop().call_soon(self._work)
