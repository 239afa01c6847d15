"""Who sent a request, as logs have it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Requester:
    """Who sent a request, for logs. `topics` are names of what was refused or throttled."""

    principal: str
    client_id: str | None
    client_address: str
    api_key: int
    api_version: int
    topics: tuple[str, ...] = ()
