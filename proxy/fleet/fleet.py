"""What this proxy shares with others: sums by the ledger, what has to be known at once by the events. In: settings, the engine.
Out: an engine that knows of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.config.ledger import Ledger as Settings
from proxy.fleet.events import BLOCK, FleetEventStream
from proxy.fleet.ledger import LedgerLink
from proxy.fleet.redis_store import RedisStore
from proxy.fleet.store import Store
from proxy.observe.metrics import LedgerStands
from proxy.observe.operations import Log
from proxy.session.budget import Census
from proxy.session.presence import Presence
from quota.engine import Engine
from quota.fleet_events import FleetEvents


def store_of(settings: Settings, boot: str, *, patience: float | None = None) -> Store:
    """The store that the settings ask for: the only place that knows which there are. `patience`: seconds that it may take to
    answer, if not `timeout`."""
    return RedisStore(settings, boot, patience=patience)


class Fleet:
    """`boot` identifies this start of this proxy; it is unique."""

    def __init__(self, settings: Settings, engine: Engine, boot: str, clock: Callable[[], float], log: Log) -> None:
        self.link = LedgerLink(settings, engine.publish(), store_of(settings, boot), clock, log)
        self.events = FleetEvents(engine, clock)
        reader = store_of(settings, boot, patience=BLOCK + settings.timeout)
        self._event_stream = FleetEventStream(self.events, store_of(settings, boot), reader, boot, clock)

        self._interval, self._clock = settings.sync_interval, clock
        self._presence: Presence | None = None

    def count(self, census: Census) -> None:
        """Connections of users are limited across the fleet."""
        self._presence = Presence(census)
        self.events.others = self._presence.hear

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

    async def _tell_presence(self, presence: Presence) -> None:
        while True:
            now = self._clock()
            presence.sweep(now, away=not self.link.up)
            counts = presence.tell(now) if self.link.up else None
            if counts is not None:
                self.events.tell(counts)
            await asyncio.sleep(self._interval)
