"""A rate that many connections share, each with always something to send: what is accepted, by holds, caps and mutes.

Time is simulated. Real clients and brokers: `tests/real/test_rates.py`, `make bench-rates`."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise

import pytest

from proxy.hashing import murmur3
from quota.batch import Batch
from quota.engine import MAX_HOLD, Engine
from quota.entity import Entity
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable
from quota.produce import Judging
from quota.rules import Rules
from tests.support import limits_of

BURST = 10.0
STEADY = 60.0


class Sharing:
    """Connections of one user with requests of these sizes. `accepted`: (time, connection, bytes)."""

    def __init__(self, rate: float, sizes: list[int], pause: float = 0.0) -> None:
        limits = LimitTable({Entity("alice", None): RateLimit(rate)})
        self.engine = Engine(limits_of(producer_byte_rate=limits), murmur3)
        self.sizes = sizes
        self.takes = min(sizes) / rate / 20
        """seconds of a request that nothing slows"""
        self.pause = pause
        """seconds that all but the first wait between two requests"""
        self.accepted: list[tuple[float, int, int]] = []

    def run(self, until: float) -> None:
        rules = [Rules(self.engine, "alice", "app", 0.0) for _ in self.sizes]
        due = [(i * 1e-4, i, False) for i in range(len(self.sizes))]
        heapify(due)
        while due[0][0] < until:
            now, i, held = heappop(due)
            batch = [Batch("t", True, None, 0, self.sizes[i], -1, -1, -1)]
            judging = Judging(self.engine, rules[i], batch)
            if (wait := judging.hold(now, held=held)) is not None:
                heappush(due, (now + wait.throttle, i, True))
                continue
            judging.judge(1, now)
            throttle = judging.finish().throttle
            self.accepted.append((now, i, self.sizes[i]))
            heappush(due, (now + max(throttle, self.takes, self.pause if i else 0.0), i, False))

    def total(self, until: float) -> int:
        """Accepted before then."""
        return sum(size for now, _, size in self.accepted if now < until)


@pytest.mark.parametrize("connections", [1, 10, 100])
@pytest.mark.parametrize(("size", "rate"), [(100, 3_200), (10_240, 200_000), (1_048_576, 16_000_000)])
def test_the_rate_holds_within_two_percent_for_any_number_of_connections(connections: int, size: int, rate: float) -> None:
    """From a moment when nobody owes anything to another: those that wait for the same debt go on together when it is paid."""
    sharing = Sharing(rate, [size] * connections)
    sharing.run(2 * STEADY + 40)
    times = [now for now, *_ in sharing.accepted if now > BURST]
    silences = [(b - a, b) for a, b in pairwise(times)]
    longest = max(silences)[0]
    paid = [until for length, until in silences if length > longest / 2]
    first = paid[0]
    last = next(when for when in paid if when >= first + STEADY)
    assert (sharing.total(last) - sharing.total(first)) / (last - first) == pytest.approx(rate, rel=0.02)
    owed = connections * size
    assert all(sharing.total(t) <= rate * (BURST + t) + owed for t in (1.0, 11.0, 30.0, 60.0))
    assert sharing.total(1.0) >= rate * BURST, "the burst passes at once"


def test_caps_bound_what_a_quota_can_hold_back() -> None:
    """Each connection gets a request through in `max_throttle` and `MAX_HOLD`, whatever its entity owes: that is the least rate."""
    sharing = Sharing(10_000, [100_000] * 50)
    sharing.run(400.0)
    cycle = sharing.engine.limits.max_throttle + MAX_HOLD
    assert sharing.total(400.0) / 400.0 == pytest.approx(50 * 100_000 / cycle, rel=0.15)


def shares(sharing: Sharing, since: float, until: float) -> list[float]:
    """Bytes per second of each."""
    had = [0.0] * len(sharing.sizes)
    for now, i, size in sharing.accepted:
        if since <= now < until:
            had[i] += size / (until - since)
    return had


def test_a_greedy_connection_gets_no_more_than_its_siblings() -> None:
    """The one with large requests lets the others go first until they have had about as much."""
    sharing = Sharing(1_000_000, [1_000_000] + [16_000] * 9)
    sharing.run(170.0)
    had = shares(sharing, 20.0, 170.0)
    assert sum(had) == pytest.approx(1_000_000, rel=0.02)
    assert max(had) <= 3 * min(had), had


def test_what_siblings_do_not_want_is_left_to_a_greedy_connection() -> None:
    """Nine that send a little every second take nothing from the rate of the tenth but what they send."""
    sharing = Sharing(1_000_000, [1_000_000] + [1_000] * 9, pause=1.0)
    sharing.run(170.0)
    had = shares(sharing, 20.0, 170.0)
    assert sum(had) == pytest.approx(1_000_000, rel=0.02)
    assert had[0] > 980_000, had
