"""Going round many things in small steps, so that nothing waits for a look at all of them.

In: the keys as they are when a round begins, and the time. Out: those whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K")


class RoundRobin(Generic[K]):
    """`count` keys at a time; a round begins `interval` seconds after the last one began at the earliest."""

    def __init__(self, interval: float, count: int) -> None:
        self._interval, self._count = interval, count
        self._left: list[K] = []
        self._next = -inf

    def turn(self, keys: Iterable[K], now: float) -> list[K]:
        """The keys to look at now. Some may be gone meanwhile; others come in the next round."""
        if not self._left and now >= self._next:
            self._left, self._next = list(keys), now + self._interval
        turn = self._left[-self._count :]
        del self._left[-self._count :]
        return turn
