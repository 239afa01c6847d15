"""What a store in memory forgets, and what it keeps. What it answers is tested with the ledger and with all stores."""

from __future__ import annotations

from quota.ledger import Answer, Change, Update
from quota.shared_totals import PROXY_KEPT, SWEPT, SharedTotals

KEEP = 60.0


class Proxy:
    """What one proxy sends."""

    def __init__(self, totals: SharedTotals, name: str = "p") -> None:
        self._totals, self._name, self._number = totals, name, 0

    def send(self, now: float, *deltas: tuple[str, int]) -> Answer:
        self._number += 1
        changes = [Change(key, delta, None, False, KEEP) for key, delta in deltas]
        return self._totals.apply(self._name, Update(0, self._number, self._totals.generation, changes), now)


def test_what_nobody_charges_is_forgotten_after_its_time_and_no_sooner() -> None:
    totals = SharedTotals("g")
    proxy = Proxy(totals)
    keys = [f"k{number}" for number in range(3 * SWEPT)]
    proxy.send(0.0, *((key, 1) for key in keys))
    proxy.send(KEEP / 2, ("k0", 1))
    for second in range(10):
        proxy.send(KEEP - 10 + second)
    assert list(proxy.send(KEEP - 0.5, *((key, 0) for key in keys)).totals) == [2] + [1] * (len(keys) - 1)
    for second in range(10):
        proxy.send(KEEP + 1 + second)
    assert list(totals.totals) == ["k0"]


def test_a_look_at_a_total_makes_none() -> None:
    totals = SharedTotals("g")
    assert list(Proxy(totals).send(0.0, ("k", 0)).totals) == [0]
    assert not totals.totals


def test_a_silent_proxy_is_forgotten_and_then_told_that_its_number_is_unknown() -> None:
    totals = SharedTotals("g")
    silent, busy = Proxy(totals, "silent"), Proxy(totals, "busy")
    silent.send(0.0, ("k", 1))
    busy.send(1.0)
    busy.send(PROXY_KEPT / 2)
    assert silent.send(PROXY_KEPT / 2, ("k", 1)).accepted
    busy.send(PROXY_KEPT * 2)
    answer = silent.send(PROXY_KEPT * 2, ("k", 1))
    assert (answer.accepted, answer.last) == (False, 0)


def test_a_proxy_is_forgotten_at_its_time_though_nobody_else_came() -> None:
    totals = SharedTotals("g")
    alone = Proxy(totals)
    alone.send(0.0, ("k", 1))
    assert alone.send(PROXY_KEPT, ("k", 1)).accepted
    answer = alone.send(PROXY_KEPT * 2 + 1, ("k", 1))
    assert (answer.accepted, answer.last) == (False, 0)
