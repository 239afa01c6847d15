"""Once a second: closes connections that are overdue, and shares the memory for what waits among all, a few connections at a
time, so that thousands do not keep the others waiting."""

from __future__ import annotations

import asyncio
from typing import Final

from proxy.clients.connection import Shared

PERIOD: Final = 1.0
AT_ONCE: Final = 500
"""Connections that are looked at before others have their turn."""


async def guard(shared: Shared) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    water = shared.high_water
    while True:
        await asyncio.sleep(PERIOD)
        connections = list(shared.connections)
        before, water = water, shared.high_water
        for start in range(0, len(connections), AT_ONCE):
            now = loop.time()
            for connection in connections[start : start + AT_ONCE]:
                try:
                    connection.session.check(now)
                    if water != before:
                        connection.set_water(water)
                except Exception as e:  # it costs this connection, and none of the others
                    loop.call_exception_handler({"message": "a connection cannot be checked, and is closed", "exception": e})
                    connection.transport.abort()
            await asyncio.sleep(0)
