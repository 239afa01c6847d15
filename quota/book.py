"""The limits that operators set. In: a mapping from entity to limit. Out: the limit that holds for a client, and who shares it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple, TypeVar

from quota.entity import Entity, levels

L = TypeVar("L")


class Found(NamedTuple, Generic[L]):
    """A limit that holds for a client: `owner` is whose window is charged."""

    limit: L
    owner: Entity


class QuotaBook(Generic[L]):
    """The limits of one kind, for every level. Immutable: a change of settings is a new book."""

    def __init__(self, limits: Mapping[Entity, L]) -> None:
        self._limits = dict(limits)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> Found[L] | None:
        """The limit of the most specific level that has one; None when nothing limits this client."""
        for level in levels(user, client_id):
            limit = self._limits.get(level.key)
            if limit is not None:
                return Found(limit, level.owner)
        return None

    def of(self, owner: Entity) -> L | None:
        """The limit of whoever has a window of their own: what `find` tells of the clients that share it."""
        for level in levels(owner.user or "", owner.client_id or ""):
            if level.owner == owner and level.key in self._limits:
                return self._limits[level.key]
        return None
