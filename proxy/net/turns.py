"""Turns of connections, so that one with much to do does not keep the others waiting.

In: connections that have more to look at than fits into one turn. Out: their turns, one after the other, for `ROUND` seconds in a
pass of the event loop; then sockets and timers are served before the next pass. A turn is over after `SLICE` seconds; a session
looks at the time only now and then, so a turn may take a little longer.

The loop's own time stands still during a pass, so this looks at the clock of the system."""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import Final, Protocol

SLICE: Final = 0.0005
"""Seconds of one turn."""
ROUND: Final = 0.001
"""Seconds for turns in one pass of the event loop."""


class TakesTurns(Protocol):
    """A connection that has more to look at."""

    def turn(self) -> None:
        """Go on, until it is over or `Turns.over`."""


class Turns:
    """The turns of all connections of a proxy."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[TakesTurns] = deque()
        self._ends = 0.0
        self._scheduled = False

    @property
    def waiting(self) -> int:
        """Connections that wait for their turn."""
        return len(self._queue)

    def begin(self) -> None:
        """A turn begins."""
        self._ends = perf_counter() + SLICE

    def over(self) -> bool:
        """True if the turn that runs has taken its time."""
        return perf_counter() >= self._ends

    def wait(self, connection: TakesTurns) -> None:
        """Give this connection a turn behind all that wait already."""
        self._queue.append(connection)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pass)

    def _pass(self) -> None:
        ends = perf_counter() + ROUND
        try:
            while self._queue and perf_counter() < ends:
                self.begin()
                self._queue.popleft().turn()
        finally:
            self._scheduled = bool(self._queue)
            if self._scheduled:
                self._loop.call_soon(self._pass)
