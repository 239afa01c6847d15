"""When the intervals of the usage log end, and what they are labelled. Pure: both clocks are arguments.

In: monotonic seconds (`now`) and seconds since the epoch (`wall`), read together. Out: when the running interval is due; for one
that has ended, its labels and its length.

An interval is a stretch of monotonic time; the next begins where it ends, so none is lost or counted twice. Wall time is its label
only. In normal times it ends at a multiple of its length on the wall clock, so that the intervals of several proxies match. A wall
clock that is set (a step: both clocks follow a slew) neither lengthens nor shortens it: its labels are then as far apart as it is
long, the next one begins at the new wall time, and ends at a multiple again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TOLERANCE: Final = 0.5
"""Seconds by which an interval may end late, or the wall clock be set, while its labels stay aligned. More is told."""
SHORTEST: Final = 0.1
"""The part of its length that an interval is planned to have at least: one that would be shorter ends a length later."""
MOMENT: Final = 0.002
"""Seconds that labels are apart at least: they are cut to milliseconds, and an interval that ends when it begins is dropped."""


@dataclass(frozen=True, slots=True)
class Interval:
    """One that has ended. `start`, `end`: its labels, seconds since the epoch, `end` excluded; `seconds`: how long it was;
    `jump`: how far the wall clock was set forward (or, below 0, back) during it, 0 if it was not."""

    start: float
    end: float
    seconds: float
    jump: float = 0.0


class Intervals:
    """Intervals of `length` seconds. The first begins now."""

    def __init__(self, length: float, now: float, wall: float) -> None:
        self._length = length
        self._begin(wall, now, wall)

    def close(self, now: float, wall: float) -> Interval:
        """The running interval ends now, due or not, and the next begins."""
        seconds = max(now - self._began, 0.0)
        jump = wall - self._wall - seconds
        if abs(jump) > TOLERANCE:
            closed = Interval(self._start, self._start + max(seconds, MOMENT), seconds, jump)
            self._begin(wall, now, wall)
        else:
            end = self._end if now >= self.due and abs(wall - self._end) <= TOLERANCE else wall
            closed = Interval(self._start, max(end, self._start + MOMENT), seconds)
            self._begin(closed.end, now, wall)
        return closed

    def _begin(self, start: float, now: float, wall: float) -> None:
        """An interval labelled `start` begins now."""
        self._start, self._began, self._wall = start, now, wall
        least = max(wall, start) + self._length * SHORTEST
        self._end = (max(wall, start) // self._length + 1) * self._length
        if self._end < least:
            self._end += self._length
        self.due = now + self._end - wall
        """When it is to end, in monotonic seconds."""
