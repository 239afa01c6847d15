"""What this proxy shares with others: sums by the ledger, what has to be known at once by the events. In: settings, the engine.
Out: an engine that knows of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from proxy.config.ledger import Ledger as Settings
from proxy.fleet.events import BLOCK, FleetEventStream
from proxy.fleet.ledger import LedgerLink
from proxy.fleet.members import EVERY, NAME, Members
from proxy.fleet.store import Store
from proxy.observe.metrics import LedgerStands
from proxy.observe.operations import Log
from proxy.session.presence import Presence
from quota.engine import Engine
from quota.fleet_events import Event, FleetEvents

OpenStore = Callable[[float], Store]
"""Makes a client of the store, which may take so many seconds to answer."""


def redis_store(settings: Settings, boot: str) -> OpenStore:
    """Clients of the Redis of the settings."""
    from proxy.fleet.redis_store import RedisStore  # redis-py takes memory: only where it is needed

    return lambda patience: RedisStore(settings, boot, patience=patience)


class Fleet:
    """`boot` identifies this start of this proxy; it is unique."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        boot: str,
        clock: Callable[[], float],
        log: Log,
        open_store: OpenStore,
    ) -> None:
        self.link = LedgerLink(settings, engine.publish(), open_store(settings.timeout), clock, log)
        self.events = FleetEvents(engine, clock)
        writer, reader = open_store(settings.timeout), open_store(BLOCK + settings.timeout)
        self._event_stream = FleetEventStream(self.events, writer, reader, boot, clock, pause=settings.sync_interval)
        self._interval, self._clock = settings.sync_interval, clock
        self._presence: Presence | None = None
        self._members: Members | None = None
        self.events.others = self._hear

    def count(self, presence: Presence) -> None:
        """Connections are limited across the fleet."""
        self._presence = presence

    def introduce(self, members: Members) -> None:
        """Processes tell each other that they are there."""
        self._members = members

    def processes(self) -> list[dict[str, Any]]:
        """All that are there, for the console."""
        return [] if self._members is None else self._members.seen(self._clock())

    def _hear(self, boot: str, event: Event, age: float, now: float) -> None:
        if self._members is not None and event[0] == NAME:
            self._members.hear(boot, event, age, now)
        elif self._presence is not None:
            self._presence.hear(boot, event, age, now)
        else:
            raise ValueError(f"no event of a quota, nor counts: {event!r}")

    def stands(self) -> LedgerStands:
        """For metrics."""
        link, ledger, events, now = self.link, self.link.ledger, self.events, self._clock()
        counts = ledger.counts
        return LedgerStands(
            up=link.up,
            age=ledger.age(now),
            proxies=ledger.proxies,
            owners=len(ledger),
            behind=ledger.behind(),
            syncs=link.syncs,
            sync_seconds=link.seconds,
            failures=link.failures,
            synced=counts.synced,
            learned=counts.learned,
            estimated=counts.estimated,
            restarts=counts.restarts,
            told=events.told,
            heard=events.heard,
            lost=events.lost,
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.link.run())
            group.create_task(self._event_stream.run())
            if self._presence is not None:
                group.create_task(self._tell_presence(self._presence))
            if self._members is not None:
                group.create_task(self._tell_members(self._members))

    async def _tell_presence(self, presence: Presence) -> None:
        while True:
            now = self._clock()
            presence.sweep(now, away=not self.link.up)
            counts = presence.tell(now) if self.link.up else None
            if counts is not None:
                self.events.tell(counts)
            await asyncio.sleep(self._interval)

    async def _tell_members(self, members: Members) -> None:
        while True:
            if not self.link.up:
                await asyncio.sleep(self._interval)
                continue
            self.events.tell(members.tell())
            await asyncio.sleep(EVERY)
            if self.link.up:  # else it is this process that hears nothing
                members.sweep(self._clock())
