"""How long connections go on in one pass of the event loop, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from proxy.clients.turns import PASS, ROUND, SLICE, Turns


class Clock:
    """The clock of the system, moved by what connections do."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Loop:
    """An event loop whose passes are run by hand."""

    def __init__(self) -> None:
        self.now = 7.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, work: Callable[[], None]) -> None:
        self.soon.append(work)

    def run_pass(self) -> None:
        work, self.soon = self.soon, []
        for each in work:
            each()


class Busy:
    """A connection that uses up each of its turns. `wanted`: how many turns it still needs."""

    def __init__(self, turns: Turns, clock: Clock, wanted: int, order: list[Busy]) -> None:
        self._turns, self._clock, self.wanted, self._order = turns, clock, wanted, order

    def turn(self) -> None:
        self._order.append(self)
        while not self._turns.over():
            self._clock.now += SLICE / 5
        self.wanted -= 1
        if self.wanted:
            self._turns.wait(self)


def made() -> tuple[Turns, Loop, Clock]:
    loop, clock = Loop(), Clock()
    return Turns(cast(asyncio.AbstractEventLoop, loop), clock), loop, clock


def test_connections_that_read_share_what_a_pass_has():
    turns, loop, clock = made()
    for _ in range(50):
        turns.begin()
        while not turns.over():
            clock.now += SLICE / 5
    assert clock.now - 100.0 <= PASS + SLICE / 5
    turns.begin()
    assert turns.over()
    loop.now = 7.001
    turns.begin()
    assert not turns.over(), "another pass"


def test_those_who_wait_go_round_and_sockets_are_served_in_between():
    turns, loop, clock = made()
    order: list[Busy] = []
    waiting = [Busy(turns, clock, 3, order) for _ in range(4)]
    for each in waiting:
        turns.wait(each)
    passes = 0
    while loop.soon:
        before = clock.now
        loop.run_pass()
        assert clock.now - before <= ROUND + SLICE * 6 / 5
        passes += 1
    assert order == waiting * 3
    assert passes >= 12 * SLICE / (ROUND + SLICE)


def test_who_waits_goes_on_however_busy_the_passes_are():
    turns, loop, clock = made()
    waits = Busy(turns, clock, 1, [])
    turns.wait(waits)
    turns.begin()
    clock.now += 10 * PASS
    loop.run_pass()
    assert waits.wanted == 0
