"""Moments at which workers of a proxy do the same: multiples of an interval, by the clock of the machine, which all of them see. So
what they ask of the cluster is asked once (`cluster_relay.py`)."""

from __future__ import annotations

import asyncio


def passed(before: float, now: float, interval: float) -> bool:
    """True if there was such a moment behind `before`, up to `now` (monotonic seconds)."""
    return now - before >= interval or now // interval > before // interval


async def next_moment(interval: float) -> None:
    """Wait for the next one."""
    await asyncio.sleep(interval - asyncio.get_running_loop().time() % interval)
