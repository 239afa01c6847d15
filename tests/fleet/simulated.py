"""An event loop whose time is simulated: it stands still while something runs, and goes on to the next timer when all wait. For
work that waits for time alone; threads and sockets take no time there."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
STEP = 0.001
"""What the loop goes on by where nothing has a time: something real is waited for."""


class _Selector(selectors.DefaultSelector):
    """Waits for no time."""

    pass_time: Callable[[float | None], None]

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found and timeout != 0:
            self.pass_time(timeout)
            found = super().select(STEP if timeout is None else 0)
        return found


class SimulatedLoop(asyncio.SelectorEventLoop):
    """Begins at 0 s."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.pass_time = self._pass
        self.now = 0.0
        super().__init__(selector)

    def time(self) -> float:
        return self.now

    def _pass(self, seconds: float | None) -> None:
        self.now += seconds or 0.0


def run_simulated(work: Coroutine[Any, Any, T]) -> T:
    """On a loop of its own."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(work)
