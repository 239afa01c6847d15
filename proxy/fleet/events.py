"""Carries what proxies tell each other at once (`quota.fleet_events`) over a stream in Redis. In: the events of this proxy, sent
as they come. Out: those of the others, in the order in which each told them, with their age; at start those that still matter.
Nothing waits for it. How old an event is follows from its id and the store's clock, also where it is read late, as after an outage.

The stream is `{namespace/1/0}:events`: `b` names who tells, `e` is a JSON list of events, `w` how many milliseconds they waited
until they could be told, 0 if it is not there. It is cut by number and by age."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from proxy.fleet.redis_store import RedisStore
from proxy.fleet.store import StoreError
from quota.fleet_events import FleetEvents, TimedEvent

AT_ONCE: Final = 200
"""Events of one entry: so many hold up the loop for a moment only."""
PAGE: Final = 50
"""Entries that are read at once."""
LONGEST: Final = 1_000_000
"""Entries that the stream keeps. It is cut by age; this is for the case that nobody does that. 20 proxies that make an entry every
`PAUSE` for an hour stay below it, so nobody can push out what others told by telling much: `quota.fleet_events` bounds what each
user may tell."""
PAUSE: Final = 0.1
"""Seconds between two entries of this proxy, while it has no full one to tell: so what many events say stands in few entries."""
BLOCK: Final = 2.0
"""Seconds that Redis waits for something to tell."""
TRIM: Final = 60.0
MEASURE: Final = 60.0
"""Seconds after which the store's clock is looked at again."""
FIRST_RETRY, SLOWEST_RETRY = 0.05, 0.5


class FleetEventStream:
    """`writer` and `reader` are clients of the same Redis; the reader's has to be patient for longer than `BLOCK`."""

    def __init__(self, events: FleetEvents, writer: RedisStore, reader: RedisStore, boot: str, clock: Callable[[], float]) -> None:
        self._events, self._writer, self._reader, self._boot, self._clock = events, writer, reader, boot, clock
        self._key = writer.key(0, "events")
        self._something = asyncio.Event()
        self._next_trim = self._next_measure = -inf
        self._ahead = 0.0
        """what the store's clock is ahead of this proxy's monotonic one, in seconds"""
        events.wake = self._something.set

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_again(self._write))
                group.create_task(_again(self._follow()))
        finally:
            await self._reader.close()
            await self._writer.close()

    async def _write(self) -> None:
        await self._something.wait()
        self._something.clear()
        while taken := self._events.take(AT_ONCE):
            entry = self._entry(taken)
            try:
                await self._writer.ask("xadd", self._key, entry, maxlen=LONGEST, approximate=True)
            except (StoreError, asyncio.CancelledError):
                self._events.put_back(taken)
                self._something.set()
                raise
            if len(self._events) < AT_ONCE:
                await asyncio.sleep(PAUSE)
            if self._clock() >= self._next_trim:
                self._next_trim = self._clock() + TRIM
                oldest = await self._oldest()
                await self._writer.ask("xtrim", self._key, minid=oldest, approximate=True)
                await self._writer.ask("expire", self._key, int(self._events.life))

    def _entry(self, taken: Sequence[tuple[str, TimedEvent]]) -> dict[str, str]:
        """The entry that tells these events."""
        now = self._clock()
        events = [event for _, (_, event) in taken]
        waited = [max(int((now - came) * 1000), 0) for _, (came, _) in taken]
        entry = {"b": self._boot, "e": json.dumps(events, separators=(",", ":"))}
        return entry | {"w": json.dumps(waited, separators=(",", ":"))} if any(waited) else entry

    async def _oldest(self) -> int:
        """The id of the first entry that matters."""
        seconds, _ = await self._time()
        return max(int((seconds - self._events.life) * 1000), 0)

    async def _time(self) -> tuple[int, int]:
        seconds, micros = await self._writer.ask("time")
        return int(seconds), int(micros)

    async def _measure(self) -> None:
        """Compare the clocks: after whatever went wrong, as another server may answer then, and every now and then."""
        seconds, micros = await self._time()
        self._ahead = seconds + micros / 1e6 - self._clock()
        self._next_measure = self._clock() + MEASURE

    def _age(self, id: bytes) -> float:
        """Seconds since this entry was written."""
        return max(self._clock() + self._ahead - int(id.split(b"-")[0]) / 1000, 0.0)

    def _follow(self) -> Callable[[], Any]:
        """Reads on from where it was."""
        last = ""

        async def read() -> None:
            nonlocal last
            if self._clock() >= self._next_measure:
                await self._measure()
            self._next_measure, planned = -inf, self._next_measure  # until this was read well
            if not last:
                last = await self._replay()
            found = await self._reader.ask("xread", {self._key: last}, count=PAGE, block=int(BLOCK * 1000))
            for _, entries in found or ():
                for id, fields in entries:
                    self._hear(fields, self._age(id))
                    last = id.decode()
            self._next_measure = planned

        return read

    async def _replay(self) -> str:
        """What was told before this proxy was there; the id of the last entry."""
        last = f"{max(int((self._clock() + self._ahead - self._events.life) * 1000), 0)}-0"
        while found := await self._reader.ask("xrange", self._key, min=f"({last}", count=PAGE):
            for id, fields in found:
                last = id.decode()
                self._hear(fields, self._age(id))
            await asyncio.sleep(0)
        return last

    def _hear(self, fields: dict[bytes, bytes], age: float) -> None:
        who = fields.get(b"b", b"").decode(errors="replace")
        if who == self._boot:
            return
        try:
            events, waited = json.loads(fields.get(b"e", b"[]")), json.loads(fields.get(b"w", b"[]"))
        except (ValueError, RecursionError):
            return
        if not isinstance(events, list):
            return
        ages = waited if isinstance(waited, list) and len(waited) == len(events) else [0] * len(events)
        for event, ms in zip(events, ages, strict=True):
            own = ms / 1000 if type(ms) is int and ms > 0 else 0.0
            self._events.hear(who, [event], age + own, self._clock())


async def _again(work: Callable[[], Any]) -> None:
    """Do it again and again, after a moment where the store is away."""
    delay = FIRST_RETRY
    while True:
        try:
            await work()
            delay = FIRST_RETRY
        except StoreError:
            await asyncio.sleep(delay)
            delay = min(delay * 2, SLOWEST_RETRY)
