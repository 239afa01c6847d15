"""Progress of a run. In: calls from `loadtest.run`. Out: nothing, unless a subclass shows it."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.results.model import PhaseResult


@dataclass(frozen=True, slots=True)
class Progress:
    """What one tenant did in the last `seconds`. `size` in bytes; `intended` in operations per second, None if unlimited."""

    seconds: float
    acknowledged: int
    failed: int
    size: int
    longest_us: int
    intended: float | None = None


class RunObserver:
    """Its methods do nothing. Times are monotonic seconds."""

    def phase(self, name: str, seconds: float, now: float) -> None:
        """The next phase begins. It lasts `seconds`, warm-up included."""

    def tick(self, tenant: str, progress: Progress) -> None:
        """Called once a second for each tenant, from one thread."""

    def show(self, now: float) -> None:
        """Called once a second, after the ticks of all tenants."""

    def note(self, text: str) -> None:
        """A message about work before, between or after phases."""

    def done(self, phase: PhaseResult) -> None:
        """A phase has ended."""
