"""What quotas did to each user, client id and topic since the start, and the last time. In: decisions. Out: totals for metrics and
the console.

Bounded: `MOST` of them, of which each principal has a share (`quota.fair_share`); what is beyond it is in one line of the
principal's user, with client id `<others>`. Those to whom nothing happens for `KEPT` seconds are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from proxy.session.requester import Requester
from quota.decision import Action, Decision
from quota.entity import OTHERS, Entity
from quota.fair_share import FairShare

MOST: Final = 1000
KEPT: Final = 3600.0

Key = tuple[str, str, Entity]
"""(quota, mode, whose)"""


class Totals:
    """Of one quota and one entity. `at`: when something happened last, in monotonic seconds."""

    __slots__ = ("at", "by", "decision", "owner", "refused_items", "throttle_seconds", "throttled_requests")

    def __init__(self, owner: str, decision: Decision, by: Requester) -> None:
        self.owner, self.decision, self.by = owner, decision, by
        self.at = self.throttle_seconds = 0.0
        self.throttled_requests = self.refused_items = 0


class DecisionTotals:
    """Of all. `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._totals: dict[Key, Totals] = {}
        self._shares = FairShare(MOST)

    def decided(self, decision: Decision, by: Requester, mode: str) -> None:
        """A request was throttled or refused, or would have been. One that is held pays for another."""
        if decision.action is Action.HOLD:
            return
        totals = self._totals_of((decision.quota, mode, decision.entity), decision, by)
        totals.at, totals.decision, totals.by = self._clock(), decision, by
        if decision.throttle > 0:
            totals.throttled_requests += 1
            totals.throttle_seconds += decision.throttle
        if decision.action is Action.REFUSE:
            totals.refused_items += len(decision.items)

    def _totals_of(self, key: Key, decision: Decision, by: Requester) -> Totals:
        found = self._totals.get(key)
        if found is None and not self._shares.has_room(by.principal):
            key = (*key[:2], others_of(by))
            found = self._totals.get(key)
        if found is None:
            found = self._totals[key] = Totals(by.principal, decision, by)
            self._shares.charge(by.principal, 1)
        return found

    def sweep(self) -> None:
        """Forget those to whom nothing has happened for long."""
        old = self._clock() - KEPT
        for key in [key for key, totals in self._totals.items() if totals.at < old]:
            self._shares.give_back(self._totals.pop(key).owner)

    def __len__(self) -> int:
        return len(self._totals)

    def __iter__(self) -> Iterator[tuple[Key, Totals]]:
        return iter(self._totals.items())


def others_of(by: Requester) -> Entity:
    """What stands for further entities of a principal."""
    return Entity(by.principal.removeprefix("User:"), OTHERS)
