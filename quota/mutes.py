"""Which entities are muted. Since KIP-219 a throttle mutes the connection it came on; the debt belongs to the entity, so a charged
request of the same kind from the same entity on another connection waits for what is left. Seconds are monotonic."""

from __future__ import annotations

from collections.abc import Callable

from quota.entity import Entity


class Mutes:
    """The end of each mute, by kind of quota and entity."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, Entity], float] = {}
        self.tell: Callable[[str, Entity, float], None] | None = None
        """is called when a mute starts here: other proxies want to know"""

    def start(self, quota: str, entity: Entity, until: float) -> None:
        """Mute an entity; a mute that ends later stays."""
        self.learn(quota, entity, until)
        if self.tell is not None:
            self.tell(quota, entity, until)

    def learn(self, quota: str, entity: Entity, until: float) -> None:
        """Another proxy has muted an entity."""
        key = (quota, entity)
        self._until[key] = max(until, self._until.get(key, until))

    def left(self, quota: str, entity: Entity, now: float) -> float:
        """Seconds left; 0 for an entity that is not muted."""
        until = self._until.get((quota, entity))
        return 0.0 if until is None or until <= now else until - now

    def active(self, now: float) -> dict[tuple[str, Entity], float]:
        """(quota, entity) to seconds left."""
        return {key: until - now for key, until in self._until.items() if until > now}

    def sweep(self, now: float) -> None:
        """Forget mutes that have ended."""
        for key in [key for key, until in self._until.items() if until <= now]:
            del self._until[key]
