"""Between two syncs each proxy takes its share of what is left, and no more; and a guess holds nobody up for long."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fleet_simulation.fleet import Plan, run
from quota.entity import Entity
from quota.kinds.rates import RateLimit, Rates
from quota.ledger import READ_EVERY, Ledger
from quota.limit_table import LimitTable
from quota.shared_totals import SharedTotals
from quota.windows.rate import LONGEST_UNHEARD, UNTIL_HEARD, RateWindow
from tests.properties import examples

ALICE = Entity("alice", None)
RATE = 100.0
BURST = RATE * 10
AMOUNTS = st.lists(st.integers(1, 300), min_size=1, max_size=60)


@examples(300)
@given(st.integers(2, 8), st.integers(0, 900), st.lists(st.tuples(st.integers(0, 7), st.integers(1, 200)), max_size=120))
def test_proxies_together_take_no_more_than_what_is_left(proxies: int, used: int, requests: list[tuple[int, int]]) -> None:
    """Whoever of them takes what, in whatever order: equal shares of what was left at the last sync."""
    windows = [RateWindow(RATE) for _ in range(proxies)]
    for window in windows:
        window.learn(used, 0.0)
        window.expect(float(proxies))
    taken = sum(amount for which, amount in requests if windows[which % proxies].take(amount, 0.0))
    assert taken <= BURST - used + 1e-6


@examples(300)
@given(AMOUNTS, st.floats(1.0, 10.0), st.floats(1.0, 10.0), st.integers(0, 500), st.booleans())
def test_when_others_are_heard_the_window_is_what_it_would_be_without_a_guess(
    amounts: list[int], weight: float, other_weight: float, others: int, refunds: bool
) -> None:
    """Nothing of the guess is left in it, also where the weight changes between two charges."""
    guessing, knowing = RateWindow(RATE), RateWindow(RATE)
    for i, amount in enumerate(amounts):
        guessing.expect(weight if i % 3 else other_weight)
        for window in (guessing, knowing):
            window.record(amount, 0.0)
    if refunds:
        for window in (guessing, knowing):
            window.refund(amounts[-1], 0.0)
    assert guessing.take_charged() == knowing.take_charged()
    guessing.learn(others, 0.0, guessing.expected)
    knowing.learn(others, 0.0)
    assert guessing.expected == pytest.approx(0.0, abs=1e-6)
    assert guessing.level(0.0) == pytest.approx(knowing.level(0.0), abs=1e-6)
    assert guessing.wait(0.0) == pytest.approx(knowing.wait(0.0), abs=1e-6)


@examples(300)
@given(AMOUNTS, st.floats(1.0, 10.0))
def test_nobody_waits_longer_for_a_guess_than_until_others_are_heard(amounts: list[int], weight: float) -> None:
    guessing, knowing = RateWindow(RATE), RateWindow(RATE)
    guessing.expect(weight)
    for amount in amounts:
        for window in (guessing, knowing):
            window.record(amount, 0.0)
        least = knowing.wait(0.0)
        assert least - 1e-6 <= guessing.wait(0.0) <= max(least, LONGEST_UNHEARD) + 1e-6
        assert guessing.only_expected(0.0) == (least == 0 < guessing.wait(0.0))
        guessing.learn(0.0, 0.0)
        assert guessing.wait(0.0) <= max(least, UNTIL_HEARD) + 1e-6


class Proxy:
    def __init__(self, name: str, totals: SharedTotals, proxies: int) -> None:
        self._name, self._totals = name, totals
        self.rates = Rates("producer_byte_rate", "", "", LimitTable({ALICE: RateLimit(RATE)}))
        self.rates.publish()
        self.ledger = Ledger([self.rates], 0.0, proxies=proxies, stale_after=1e9)

    def charge(self, amount: float, now: float) -> None:
        found = self.rates.find("alice", "")
        assert found is not None
        self.rates.charge(found, (amount,), now)

    def sync(self, now: float) -> None:
        self.ledger.collect(now)
        batch = self.ledger.batch(self.ledger.shards[0], now)
        self.ledger.answered(batch, self._totals.apply(self._name, batch.update(), now), now)

    def level(self, now: float) -> float:
        return self.rates.level(ALICE, now)


@examples(300)
@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["sync", "charge", "charge"]), st.integers(1, 15)), max_size=60))
def test_once_all_have_heard_all_each_window_has_what_was_charged_and_no_more(
    steps: list[tuple[int, str, int]],
) -> None:
    totals = SharedTotals("g")
    proxies = [Proxy(f"p{number}", totals, 3) for number in range(3)]
    charged, now = 0, 0.0
    for again in range(3):  # all have heard of this owner
        for proxy in proxies:
            proxy.charge(again % 2, now)
            proxy.sync(now)
            charged += again % 2
    for which, what, amount in steps:
        now += 1e-6
        if what == "sync":
            proxies[which].sync(now)
        else:
            proxies[which].charge(amount, now)
            charged += amount
    for _ in range(4):
        now += READ_EVERY * 1.1
        for proxy in proxies:
            proxy.sync(now)
    assert [proxy.level(now) for proxy in proxies] == pytest.approx([charged] * 3, abs=1.0)


@pytest.mark.parametrize("proxies", [2, 3, 6])
def test_a_burst_at_several_proxies_is_one_burst_and_no_second_is_dark(proxies: int) -> None:
    """16 producers that send 200 times their rate when nobody stops them: it comes at a proxy within 50 ms."""
    plan = Plan(proxies, connections=16, requests=32, demand=200, skew=0.0, seconds=30, warm=12)
    alone = run(Plan(1, connections=16, requests=32, demand=200, skew=0.0, seconds=3, warm=1, shared=False))
    found = run(plan)
    assert found.pieces[0] <= alone.pieces[0] * 1.15
    assert min(found.pieces[2:]) > 0.25
    assert max(found.pieces[1:]) < 1.5
    assert found.rate == pytest.approx(1.0, abs=0.01)


def test_who_is_over_only_by_what_others_are_expected_to_charge_waits_for_half_of_it() -> None:
    """So that what they leave can be used."""
    window = RateWindow(100)
    window.expect(2.0)
    window.record(501, 0.0)
    assert window.wait(0.0) == pytest.approx(2 / 100 / 2)
