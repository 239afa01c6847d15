"""Follows the cluster: asks for its brokers, again and again, and once how many partitions a topic gets that does not say. In:
who asks it. Out: brokers learnt, and whether the cluster answers.

A cluster that wants authentication says nothing to a proxy without an identity of its own; then brokers are learnt from what
clients are told, and the cluster counts as up because it answers at all. With an identity, a login that fails means that the
cluster is away. A failure is logged once, and so is its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.backoff import Backoff
from proxy.cluster.brokers import Brokers
from proxy.observe.operations import Log
from proxy.upstream.cluster_client import ClusterClient
from proxy.upstream.connector import BrokerError
from proxy.upstream.directory import Directory
from proxy.upstream.moments import next_moment
from proxy.wire.metadata import Broker

FIRST_RETRY = 0.5
SLOWEST_RETRY = 5.0


class MetadataPoller:
    """`refresh` in seconds. What it learns goes to `directory`; all topics are asked for while `wants_topics`. `served` is called
    whenever the cluster answers."""

    def __init__(
        self,
        brokers: Brokers,
        directory: Directory,
        wants_topics: Callable[[], bool],
        refresh: float,
        cluster: ClusterClient,
        log: Log,
        served: Callable[[], None] = lambda: None,
    ) -> None:
        self._brokers, self._directory, self._wants_topics = brokers, directory, wants_topics
        self._knows_default = False
        self._refresh, self._cluster, self._log = refresh, cluster, log
        self._served = served
        self.up = False
        """True if the cluster answered the last request."""
        self._last_status = ""
        self._topics_warned = False
        self.answered = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        slowest = min(SLOWEST_RETRY, self._refresh)
        backoff = Backoff(FIRST_RETRY, slowest)
        while True:
            await self.ask()
            if self.up:
                backoff = Backoff(slowest, slowest)  # short delays are for the start alone
                await next_moment(self._refresh)
            else:
                await backoff.wait()

    async def ask(self) -> None:
        """Ask once."""
        try:
            brokers = await self._cluster.brokers()
        except BrokerError as e:
            if e.refused:
                self._works(f"{e}; its brokers are learnt from the responses to clients", "warning")
            else:
                self._fails(str(e))
            return
        self._served()
        self._brokers.learn(brokers)
        await self._ask_default(brokers)
        await self._ask_topics(brokers)
        self._works("the cluster answers", "info")

    async def _ask_default(self, brokers: list[Broker]) -> None:
        """Of any broker; one that does not tell is not asked again before the cluster was away."""
        if self._knows_default or not brokers:
            return
        try:
            partitions = await self._cluster.default_partitions(brokers[0])
        except BrokerError:
            return
        self._knows_default = True
        if partitions is not None:
            self._directory.learn_default_partitions(partitions)

    async def _ask_topics(self, brokers: list[Broker]) -> None:
        """Of any broker. One that does not tell leaves it to what clients ask for."""
        if not self._wants_topics() or not brokers:
            return
        try:
            self._directory.learn_all_topics(*await self._cluster.topics(brokers[0]))
        except BrokerError as e:
            if not self._topics_warned:
                self._log.warning(
                    "topics not known", reason=str(e), detail="thresholds of topics use the topics that clients ask for"
                )
            self._topics_warned = True
        else:
            self._topics_warned = False

    def _works(self, status: str, level: str) -> None:
        self.up = True
        self.answered.set()
        if status != self._last_status:
            self._last_status = status
            getattr(self._log, level)("upstream is up", detail=status, brokers=len(self._brokers))

    def _fails(self, reasons: str) -> None:
        if self.up or not self._last_status:
            self._log.error("upstream is away", reason=reasons, detail="the proxy tries again")
            self._last_status, self._knows_default = "away", False
        self.up = False
