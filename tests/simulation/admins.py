"""A client that creates topics and deletes them, as fast as its rate of controller mutations allows. In: chance, a user. Out:
requests, one after the other; what was told of them has to be so at the brokers, in the history.

It does as it is told: what is refused comes again after the throttle. When a connection ends under a request, nobody knows what
became of it, so it is sent again, and what is done already counts as done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any, Final

from tests.simulation import messages as m
from tests.simulation.brokers import EXISTS, NONE, UNKNOWN_TOPIC, Cluster
from tests.simulation.clients import HOLD, Connection, History
from tests.simulation.network import Network, Node, on

REFUSED: Final = 89
"""THROTTLING_QUOTA_EXCEEDED"""
VERSIONS: Final = ({m.CREATE: 6, m.DELETE: 5}, {m.CREATE: 4, m.DELETE: 3})
"""Those that know of being refused (KIP-599), and those that are only told to wait."""
MOST: Final = 8
"""Partitions of a topic."""
AT_ONCE: Final = 3
"""Topics of a request."""
WAITING: Final = 8
"""Topics that are waited for, after which no more are wanted."""
HOLD_OLD: Final = 30.0
"""Seconds that a request which cannot be refused is held at most for each other connection of the user: until the mute that it
brought is over (docs/controller-mutations.md). One that this client had before counts, too."""
PATIENCE: Final = 120.0
"""Seconds for an answer."""


class Job:
    """A topic that is to be created, or to go. `unknown`: it was asked for, and no answer came."""

    __slots__ = ("key", "name", "partitions", "unknown")

    def __init__(self, key: int, name: str, partitions: int) -> None:
        self.key, self.name, self.partitions, self.unknown = key, name, partitions, False


class Admin:
    """One such client. `pace`: topics per second; `others`: how many more its user has; `connected` is called for each connection
    that it opens."""

    def __init__(
        self, network: Network, cluster: Cluster, history: History, chance: Random, number: int, user: str,
        bootstrap: tuple[str, int], pace: float, others: int, connected: Callable[[], None],
    ) -> None:  # fmt: skip
        self._network, self._cluster, self._history, self._chance = network, cluster, history, chance
        self.user, self._bootstrap, self._pace, self._connected = user, bootstrap, pace, connected
        self.client_id = f"admin-{number}"
        self._versions = chance.choice(VERSIONS)
        self._others, self._opened = others, 0
        self._loop, self._context = network.loop, on(Node(self.client_id))
        self._jobs: deque[Job] = deque()
        self._there: list[Job] = []
        self._wanted = 0
        self._connection: Connection | None = None
        self._wait_until = 0.0
        self._stopped = self._closed = False

    def start(self) -> None:
        self._context.run(self._loop.call_later, self._chance.random(), self._want)
        self._context.run(self._loop.call_later, self._chance.random(), self._tick)

    def stop(self) -> None:
        """It wants nothing new; what it wants is still done."""
        self._stopped = True

    def close(self) -> None:
        self._closed = True
        if self._connection is not None and not self._connection.over:
            self._connection.close(at_once=False)

    @property
    def left(self) -> int:
        """Topics that it waits for."""
        return len(self._jobs)

    def _want(self) -> None:
        """Another topic, or one less, unless it waits for too many."""
        if self._stopped:
            return
        self._loop.call_later(self._chance.expovariate(self._pace), self._want)
        if len(self._jobs) >= WAITING:
            return
        if self._there and self._chance.random() < 0.4:
            gone = self._there.pop(self._chance.randrange(len(self._there)))
            self._jobs.append(Job(m.DELETE, gone.name, gone.partitions))
        else:
            self._wanted += 1
            name = f"{self.user}.{self.client_id}.{self._wanted}"
            self._jobs.append(Job(m.CREATE, name, self._chance.randint(1, MOST)))
        self._send()

    def _tick(self) -> None:
        if self._closed:
            return
        self._loop.call_later(1.0, self._tick)
        now, connection = self._loop.time(), self._connection
        if connection is None:
            self._context.run(self._loop.create_task, self._open())
        elif connection.asked and now - connection.asked[0].sent > PATIENCE:
            connection.look_at_wait(connection.asked[0], now)
            connection.close()
        self._send()

    async def _open(self) -> None:
        hold = HOLD if self._versions is VERSIONS[0] else HOLD_OLD * (self._others + (self._opened > 0))
        made = self._connection = Connection(self._history, self.user, self.client_id, self._send, self._lost, hold)
        self._opened += 1
        self._connected()
        try:
            await self._loop.create_connection(lambda: made, *self._bootstrap)
        except OSError:
            made.over = True
            self._lost()
        else:
            if self._closed and not made.over:
                made.close()

    def _lost(self) -> None:
        self._connection = None

    def _send(self) -> None:
        connection = self._connection
        if connection is None or not connection.ready or connection.over or connection.asked or self._closed:
            return
        if not self._jobs or self._loop.time() < self._wait_until:
            return
        key = self._jobs[0].key
        jobs = [job for job in self._jobs if job.key == key][: self._chance.randint(1, AT_ONCE)]
        version, before = self._versions[key], [job.unknown for job in jobs]
        for job in jobs:
            job.unknown = True  # until an answer comes
        given: dict[str, Any] = {"timeout": timedelta(seconds=30), "validate_only": False}
        if key == m.CREATE:
            topics = [
                m.part(
                    key, version, "CreatableTopic", name=job.name, num_partitions=job.partitions, replication_factor=1,
                    assignments=(), configs=(),
                )
                for job in jobs
            ]  # fmt: skip
            given["topics"] = tuple(topics)
        else:
            given["topic_names"] = tuple(job.name for job in jobs)

        def answered(body: Any, throttle: float) -> None:
            self._wait_until = self._loop.time() + throttle
            told = body.topics if key == m.CREATE else body.responses
            codes = {str(it.name): int(it.error_code) for it in told}
            if codes.keys() != {job.name for job in jobs}:
                self._history.fail(f"{self.client_id} asked about {len(jobs)} topics and was answered about {sorted(codes)}")
            for job, unknown in zip(jobs, before, strict=True):
                self._told(job, codes.get(job.name, -1), unknown=unknown)
            self._send()

        connection.ask(key, version, answered, **given)

    def _told(self, job: Job, code: int, *, unknown: bool) -> None:
        """What became of a topic; `unknown`: it may have been done before. Nobody else makes or deletes topics of these names."""
        there, new = job.name in self._cluster.topics, job.key == m.CREATE
        job.unknown = unknown
        if code == REFUSED:
            if self._versions is not VERSIONS[0]:
                self._history.fail(f"{self.client_id} was told an error that its version does not have")
            if self._history.calm(self.user):
                self._history.fail(f"{self.user} is within its limits and was refused {job.name}")
            if there is new and not unknown:
                self._history.fail(f"{job.name} was refused and {'created' if new else 'deleted'}")
            return
        done = code == NONE or (unknown and code == (EXISTS if new else UNKNOWN_TOPIC))
        if not done:
            self._history.fail(f"{self.client_id} got error {code} for {job.name}")
        elif there is not new:
            self._history.fail(f"{job.name} was told to be {'created' if new else 'deleted'} and is not")
        self._jobs.remove(job)
        if new and done:
            self._there.append(job)
