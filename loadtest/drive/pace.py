"""When operations are due. In: a rate, a number of operation. Out: times; pure arithmetic.

An open loop: the n-th operation is due at its time even if earlier ones hang, and its latency counts from then."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """`rate` operations a second from `start` to `end` on the monotonic clock, the measured ones from `measured` on. Client
    `client` of `clients` does every `clients`-th of them. `rate` None: as fast as possible. Each counts `weight` times, and
    there are at most `max_count` of them."""

    rate: float | None
    start: float
    measured: float
    end: float
    client: int = 0
    clients: int = 1
    weight: int = 1
    max_count: int | None = None

    def due(self, n: int) -> float:
        """When the client's n-th operation is due."""
        assert self.rate is not None
        return self.start + (n * self.clients + self.client) / self.rate

    def count(self, since: float, until: float) -> int:
        """How many of the client's operations are due in [since, until)."""
        if self.rate is None:
            return 0
        return max(self._before(until) - self._before(since), 0) * self.weight

    def seconds(self, offset: float) -> list[tuple[int, int]]:
        """(second, how many are due in it) for the whole phase; seconds since 1970, which is `offset` more than the clock."""
        first, last = math.floor(self.start + offset), math.ceil(self.end + offset)
        pairs = (
            (second, self.count(max(second - offset, self.start), min(second + 1 - offset, self.end)))
            for second in range(first, last)
        )
        return [(second, count) for second, count in pairs if count]

    def _before(self, when: float) -> int:
        """How many are due before."""
        assert self.rate is not None
        count = max(math.ceil(round((when - self.start) * self.rate - self.client, 6) / self.clients), 0)
        return count if self.max_count is None else min(count, self.max_count)
