"""Starts something, unless it is told to stop meanwhile. In: the start, what tells to stop. Out: whether it has started."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


async def has_started(start: Coroutine[None, None, None], stop: asyncio.Event) -> bool:
    """False if it was to stop before. Errors of the start are raised."""
    starting, stopping = asyncio.create_task(start), asyncio.create_task(stop.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        await starting
        return True
    starting.cancel()
    await asyncio.wait([starting])
    return False
