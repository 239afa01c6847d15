"""What the checker makes of what somebody had: bounds, and what excuses that they are passed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.checker import LATE, Bound, _judge
from tests.simulation.clients import History
from tests.simulation.network import NetworkLoop
from tests.simulation.world import Leniency

RATE = 100.0
BURST = 10.0
ALLOWED = int(RATE * (BURST + LATE))


def wrong(had: list[tuple[float, int]], *excuses: Leniency, rates: list[tuple[float, float]] | None = None) -> list[str]:
    """What is said of somebody at one proxy with 100/s, 10 s of it at once, and 50 more where proxies do not hear of each other."""
    loop = NetworkLoop()
    world: Any = SimpleNamespace(history=History(loop), leniency=list(excuses), proxies=[None], closest={"bytes": 0.0})
    _judge(world, Bound("alice", had, rates or [(0.0, RATE)], 0.0, BURST, 50.0))
    loop.close()
    return [text.split(" s: ")[1] for text in world.history.wrong]


def test_what_a_rate_and_its_burst_allow_is_right_in_any_window() -> None:
    assert wrong([(1.0, ALLOWED)]) == []
    assert wrong([(1.0, ALLOWED), (2.0, 100)]) == []
    assert wrong([(1.0, ALLOWED + 1)]) == ["alice got 1026 bytes more than 100/s in a window: 1 more than its burst"]
    assert wrong([(1.0, ALLOWED), (2.0, 101)]) != []


def test_another_rate_holds_from_its_time_on() -> None:
    rates = [(0.0, RATE), (5.0, 2 * RATE)]
    assert wrong([(4.0, ALLOWED), (6.0, 1300)], rates=rates) == []
    assert wrong([(4.0, ALLOWED), (4.5, 1300)], rates=rates) != []


@pytest.mark.parametrize(
    ("at", "right"),
    [
        pytest.param(5.0, True, id="while it lasts"),
        pytest.param(9.0, True, id="in a window that begins then"),
        pytest.param(11.0, False, id="not afterwards"),
    ],
)
def test_what_is_excused_is_excused_while_its_cause_lasts(at: float, right: bool) -> None:
    excuse = Leniency(at=4.0, until=10.0, seconds=2.0, unheard=True)
    assert (wrong([(at, ALLOWED + 250)], excuse) == []) is right
    assert wrong([(at, ALLOWED + 251)], excuse) != []


def test_a_window_that_spans_a_cause_has_what_it_excuses() -> None:
    excuse = Leniency(at=4.0, until=4.0, seconds=2.0)
    assert wrong([(3.0, ALLOWED), (5.0, 400)], excuse) == []
    assert wrong([(3.0, ALLOWED), (5.0, 401)], excuse) != []


def test_what_excuses_one_owner_excuses_no_other() -> None:
    had = [(5.0, ALLOWED + 200)]
    assert wrong(had, Leniency(4.0, 10.0, 2.0, owner="alice")) == []
    assert wrong(had, Leniency(4.0, 10.0, 2.0, owner="bob")) != []
