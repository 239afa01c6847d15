"""Forecasts: near the true day, honest about how near, and none where there is nothing to go by."""

import pytest

pytest.importorskip("numpy")
import numpy as np

from reports.forecast.forecast import HORIZON, changed, forecast
from reports.forecast.history import DAY, History
from reports.forecast.models import CONFIDENCE, quantile

FIRST = 20_500  # days since the epoch
GROWTH = 1e10


def grown(days: int, *, wave: float = 0.8, noise: float = 0.3, seed: int = 1, first: int = FIRST) -> History:
    """A volume of 1 TB that grows by GROWTH a day, with a weekly wave and noise of these parts of it."""
    chance = np.random.default_rng(seed)
    at = np.arange(days)
    used = 1e12 + GROWTH * (at + wave * np.sin(2 * np.pi * (first + at) / 7) + noise * chance.normal(size=days))
    return History.of((float((first + day) * DAY), float(value)) for day, value in zip(at, used, strict=True))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ahead", [30, 60, 120])
def test_a_fortnight_of_history_lands_within_a_tenth_of_the_true_day(seed: int, ahead: int) -> None:
    history = grown(15, seed=seed, first=FIRST + seed)
    true = 14 + ahead
    found = forecast(history, {"full": 1e12 + GROWTH * true})
    assert found.model == "trend with a weekly season"
    day = found.reached["full"].day
    assert day is not None
    assert abs(day - history.days[0] - true) < 0.1 * ahead


@pytest.mark.parametrize("days", [0, 1, 2])
def test_too_short_a_history_has_no_forecast_and_says_why(days: int) -> None:
    found = forecast(grown(days) if days else History.of([]), {"full": 2e12})
    assert found.model is None
    assert not found.reached
    assert found.reason is not None
    assert found.reason == f"too little history ({days} day{'s' * (days != 1)}, 3 are needed)"


def test_a_short_history_is_a_robust_line_that_a_cleanup_does_not_turn() -> None:
    history = grown(10, wave=0, noise=0.02)
    history.used[4] -= 5e11  # for a day
    found = forecast(history, {"full": 1e12 + GROWTH * 50})
    assert found.model == "line"
    assert found.slope == pytest.approx(GROWTH, rel=0.05)
    day = found.reached["full"].day
    assert day is not None
    assert day - history.days[0] == pytest.approx(50, abs=3)


def test_it_is_tested_on_days_that_it_had_not_seen() -> None:
    even = forecast(grown(28, wave=0, noise=0.01), {}).test
    turned = grown(28, wave=0, noise=0.01)
    turned.used[-7:] = turned.used[-8]
    stopped = forecast(turned, {}).test
    assert even is not None
    assert stopped is not None
    assert even.days == stopped.days == 7
    assert even.error < 0.1 * GROWTH
    assert stopped.error > GROWTH
    assert stopped.inside < even.inside


def test_a_volume_that_does_not_grow_is_not_expected_to_fill() -> None:
    flat = History.of((float((FIRST + day) * DAY), 1e12) for day in range(20))
    reached = forecast(flat, {"full": 2e12, "soft": 9e11}).reached
    assert reached["full"].day is None
    assert reached["soft"].already


def test_half_the_growth_takes_twice_the_time() -> None:
    history = grown(21, wave=0, noise=0.01)
    limits = {"full": 1e12 + GROWTH * 50}
    found = forecast(history, limits)
    now, half = found.reached["full"].day, changed(found, history, limits, 0.5).reached["full"].day
    assert now is not None
    assert half is not None
    assert half - history.last == pytest.approx(2 * (now - history.last), rel=0.03)
    assert half - history.last < HORIZON


def test_the_last_observation_of_a_day_counts_in_whatever_order_they_come() -> None:
    rows = [((FIRST + day) * DAY + hour * 3600.0, 100.0 * day + hour) for day in range(3) for hour in (23, 1, 12)]
    history = History.of(reversed(rows))
    assert list(history.used) == [23, 123, 223]


def test_the_quantile_of_the_interval_is_scipys() -> None:
    stdtrit = pytest.importorskip("scipy.special").stdtrit
    for freedom in (1.0, 4 / 3, 2.0, 10.0, 33.3, 60.0):
        assert quantile(freedom) == pytest.approx(float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)), rel=1e-12)
