"""Turns of connections, so that one with much to do does not keep the others waiting.

In: connections that read something, and those that have more to look at than fits into one turn. Out: who goes on, and for how
long. A turn is over after `SLICE` seconds; a session looks at the time only now and then, so a turn may take a little longer.

What a connection reads is looked at at once. Once all of them have taken `PASS` seconds in one pass of the event loop, further
turns of this pass are over as they begin: a session that has been busy lately only keeps what it read and waits, and others look
at the least that they can. Those who wait go on one after the other, for `ROUND` seconds in a pass; then sockets and timers are
served.

The loop's own time stands still during a pass, so it names the pass; how long it takes is seen on the clock of the system."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

SLICE: Final = 0.0005
"""Seconds of one turn."""
PASS: Final = 0.001
"""Seconds in one pass of the event loop after which busy connections wait. Half of it makes them wait so often that pausing their
reads costs more than it gives."""
ROUND: Final = 0.0005
"""Seconds in one pass of the event loop for those who wait."""


class TakesTurns(Protocol):
    """A connection that has more to look at."""

    def turn(self) -> None:
        """Go on, until it is over or `Turns.over`."""


class Turns:
    """The turns of all connections of a proxy."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = perf_counter) -> None:
        self._loop, self._clock = loop, clock
        self._queue: deque[TakesTurns] = deque()
        self._ends = 0.0
        self._now = self._pass_ends = -1.0
        self._scheduled = False

    @property
    def waiting(self) -> int:
        """Connections that wait for their turn."""
        return len(self._queue)

    def begin(self) -> float:
        """A turn begins; the event loop's time, which is that of the pass."""
        now, begins = self._loop.time(), self._clock()
        if now != self._now:
            self._now, self._pass_ends = now, begins + PASS
        self._ends = min(begins + SLICE, self._pass_ends)
        return now

    def over(self) -> bool:
        """True if the turn that runs has taken its time."""
        return self._clock() >= self._ends

    def wait(self, connection: TakesTurns) -> None:
        """Give this connection a turn behind all that wait already."""
        self._queue.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        ends = self._clock() + ROUND
        try:
            while self._queue and (begins := self._clock()) < ends:
                self._ends = begins + SLICE
                self._queue.popleft().turn()
        finally:
            self._scheduled = bool(self._queue)
            if self._scheduled:
                self._loop.call_soon(self._pass)
