"""What a store keeps, whichever way updates come to it: totals by shard (`quota.shared_totals`), and which proxies are present.

In: updates of proxies with their times, in one order. Out: answers. It reads no clock, so copies that are given the same updates
answer alike. `MemoryStore` has one, and each process that follows a ledger topic has a copy (`replica`)."""

from __future__ import annotations

from typing import Any

from proxy.fleet.store import Reply
from quota.ledger import Answer, Update
from quota.shared_totals import SharedTotals


class SharedState:
    """`generation` is unique for each time that a store begins empty."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.shards: dict[int, SharedTotals] = {}
        self._present: dict[int, dict[str, float]] = {}
        """by shard and proxy: until when it counts as present"""

    def shard(self, number: int) -> SharedTotals:
        found = self.shards.get(number)
        if found is None:
            found = self.shards[number] = SharedTotals(self.generation)
        return found

    def apply(self, boot: str, update: Update, count_for: float, now: float) -> Reply:
        """Add the changes; count the proxies if `count_for` > 0."""
        answer = self.shard(update.shard).apply(boot, update, now)
        if not (answer.accepted and count_for):
            return Reply(answer, 0)
        present = self.present(update.shard, now)
        present[boot] = now + count_for
        self._present[update.shard] = present
        return Reply(answer, len(present))

    def look(self, update: Update, now: float) -> Answer:
        """The answer to an update whose changes were applied."""
        return self.shard(update.shard).look(update, now)

    def present(self, shard: int, now: float) -> dict[str, float]:
        """The proxies that are present, and until when each of them counts as such."""
        return {boot: until for boot, until in self._present.get(shard, {}).items() if until > now}

    def rows(self, now: float) -> tuple[list[Any], list[list[Any]]]:
        """All that is known, as plain lists: what there is by shard (number, proxies, presence), and all totals (shard first)."""
        head, totals = [], []
        for number, shard in self.shards.items():
            proxies, found = shard.rows(now)
            head.append([number, proxies, list(self.present(number, now).items())])
            totals += [[number, *row] for row in found]
        return head, totals

    def restore(self, head: list[Any], totals: list[Any]) -> None:
        """Add what `rows` gave."""
        for number, proxies, present in head:
            self.shard(number).restore(proxies, ())
            self._present[number] = {str(boot): float(until) for boot, until in present}
        for number, *row in totals:
            self.shard(number).restore((), [row])
