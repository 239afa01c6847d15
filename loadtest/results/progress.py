"""Progress of a run. In: calls from `loadtest.run`. Out: nothing, unless a subclass shows it."""

from __future__ import annotations

from loadtest.results.counts import Tick
from loadtest.results.model import PhaseResult


class RunObserver:
    """Its methods do nothing. Times are monotonic seconds."""

    def phase(self, name: str, seconds: float, now: float) -> None:
        """The next phase begins. It lasts `seconds`, warm-up included."""

    def tick(self, driver: str, tick: Tick, rate: float | None) -> None:
        """Called once a second for each driver, from one thread. `rate`: intended operations per second, None if unlimited."""

    def show(self, now: float) -> None:
        """Called once a second, after the ticks of all drivers."""

    def note(self, text: str) -> None:
        """A message about work before, between or after phases."""

    def done(self, phase: PhaseResult) -> None:
        """A phase has ended."""
