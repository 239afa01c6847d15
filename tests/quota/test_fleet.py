"""A fleet of proxies holds one quota, in simulated time: how exactly, how far it goes over, what happens when things go wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.fleet_simulation.__main__ import DOCS, tables
from benchmarks.fleet_simulation.fleet import Plan, bound, overshoot, run
from quota.ledger import Away

PLAN = Plan(4, seconds=50, warm=20, requests=120)
"""Four proxies, 64 connections in skewed shares; 30 s are compared."""
MANY = pytest.param(20, marks=pytest.mark.nightly)
"""Proxies; those who move from one to another do so between 20 before every push, too."""


def test_the_rate_of_the_fleet_is_the_quota() -> None:
    assert run(PLAN).rate == pytest.approx(1.0, abs=0.03)
    assert run(replace(PLAN, shared=False)).rate > 2, "without a ledger it is not"


@pytest.mark.parametrize("skew", [0.0, 2.0])
@pytest.mark.parametrize("proxies", [2, MANY])
def test_however_connections_are_spread(proxies: int, skew: float) -> None:
    assert run(replace(PLAN, proxies=proxies, skew=skew)).rate == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("interval", [0.1, pytest.param(0.5, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("proxies", [2, 4, MANY])
def test_the_bound_of_the_overshoot_holds(proxies: int, interval: float) -> None:
    plan = replace(PLAN, proxies=proxies, interval=interval, seconds=40)
    assert overshoot(plan, run(plan)) <= bound(plan)


@pytest.mark.parametrize(
    ("proxies", "connections", "moves"),
    [(20, 8, 0.2), *(pytest.param(*values, marks=pytest.mark.nightly) for values in [(4, 64, 0.5), (50, 8, 1.0)])],
)
def test_whoever_moves_from_proxy_to_proxy_gets_the_quota_and_no_more(proxies: int, connections: int, moves: float) -> None:
    """Neither a burst at each proxy, nor a debt twice. A proxy to which it just came waits until the others are heard, so that it
    gets a little less where it comes to another of many every second."""
    plan = replace(PLAN, proxies=proxies, connections=connections, moves=moves)
    found = run(plan)
    assert 0.95 < found.rate < 1.03
    assert overshoot(plan, found) <= bound(plan)


def test_lost_batches_and_answers_count_once() -> None:
    assert run(replace(PLAN, loss=0.1)).rate == pytest.approx(1.0, abs=0.03)


def test_a_store_that_restarts_empty_changes_nothing() -> None:
    assert run(replace(PLAN, flush=30.0)).rate == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("when_away", Away)
def test_while_the_store_is_away_proxies_go_by_their_shares(when_away: Away) -> None:
    """It takes `stale_after` to be noticed, in which each proxy takes all that the quota lets come up."""
    plan = replace(PLAN, seconds=80, away=(40.0, 60.0), when_away=when_away)
    found = run(plan)
    assert sum(found.pieces[40:42]) <= plan.stale_after * plan.proxies + 2
    assert sum(found.pieces[42:60]) / 18 == pytest.approx(1.0, abs=0.1)
    assert sum(found.pieces[66:]) / 14 == pytest.approx(1.0, abs=0.05)
    assert sum(found.pieces[40:]) / 40 == pytest.approx(1.0, abs=0.05), "what was too much is paid, and counted once"


@pytest.mark.parametrize("proxies", [2, 3, 6])
def test_once_the_burst_is_paid_no_second_is_dark_and_none_has_a_gust(proxies: int) -> None:
    """16 producers that send 200 times their rate when nobody stops them."""
    plan = Plan(proxies, connections=16, requests=32, demand=200, skew=0.0, seconds=45, warm=25)
    found = run(plan)
    assert min(found.pieces[25:]) > 0.5
    assert max(found.pieces[25:]) < 1.5
    assert found.rate == pytest.approx(1.0, abs=0.02)


def test_the_page_shows_what_was_simulated() -> None:
    page = (DOCS / "fleet.md").read_text().splitlines()
    shown = list(tables(json.loads((DOCS / "fleet.json").read_text())))
    assert len(shown) > 20
    assert [line for line in shown if line not in page] == []
