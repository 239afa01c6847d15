"""Carries what proxies tell each other at once (`quota.fleet_events`) over the stream of a store. In: the events of this proxy,
sent as they come. Out: those of the others, in the order in which each sent them, with their age; at start those that still matter.
Nothing waits for it. How old an event is follows from when it was written and the store's clock, also if it is read late, as after
an outage.

An entry has these fields: `b` is the proxy that tells, `e` a JSON list of events, `w` for how many milliseconds each of them waited
until it was sent (left out if all are 0)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Final

from proxy.backoff import Backoff, retry
from proxy.fleet.store import Store, StoreError
from quota.fleet_events import FleetEvents, TimedEvent

AT_ONCE: Final = 200
"""Events of one entry at most: reading more of them would keep the event loop busy for too long."""
PAGE: Final = 50
"""Entries that are read at once."""
LONGEST_PAUSE: Final = 0.1
"""Seconds between two entries of this proxy at most, while it has no full one to tell: so what many events say stands in few
entries."""
BLOCK: Final = 2.0
"""Seconds that the store waits for a new entry before it answers."""
TRIM: Final = 60.0
MEASURE: Final = 60.0
"""Seconds after which the store's clock is looked at again."""
FIRST_RETRY, SLOWEST_RETRY = 0.05, 0.5


class FleetEventStream:
    """`writer` and `reader` are clients of the same store; the reader waits for up to `BLOCK` seconds at a time. `pause`: seconds
    between two entries."""

    def __init__(
        self,
        events: FleetEvents,
        writer: Store,
        reader: Store,
        boot: str,
        clock: Callable[[], float],
        pause: float = LONGEST_PAUSE,
    ) -> None:
        self._pause = min(pause, LONGEST_PAUSE)
        self._events, self._writer, self._reader, self._boot, self._clock = events, writer, reader, boot, clock
        self._position = ""
        self._something = asyncio.Event()
        self._next_trim = self._next_measure = -inf
        self._ahead = 0.0
        """what the store's clock is ahead of this proxy's monotonic one, in seconds"""
        events.wake = self._something.set

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for work in (self._write, self._follow):
                    group.create_task(retry(work, Backoff(FIRST_RETRY, SLOWEST_RETRY), errors=StoreError))
        finally:
            await self._reader.close()
            await self._writer.close()

    async def _write(self) -> None:
        await self._something.wait()
        self._something.clear()
        while taken := self._events.take(AT_ONCE):
            try:
                await self._writer.append_event(self._fields(taken))
            except (StoreError, asyncio.CancelledError):
                self._events.put_back(taken)
                self._something.set()
                raise
            if len(self._events) < AT_ONCE:
                await asyncio.sleep(self._pause)
            if self._clock() >= self._next_trim:
                self._next_trim = self._clock() + TRIM
                life = self._events.life
                await self._writer.forget_events(await self._writer.time() - life, life)

    def _fields(self, taken: Sequence[tuple[str, TimedEvent]]) -> dict[str, str]:
        """The entry for these events."""
        now = self._clock()
        events = [event for _, (_, event) in taken]
        waited = [max(int((now - came) * 1000), 0) for _, (came, _) in taken]
        entry = {"b": self._boot, "e": json.dumps(events, separators=(",", ":"))}
        return entry | {"w": json.dumps(waited, separators=(",", ":"))} if any(waited) else entry

    async def _measure(self) -> None:
        """Compare the clocks: after any error, as another server may answer then, and every now and then."""
        self._ahead = await self._writer.time() - self._clock()
        self._next_measure = self._clock() + MEASURE

    async def _follow(self) -> None:
        """Read on from the last position; at first from the oldest event that still matters."""
        if self._clock() >= self._next_measure:
            await self._measure()
        self._next_measure, planned = -inf, self._next_measure  # until this read has succeeded
        if not self._position:
            self._position = self._reader.position_at(self._clock() + self._ahead - self._events.life)
        for entry in await self._reader.read_events(self._position, PAGE, BLOCK):
            self._hear(entry.fields, max(self._clock() + self._ahead - entry.written_at, 0.0))
            self._position = entry.position
        self._next_measure = planned

    def _hear(self, fields: Mapping[str, str], age: float) -> None:
        who = fields.get("b", "")
        if who == self._boot:
            return
        try:
            events, waited = json.loads(fields.get("e", "[]")), json.loads(fields.get("w", "[]"))
        except (ValueError, RecursionError):
            return
        if not isinstance(events, list):
            return
        ages = waited if isinstance(waited, list) and len(waited) == len(events) else [0] * len(events)
        for event, ms in zip(events, ages, strict=True):
            own = ms / 1000 if type(ms) is int and ms > 0 else 0.0
            self._events.hear(who, [event], age + own, self._clock())
