"""Who sent a request, as logs have it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_API: Final = -1
"""The API of a decision about a connection, and of all further APIs of one connection in the usage log."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sent a request, for logs. `topics` are names of what was refused or throttled; `broker` is the node id of the broker that
    it was sent to, None at the bootstrap address."""

    principal: str
    client_id: str | None
    client_address: str
    api_key: int
    api_version: int
    topics: tuple[str, ...] = ()
    broker: int | None = None
