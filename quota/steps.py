"""Work in small steps: a generator that yields between them, and how to run it without pauses."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finish_at_once(work: Generator[None, None, T]) -> T:
    """What such work gives, without a break."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
