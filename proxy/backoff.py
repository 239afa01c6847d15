"""Tries work again that failed, after a delay that doubles with each failure. In: the work, the delays, which errors count. Out: a
call for each failure. Everything of the proxy that tries again does it this way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Backoff:
    """Delays of `first` seconds, then twice as long each time, at most `slowest`."""

    def __init__(self, first: float, slowest: float) -> None:
        self._first, self._slowest = min(first, slowest), slowest
        self._next = self._first

    def reset(self) -> None:
        """The next delay is the first one again."""
        self._next = self._first

    async def wait(self) -> None:
        delay, self._next = self._next, min(self._next * 2, self._slowest)
        await asyncio.sleep(delay)


def ignore(error: Exception) -> None:
    """For work whose failures need not be reported."""


async def retry(
    work: Callable[[], Awaitable[None]],
    backoff: Backoff,
    failed: Callable[[Exception], None] = ignore,
    errors: type[Exception] = Exception,
) -> None:
    """Do the work again and again until cancelled: at once after it succeeded, after a delay when it failed with one of `errors`.
    `failed` is called before the delay, and may reset it."""
    while True:
        try:
            await work()
        except errors as e:
            failed(e)
            await backoff.wait()
        else:
            backoff.reset()
