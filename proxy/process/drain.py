"""How the connections of a proxy that stops come to their end. In: connections, listeners, a time. Out: sessions that were told
to drain; it ends when none is left, or there is no more time."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from proxy.clients.connection import ClientConnection, Shared
from proxy.clients.listeners import ClientListener
from proxy.observe.lines import api_name
from proxy.session.session import State

POLL: Final = 0.05
"""Seconds between two looks at what is left while connections drain."""
STEP: Final = 0.4
"""Seconds between the connections to one broker and those to the next; all of them take a quarter of the time at most."""
AT_ONCE: Final = 500
"""Connections that are drained before others have their turn."""


async def drain(shared: Shared, listeners: Sequence[ClientListener], within: float, hurry: asyncio.Event) -> None:
    """Until no connection is left, for `within` seconds at most, or until there is a hurry. Broker by broker, so that no client
    loses all its connections at once, and those that come again elsewhere do not come all together."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            await _drain(shared, listeners, within, hurry)


def waits_for(shared: Shared) -> Counter[str]:
    """What connections that are left wait for → how many: an answer, by the API's name, or what `State` says."""
    sessions = [connection.session for connection in shared.connections if connection.session.state is not State.CLOSED]
    return Counter(
        found.value if isinstance(found, State) else api_name(found) for found in (session.waits_for for session in sessions)
    )


async def _drain(shared: Shared, listeners: Sequence[ClientListener], within: float, hurry: asyncio.Event) -> None:
    by_broker: defaultdict[str, list[ClientConnection]] = defaultdict(list)
    for connection in shared.connections:
        by_broker[connection.broker].append(connection)
    step = min(STEP, within / 4 / (len(by_broker) or 1))
    for connections in by_broker.values():
        for start in range(0, len(connections), AT_ONCE):
            for connection in connections[start : start + AT_ONCE]:
                connection.session.drain()
            await asyncio.sleep(0)
        await _pause(step, hurry)
    while not hurry.is_set() and (shared.connections or any(listener.welcoming for listener in listeners)):
        await _pause(POLL, hurry)


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(unless.wait(), seconds)
