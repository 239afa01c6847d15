"""How many connections users have at other proxies, for `limits.max_connections_per_principal`. Pure.

In: the census of this proxy, what other proxies tell of theirs. Out: what to tell: counts that changed, now and then all of them;
and the sum of what others told. A proxy that says nothing any more counts for `LIFE`; while nothing can be heard at
all, what was known last holds."""

from __future__ import annotations

from typing import Any, Final

from proxy.session.budget import Census

NAME: Final = "connections"
"""What events with counts begin with."""
LIFE: Final = 6.0
"""Seconds after which a proxy that says nothing is taken for gone."""
ALL: Final = 2.0
"""Seconds between two times that all counts are told."""
MOST: Final = 10_000
"""Users of another proxy that are known. Users are principals that brokers have let in, so there are as many as
accounts."""


class Presence:
    """The counts of all other proxies, by `boot`. `census`: the users of this proxy, and where the sums of others belong."""

    def __init__(self, census: Census) -> None:
        self._census = census
        self._told: dict[str, int] = {}
        self._all_told = -ALL
        self._others: dict[str, tuple[float, dict[str, int]]] = {}

    def tell(self, now: float) -> list[Any] | None:
        """[`NAME`, whether these are all, user → connections], None where there is nothing to tell."""
        if self._census.per_principal is None:
            return None
        counts = self._census.by_user()
        if now - self._all_told >= ALL:
            self._all_told = now
            self._told = counts
            return [NAME, True, counts]
        changed = {user: count for user, count in counts.items() if self._told.get(user) != count}
        changed |= dict.fromkeys(self._told.keys() - counts.keys(), 0)
        self._told = counts
        return [NAME, False, changed] if changed else None

    def hear(self, boot: str, event: list[Any], age: float, now: float) -> None:
        """What another proxy told. ValueError for what is none of this."""
        match event:
            case [str(name), bool(everything), dict(counts)] if name == NAME and all(
                type(count) is int and count >= 0 for count in counts.values()
            ):
                pass
            case _:
                raise ValueError("no counts of connections")
        if age >= LIFE:
            return
        known = {} if everything else dict(self._others.get(boot, (0.0, {}))[1])
        known |= counts
        there = [(user, count) for user, count in known.items() if count]
        self._others[boot] = now - age, dict(there[:MOST])
        self._add_up()

    def sweep(self, now: float, *, away: bool) -> None:
        """Forget proxies that send nothing any more, but none while this proxy itself is cut off (`away`)."""
        if away:
            self._others = {boot: (now, counts) for boot, (_, counts) in self._others.items()}
            return
        gone = [boot for boot, (heard, _) in self._others.items() if now - heard > LIFE]
        for boot in gone:
            del self._others[boot]
        if gone:
            self._add_up()

    def _add_up(self) -> None:
        sums = self._census.elsewhere
        sums.clear()
        for _, counts in self._others.values():
            sums.update(counts)
