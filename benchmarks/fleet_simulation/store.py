"""The store of the ledger, in memory. It does what the script in Redis does, for tests and the simulation.

In: batches, the time. Out: answers. `commands` and `items` count what Redis would have to do."""

from quota.ledger import Answer, Batch, Level


class Store:
    """One shard."""

    def __init__(self) -> None:
        self.generations = 0
        self.batches = self.items = self.commands = 0
        self.flush()

    def flush(self) -> None:
        """Forget everything, as after a restart of Redis."""
        self.generations += 1
        self.generation = f"g{self.generations}"
        self.last: dict[str, int] = {}
        self.totals: dict[str, int] = {}
        self.levels: dict[str, tuple[float, float, int]] = {}

    def apply(self, proxy: str, batch: Batch, now: float) -> Answer:
        """What the script does with a batch of this proxy."""
        self.batches += 1
        self.commands += 3
        last = self.last.get(proxy, 0)
        if batch.generation != self.generation or batch.number > last + 1:
            return Answer(self.generation, False, last)
        new = batch.number == last + 1
        self.last[proxy] = max(last, batch.number)
        levels = {}
        totals = []
        for i, item in enumerate(batch.items):
            self.items += 1
            self.commands += 1
            key = item.entry.key
            if new and item.delta:
                self.totals[key] = self.totals.get(key, 0) + item.delta
            total = self.totals.get(key, 0)
            totals.append(total)
            if item.level is not None:
                self.commands += 2
                self.levels[key] = item.level, now, total
            if item.fresh and key in self.levels:
                level, at, then = self.levels[key]
                levels[i] = Level(level, now - at, total - item.delta - then)
        return Answer(self.generation, True, batch.number, totals, levels)
