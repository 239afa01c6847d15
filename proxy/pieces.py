"""Long work of the event loop, in pieces between which clients are served.

In: work as a generator that yields after each small step, and a clock. Out: what it returns. A piece is over when it has taken
`PIECE` seconds, so how long a request waits for such work does not depend on how much there is. It is not given to a thread: one
that runs Python keeps the event loop from running for up to the interpreter's switch interval (1 ms here), each time that the loop
comes back from the kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Final, TypeVar

from quota.steps import Steps

T = TypeVar("T")

PIECE: Final = 0.0002
"""Seconds. A pass of the event loop without work takes a thirtieth of it."""


async def in_pieces(steps: Steps[T], clock: Callable[[], float] = perf_counter) -> T:
    """Do the work. `clock`: seconds."""
    ends = clock() + PIECE
    while True:
        try:
            next(steps)
        except StopIteration as e:
            outcome: T = e.value
            return outcome
        if clock() >= ends:
            await asyncio.sleep(0)
            ends = clock() + PIECE
