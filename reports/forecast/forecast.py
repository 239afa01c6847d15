"""The day on which what fills, a volume or a tenant's budget, reaches a limit. In: its history, the limits as used bytes. Out:
`Forecast`, or the reason why there is none, and with what it is about `FillForecast`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Self

import numpy as np

from reports.forecast.backtest import Backtest, backtest
from reports.forecast.history import Array, History
from reports.forecast.models import Band, Fit, Model, line, seasonal

MIN_DAYS = 3
"""With observations on fewer days there is no forecast."""
MIN_SPAN = 2.0
"""With fewer days from the first to the last observation there is none either."""
MIN_SEASONAL = 14
"""Days that a weekly season takes: each day of the week twice."""
HORIZON = 730
"""Days ahead for which there is a forecast."""
_STEP = 0.25


@dataclass(frozen=True, slots=True)
class Reached:
    """When a limit is reached, in days since the epoch: None where that is not within HORIZON. `early` and `late` are the ends of
    the interval. `already` where the volume is there at its last observation."""

    day: float | None
    early: float | None
    late: float | None
    already: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """`slope` is bytes a day. Without a model there is no forecast, and `reason` says why."""

    days: int
    reason: str | None = None
    model: str | None = None
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    test: Backtest | None = None
    reached: Mapping[str, Reached] = field(default_factory=dict)
    fit: Fit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FillForecast:
    """`observed`: seconds since the epoch and used bytes of each day's last observation. `levels`: names -> used bytes at which
    something happens. `proposed`, its levels and `factor`, the part of the growth that is left: with other quotas, where these
    change anything."""

    observed: tuple[tuple[int, int], ...]
    history: History
    levels: Mapping[str, int]
    forecast: Forecast
    proposed: Forecast | None = None
    proposed_levels: Mapping[str, int] | None = None
    factor: float | None = None

    @property
    def at(self) -> datetime:
        """When it was last observed."""
        return datetime.fromtimestamp(self.observed[-1][0], UTC)

    @property
    def used(self) -> int:
        """Bytes then."""
        return self.observed[-1][1]

    def with_proposed(self, levels: Mapping[str, int], factor: float) -> Self:
        """The same with other quotas beside it."""
        proposed = changed(self.forecast, self.history, levels, factor)
        return replace(self, proposed=proposed, proposed_levels=levels, factor=factor)


def forecast(history: History, limits: Mapping[str, float]) -> Forecast:
    """`limits` are names -> used bytes at which each is reached."""
    reason = _too_short(history)
    if reason is not None:
        return Forecast(len(history), reason)
    model, test = _best(history)
    return _forecast(history, limits, model(history), test)


def changed(found: Forecast, history: History, limits: Mapping[str, float], factor: float) -> Forecast:
    """The same forecast with other limits; `factor` is what the growth is multiplied with, from now on."""
    if found.fit is None:
        return found
    fit = found.fit if factor == 1 else _slowed(found.fit, history, factor)
    return _forecast(history, limits, fit, found.test)


def _forecast(history: History, limits: Mapping[str, float], fit: Fit, test: Backtest | None) -> Forecast:
    days = history.last + np.arange(0, HORIZON, _STEP)
    band = fit.path(days)
    reached = {name: _reached(history, days, band, limit) for name, limit in limits.items()}
    return Forecast(len(history), None, fit.name, fit.slope, fit.slope_low, fit.slope_high, test, reached, fit)


def _too_short(history: History) -> str | None:
    if len(history) < MIN_DAYS:
        return f"too little history ({len(history)} day{'s' * (len(history) != 1)}, {MIN_DAYS} are needed)"
    if history.span < MIN_SPAN:
        return f"too little history ({history.span:.1f} days from the first to the last check, {MIN_SPAN:g} are needed)"
    return None


def _best(history: History) -> tuple[Model, Backtest | None]:
    """The model that was less off on the last days, of those that the history is long enough for."""
    if len(history) < MIN_SEASONAL:
        return line, backtest(history, line, MIN_DAYS)
    tests = [(seasonal, backtest(history, seasonal, 10)), (line, backtest(history, line, MIN_DAYS))]
    # The season is what is expected: the line has to be clearly better.
    errors = [np.inf if test is None else test.error for _, test in tests]
    return tests[1] if errors[1] < errors[0] / 2 else tests[0]


def _slowed(fit: Fit, history: History, factor: float) -> Fit:
    """The same with another growth from the last observation on."""
    now = float(history.days[-1])

    def slowed(days: Array) -> Band:
        less = (1 - factor) * np.maximum(days - now, 0)
        slopes = (fit.slope, fit.slope_low, fit.slope_high)
        return Band(*(used - less * slope for used, slope in zip(fit.path(days), slopes, strict=True)))

    return Fit(fit.name, fit.slope * factor, fit.slope_low * factor, fit.slope_high * factor, slowed)


def _reached(history: History, days: Array, band: Band, limit: float) -> Reached:
    if history.used[-1] >= limit:
        return Reached(history.last, history.last, history.last, already=True)
    # A high path is there early, a low one late.
    mean, high, low = (_first(days, used, limit) for used in (band.mean, band.high, band.low))
    return Reached(mean, high, low)


def _first(days: Array, used: Array, limit: float) -> float | None:
    above = used >= limit
    return float(days[int(np.argmax(above))]) if bool(np.any(above)) else None
