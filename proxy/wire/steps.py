"""Work in steps, between which others are served: a generator that yields after each step, and returns the result."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final, TypeVar

T = TypeVar("T")

FEW: Final = 50
"""Parts of a message that are read or written in one step, some 10 us each in pure Python."""
MANY: Final = 400
"""The same of what takes 1 us each."""


def freed(*parts: list[Any] | dict[Any, Any] | set[Any]) -> Generator[None, None, None]:
    """Empty these: that takes its time too where very much is in them."""
    for part in parts:
        while part:
            yield
            if isinstance(part, list):
                del part[-MANY:]
                continue
            drop = part.popitem if isinstance(part, dict) else part.pop
            for _ in range(min(MANY, len(part))):
                drop()


def finish_at_once(work: Generator[None, None, T]) -> T:
    """What such work gives, without a break."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: T = end.value
            return result
