"""Back-test: how far off a model would have been. In: a history, a model. Out: its mean error on the last days, which it had not
seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reports.forecast.history import History
from reports.forecast.models import Model

MAX_DAYS = 7


@dataclass(frozen=True, slots=True)
class Backtest:
    """`error`: mean absolute error in bytes over the last `days` days, forecast from the day before them. `inside`: how many of
    them lay within the interval."""

    days: int
    error: float
    inside: int


def backtest(history: History, model: Model, least: int) -> Backtest | None:
    """A quarter of the days is held out, a week at most; None where fewer than `least` days would be left to learn from."""
    held = max(1, min(MAX_DAYS, len(history) // 4))
    seen = len(history) - held
    if seen < least:
        return None
    fit = model(history.until(seen))
    days, used = history.days[seen:], history.used[seen:]
    mean, low, high = fit.path(days)
    inside = (low <= used) & (used <= high)
    return Backtest(held, float(np.mean(np.abs(mean - used))), int(np.sum(inside)))
