"""Work in small steps: a generator that yields between them, how to run it without pauses, and the largest of many found so."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from heapq import heappush, heapreplace
from typing import Any, Final, TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work that yields after each step, and returns what comes of it."""
STEP: Final = 16
"""Entities that are looked at in one step, some microseconds each."""


def finish_at_once(work: Steps[T]) -> T:
    """What such work gives, without a break."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result


def largest(count: int, items: Iterable[T], rank: Callable[[T], Any]) -> Steps[list[T]]:
    """As `heapq.nlargest` has it: of those that rank alike the first."""
    heap: list[tuple[Any, int, T]] = []
    for order, item in enumerate(items if count > 0 else ()):
        one = (rank(item), -order, item)
        if len(heap) < count:
            heappush(heap, one)
        elif one > heap[0]:
            heapreplace(heap, one)
        if order % STEP == STEP - 1:
            yield
    return [item for _, _, item in sorted(heap, reverse=True)]
