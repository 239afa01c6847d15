"""The store of the ledger for tests and the simulation: it can lose all that it knows, and counts its work.

In: batches, the time. Out: answers."""

from quota.ledger import Answer, Batch
from quota.shared_totals import SharedTotals


class Store:
    """One shard."""

    def __init__(self) -> None:
        self.generations = 0
        self.batches = self.items = 0
        self.flush()

    def flush(self) -> None:
        """Forget everything, as after a restart of Redis."""
        self.generations += 1
        self._totals = SharedTotals(f"g{self.generations}")

    @property
    def generation(self) -> str:
        return self._totals.generation

    def total(self, key: str) -> int:
        """The total of an owner."""
        known = self._totals.totals.get(key)
        return 0 if known is None else known.amount

    def apply(self, proxy: str, batch: Batch, now: float) -> Answer:
        """What the store does with a batch of this proxy."""
        self.batches += 1
        answer = self._totals.apply(proxy, batch.update(), now)
        self.items += len(batch.items) if answer.accepted else 0
        return answer
