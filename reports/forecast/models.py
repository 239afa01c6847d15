"""Models: what fits a history. In: `History`. Out: a `Fit`, which tells the used bytes of any later day, with an interval.

Both are robust: a cleanup or a reassignment is a jump that must not turn the trend. `line` is the Theil-Sen line of scipy, with its
confidence interval of the slope. `seasonal` is a regression on the time and the day of the week with Huber's norm (statsmodels
RLM), so that a history of some weeks that begins on a Friday and ends on a Monday has no slope from that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reports.forecast.history import Array, History

CONFIDENCE = 0.9
"""How often the truth is to lie within an interval."""
_WEEK = 7
_HARMONICS = 2
"""Waves of a week: a working week and its weekend need two."""


@dataclass(frozen=True, slots=True)
class Fit:
    """`mean`, `low` and `high` give used bytes for days since the epoch; `slope` is bytes a day, between `slope_low` and
    `slope_high`."""

    name: str
    slope: float
    slope_low: float
    slope_high: float
    mean: Callable[[Array], Array]
    low: Callable[[Array], Array]
    high: Callable[[Array], Array]


Model = Callable[[History], Fit]


def load() -> None:
    """Import scipy and statsmodels, which takes a second: asked for while Spark starts, it costs no time."""
    import scipy.stats  # noqa: F401
    import statsmodels.robust.robust_linear_model  # noqa: F401


def line(history: History) -> Fit:
    """The median of the slopes of all pairs of days, through where the volume stands now."""
    from scipy.stats import theilslopes

    slope, _, low, high = theilslopes(history.used, history.days, CONFIDENCE)
    days, used = history.days, history.used
    # Through the middle of the last days: the line has to begin where the volume is, also after a cleanup.
    recent = slice(-min(3, len(days)), None)
    now = float(days[-1])
    level = float(np.median(used[recent] - slope * (days[recent] - now)))
    residuals = used - slope * days
    times, drift = _quantile(len(days) - 2), _drift(residuals)
    spread, error = times * _spread(residuals), times * float(np.sqrt(drift / len(days)))
    low, high = min(low, slope - error), max(high, slope + error)

    def value(rate: float, shift: float) -> Callable[[Array], Array]:
        return lambda at: level + rate * (at - now) + shift

    return Fit("robust line", slope, low, high, value(slope, 0), value(low, -spread), value(high, spread))


def seasonal(history: History) -> Fit:
    """A line with a weekly season on it."""
    from statsmodels.robust.norms import HuberT
    from statsmodels.robust.robust_linear_model import RLM

    origin = float(history.days[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a history without any noise
        fitted = RLM(history.used, _design(history.days, origin), M=HuberT()).fit()
    parameters, covariance = fitted.params, fitted.cov_params()
    noise = _spread(fitted.resid)
    drift = _drift(fitted.resid)
    times = _quantile(len(history) - len(parameters))
    error = float(np.sqrt(covariance[1, 1] + drift / len(history))) * times

    def value(sign: float) -> Callable[[Array], Array]:
        def at(days: Array) -> Array:
            design, ahead = _design(days, origin), np.maximum(days - origin, 0)
            of_line = np.einsum("ij,jk,ik->i", design, covariance, design) + noise**2
            width = np.sqrt(of_line + drift * (ahead + ahead**2 / len(history)))
            return np.asarray(design @ parameters + sign * times * width)

        return at

    slope = float(parameters[1])
    return Fit("trend with a weekly season", slope, slope - error, slope + error, value(0), value(-1), value(1))


def _design(days: Array, origin: float) -> Array:
    waves = [wave(2 * np.pi * n * days / _WEEK) for n in range(1, _HARMONICS + 1) for wave in (np.sin, np.cos)]
    return np.column_stack([np.ones_like(days), days - origin, *waves])


def _spread(residuals: Array) -> float:
    """Standard deviation of the noise, by the median, which jumps do not turn."""
    from scipy.stats import median_abs_deviation

    return float(median_abs_deviation(residuals, scale="normal"))


def _drift(residuals: Array) -> float:
    """The variance that a day adds for good, bytes squared: noise in what is written adds up from day to day, noise in what is kept
    does not. Which of them it is, neighbouring residuals tell: those of a sum are alike. After a fit they are less alike than they
    were, by 0.2 or so for a few weeks.
    """
    if len(residuals) < 4 or np.ptp(residuals[1:]) == 0 or np.ptp(residuals[:-1]) == 0:
        return 0.0
    alike = float(np.corrcoef(residuals[:-1], residuals[1:])[0, 1])
    return float(np.clip((alike + 0.2) / 0.5, 0, 1)) * _spread(np.diff(residuals)) ** 2


def _quantile(freedom: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + CONFIDENCE / 2, max(1, freedom)))
