"""Models: what fits a history. In: `History`. Out: a `Fit`, which tells the used bytes of any later day, with an interval.

Both are a line through a sum of two kinds of noise: one that is gone the next day, and one that stays, a random walk. How much
there is of each is not known, and decides how sure a forecast is: so every mix of a grid is fitted by generalized least squares,
and counts by its restricted likelihood (REML). `seasonal` has a weekly season besides, so that a history of some weeks that begins
on a Friday and ends on a Monday has no slope from that. A cleanup that lasts a day is taken out before.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reports.forecast.history import Array, History

CONFIDENCE = 0.9
"""How often the truth is to lie within an interval."""
_WEEK = 7
_HARMONICS = 2
"""Waves of a week: a working week and its weekend need two."""
_LASTING = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Variance that a day adds for good, as multiples of the noise that is gone the next day."""
_MAX_DAYS = 180
"""What was before says little of what is to come."""
_DEPENDENCE = 3
"""Days of growth that are as good as one that is independent of the others: growth comes in steps that last for days. By back-tests
on linear, weekly, stepwise, noisy and random-walk growth (tests/reports/test_forecast_intervals.py)."""
_MIXING, _LEAST = 2, 6
"""Days of growth that it takes to tell how much there is of each noise, of those beyond the least. Without them, intervals of 11
days of history held the truth in 81 to 83 of 100 such back-tests on stepwise growth and random walks; with them in 86 to 87."""
_NODES, _STEPS = 64, 6
"""Of the integral and of Newton's method, for the distribution of the interval."""
_SPIKE = 20
"""A day that is so many usual changes off both of its neighbours is a spike."""


class Band(NamedTuple):
    """Used bytes of some days: expected, and the ends of the interval."""

    mean: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class Fit:
    """`path` gives used bytes of days since the epoch that are later than the history; `slope` is bytes a day, between `slope_low`
    and `slope_high`."""

    name: str
    slope: float
    slope_low: float
    slope_high: float
    path: Callable[[Array], Band]


Model = Callable[[History], Fit]


def line(history: History) -> Fit:
    """A line alone."""
    return _fit("line", history, _line)


def seasonal(history: History) -> Fit:
    """A line with a weekly season on it."""
    return _fit("trend with a weekly season", history, _weekly)


def _line(days: Array) -> Array:
    return np.column_stack([np.ones_like(days), days])


def _weekly(days: Array) -> Array:
    waves = [wave(2 * np.pi * n * days / _WEEK) for n in range(1, _HARMONICS + 1) for wave in (np.sin, np.cos)]
    return np.column_stack([_line(days), *waves])


@dataclass(frozen=True, slots=True)
class _Mix:
    """The fit of one mix of noises. `lasting` as in _LASTING; `noise` is the variance of what is gone the next day; `carried` is
    what of the random walk stays from the last day on, and the rest is what generalized least squares has for a later day."""

    lasting: float
    parameters: Array
    covariance: Array
    noise: float
    likelihood: float
    carried: float
    known: float
    seen: Array

    def later(self, design: Array, age: Array) -> tuple[Array, Array]:
        """Mean and variance of later days; `age` is days since the first of the history."""
        off = design - self.seen
        variance = 1 + self.lasting * age - self.known + ((off @ self.covariance) * off).sum(axis=1)
        return design @ self.parameters + self.carried, self.noise * np.maximum(variance, 0)


def _fit(name: str, history: History, design_of: Callable[[Array], Array]) -> Fit:
    days, used = history.days[-_MAX_DAYS:], _without_spikes(history.used)[-_MAX_DAYS:]
    now, level, scale = float(days[-1]), float(used[-1]), max(1.0, float(np.ptp(used)))
    design = design_of(days - now)
    mixes = [_mix(design, days - days[0], (used - level) / scale, lasting) for lasting in _LASTING]
    likelihoods = np.array([mix.likelihood for mix in mixes])
    weights = np.exp(likelihoods - likelihoods.max())
    weights /= weights.sum()
    freedom = len(days) - design.shape[1]
    width = quantile(min(freedom, max(_LEAST, freedom - _MIXING)) / _DEPENDENCE)

    def path(later: Array) -> Band:
        found = [mix.later(design_of(later - now), later - days[0]) for mix in mixes]
        mean, deviation = _mixed(weights, np.array([one[0] for one in found]), np.array([one[1] for one in found]))
        mean, reach = level + scale * mean, scale * width * deviation
        return Band(mean, mean - reach, mean + reach)

    slopes = np.array([[mix.parameters[1]] for mix in mixes])
    variances = np.array([[mix.noise * mix.covariance[1, 1]] for mix in mixes])
    slope, deviation = (float(one[0]) * scale for one in _mixed(weights, slopes, variances))
    return Fit(name, slope, slope - width * deviation, slope + width * deviation, path)


def _mix(design: Array, age: Array, used: Array, lasting: float) -> _Mix:
    count, parameters_count = design.shape
    factor = np.linalg.cholesky(np.eye(count) + lasting * np.minimum.outer(age, age))
    # The random walk at any later day is to each day of the history what it was on that day.
    white = np.linalg.solve(factor, np.column_stack([design, used, lasting * age]))
    inputs, outcome, walk = white[:, :parameters_count], white[:, parameters_count], white[:, -1]
    covariance = np.linalg.inv(inputs.T @ inputs)
    parameters = covariance @ (inputs.T @ outcome)
    residuals = outcome - inputs @ parameters
    freedom = max(1, count - parameters_count)
    noise = max(float(residuals @ residuals) / freedom, 1e-12)
    logarithms = 2 * np.log(np.diag(factor)).sum() - np.linalg.slogdet(covariance)[1] + freedom * np.log(noise)
    return _Mix(
        lasting,
        parameters,
        covariance,
        noise,
        -0.5 * float(logarithms),
        float(walk @ residuals),
        float(walk @ walk),
        walk @ inputs,
    )


def _mixed(weights: Array, means: Array, variances: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of a mixture; one row for each part of it."""
    mean = weights @ means
    return mean, np.sqrt(weights @ (variances + (means - mean) ** 2))


def _without_spikes(used: Array) -> Array:
    """Single days that are far from both neighbours get the middle of the three."""
    if len(used) < 5:
        return used
    middle = np.median(np.stack([used[:-2], used[1:-1], used[2:]]), axis=0)
    usual = float(np.median(np.abs(np.diff(used))))
    inner = np.where(np.abs(used[1:-1] - middle) > _SPIKE * usual, middle, used[1:-1])
    return np.concatenate([used[:1], inner, used[-1:]])


def quantile(freedom: float) -> float:
    """Of Student's distribution, for the upper end of the interval: Newton's method on its integral, right to 13 digits. With the
    angle whose tangent is t / sqrt(freedom), what is integrated is a power of a cosine."""
    freedom = max(1.0, freedom)
    density = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    at, weights = np.polynomial.legendre.leggauss(_NODES)
    angle = math.atan(1.6 / math.sqrt(freedom))
    for _ in range(_STEPS):
        inside = density * angle / 2 * float(weights @ np.cos(angle / 2 * (at + 1)) ** (freedom - 1))
        angle -= (inside - CONFIDENCE / 2) / (density * math.cos(angle) ** (freedom - 1))
    return math.sqrt(freedom) * math.tan(angle)
