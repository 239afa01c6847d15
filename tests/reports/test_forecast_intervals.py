"""How often the truth lies within the intervals of forecasts: hundreds of forecasts, so that a share can be told."""

from typing import Any

import pytest

pytest.importorskip("numpy")
import numpy as np

from reports.forecast.forecast import forecast
from reports.forecast.history import DAY, History
from tests.reports.test_forecast import FIRST, GROWTH

SHAPES = ["linear", "weekly", "stepwise", "noisy", "random walk"]


def growth(shape: str, seed: int, days: int) -> Any:
    """Used bytes of as many days, which grow by GROWTH a day in the long run."""
    chance, at = np.random.default_rng(seed), np.arange(days)
    match shape:
        case "linear":
            return 1e12 + GROWTH * (at + 0.1 * chance.normal(size=days))
        case "weekly":
            return 1e12 + GROWTH * (at + 0.8 * np.sin(2 * np.pi * (FIRST + seed + at) / 7) + 0.3 * chance.normal(size=days))
        case "stepwise":
            return 1e12 + np.cumsum(np.where(chance.random(days) < 1 / 3, 3 * GROWTH * chance.uniform(0.5, 1.5, days), 0.0))
        case "noisy":
            return 1e12 + GROWTH * (at + 2.0 * chance.normal(size=days))
        case _:
            return 1e12 + np.cumsum(GROWTH * (1 + chance.normal(size=days)))


def held(shape: str, days: int, ahead: int, seeds: range) -> float:
    """The part of the forecasts, one for each seed, within whose interval the truth lay."""
    inside = 0
    for seed in seeds:
        used = growth(shape, seed, 1000)
        limit = max(1e12 + GROWTH * (days - 1 + ahead), used[days - 1] + GROWTH)
        true = days + int(np.argmax(used[days:] >= limit))
        first = FIRST + seed
        history = History.of((float((first + day) * DAY), float(used[day])) for day in range(days))
        reached = forecast(history, {"full": limit}).reached["full"]
        # It was reached at some time of the day before the first check that saw it.
        in_time = reached.early is not None and reached.early <= first + true
        inside += in_time and (reached.late is None or reached.late >= first + true - 1)
    return inside / len(seeds)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("days", "ahead"), [(8, 15), (15, 60), (60, 120)])
def test_the_truth_lies_within_the_interval_nine_times_out_of_ten(shape: str, days: int, ahead: int) -> None:
    assert held(shape, days, ahead, range(25)) >= 0.85


@pytest.mark.nightly
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("days", "ahead"), [(8, 15), (11, 20), (15, 60), (60, 120)])
def test_it_does_so_of_hundreds(shape: str, days: int, ahead: int) -> None:
    """With 25 runs, a share that is a few in a hundred too low is not noticed."""
    assert held(shape, days, ahead, range(1000, 1250)) >= 0.85
