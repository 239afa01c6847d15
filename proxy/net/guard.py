"""Once a second: closes connections that are overdue, a few at a time, so that thousands do not keep the others waiting."""

from __future__ import annotations

import asyncio
from typing import Final

from proxy.net.connection import Shared

PERIOD: Final = 1.0
AT_ONCE: Final = 500
"""Connections that are looked at before others have their turn."""


async def guard(shared: Shared) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(PERIOD)
        connections = list(shared.connections)
        for start in range(0, len(connections), AT_ONCE):
            now = loop.time()
            for connection in connections[start : start + AT_ONCE]:
                connection.session.check(now)
            await asyncio.sleep(0)
