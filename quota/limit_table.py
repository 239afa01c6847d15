"""The limits that operators set. In: a mapping from entity to limit. Out: the limit that holds for a client, and who shares it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

from quota.entity import OTHERS, Entity, levels

L = TypeVar("L")


class ResolvedLimit(NamedTuple, Generic[L]):
    """A limit that holds for a client: `owner` is whose window is charged."""

    limit: L
    owner: Entity


class LimitTable(Generic[L]):
    """The limits of one kind, for every level. Immutable: a change of settings is a new table."""

    def __init__(self, limits: Mapping[Entity, L]) -> None:
        self._limits = dict(limits)

    def __bool__(self) -> bool:
        return bool(self._limits)

    def owned(self) -> Iterable[tuple[Entity, L]]:
        """The limits of owners that they name."""
        return self._limits.items()

    def touched(self, other: LimitTable[L]) -> list[Entity]:
        """Those whose limit is another object there."""
        mine, theirs = self._limits, other._limits
        return [entity for entity in mine.keys() | theirs.keys() if mine.get(entity) is not theirs.get(entity)]

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[L] | None:
        """The limit of the most specific level that has one; None when nothing limits this client. `client_ids` False: limits of
        client ids alone do not hold."""
        for level in levels(user, client_id):
            if level.key.user is None and not client_ids:
                return None
            limit = self._limits.get(level.key)
            if limit is not None:
                return ResolvedLimit(limit, level.owner)
        return None

    def shared(self, found: ResolvedLimit[L]) -> ResolvedLimit[L]:
        """The same limit with the window that further client ids of the user share; `found` itself where the limit names its
        client id, of which there are only as many as operators have set, or where it is of the user."""
        others = None if found.owner.client_id is None else self.find(found.owner.user or "", OTHERS)
        return found if others is None or others.limit != found.limit or others.owner.client_id is None else others

    def owner(self, parts: Entity) -> Entity:
        """The owner of a window by its parts, which is all that other proxies of a fleet tell of it."""
        return parts

    def of(self, owner: Entity) -> L | None:
        """The limit of the owner of a window: what `find` tells of the clients that share it."""
        for level in levels(owner.user or "", owner.client_id or ""):
            if level.owner == owner and level.key in self._limits:
                return self._limits[level.key]
        return None
