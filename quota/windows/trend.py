"""Which way a figure goes: the straight line through what was seen of it lately (least squares).

In: values with monotonic seconds. Out: the change per second. Two values, or ten at the same time, are no trend."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

LEAST: Final = 3
"""values that make a trend"""


class Trend:
    """The last `number` values, `LEAST` at least.

    >>> trend = Trend(10)
    >>> for second in range(4):
    ...     trend.see(100.0 - 2 * second, now=float(second))
    >>> trend.slope()
    -2.0
    """

    __slots__ = ("_seen",)

    def __init__(self, number: int) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=max(number, LEAST))

    def see(self, value: float, now: float) -> None:
        """A value. One that is not later than the last takes its place: a clock does not go back, but may stand."""
        while self._seen and now <= self._seen[-1][0]:
            self._seen.pop()
        self._seen.append((now, value))

    def slope(self) -> float | None:
        """Change per second; None while that cannot be told."""
        if len(self._seen) < LEAST:
            return None
        count = len(self._seen)
        middle = sum(at for at, _ in self._seen) / count
        mean = sum(value for _, value in self._seen) / count
        spread = sum((at - middle) ** 2 for at, _ in self._seen)
        return sum((at - middle) * (value - mean) for at, value in self._seen) / spread


def seconds_until(value: float, limit: float, slope: float | None) -> float:
    """When a value that sinks by `slope` reaches a limit below it: 0 when it has, infinity when it does not sink."""
    if value <= limit:
        return 0.0
    return inf if slope is None or slope >= 0 else (value - limit) / -slope
