"""Growth of a summary: what a forecast says, for the page. In: a `Forecast`, its limits. Out: `Level`s, the fields of
a `Growth`, and a `Path` to draw."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from reports.forecast.forecast import HORIZON, FillForecast, Forecast, Reached
from reports.forecast.history import DAY
from reports.summary.model import Level, Path

_POINTS = 60
_ORDER = ("soft", "limit", "hard", "full")


def levels_of(levels: Mapping[str, int], result: Forecast) -> tuple[Level, ...]:
    """When each limit is reached."""
    found = []
    for name in filter(levels.__contains__, _ORDER):
        reached = result.reached.get(name)
        day, early, late = (_time(at) for at in ((reached.day, reached.early, reached.late) if reached else (None, None, None)))
        found.append(Level(name, levels[name], day, early, late, bool(reached and reached.already)))
    return tuple(found)


def growth_of(result: Forecast) -> dict[str, Any]:
    """The fields of a `Growth`: the model, its growth, and its error on days held out."""
    test = result.test
    slopes = {"per_day": result.slope, "per_day_low": result.slope_low, "per_day_high": result.slope_high}
    return {
        "days": result.days,
        "reason": result.reason,
        "model": result.model,
        **{name: None if value is None else float(value) for name, value in slopes.items()},
        "tested_days": test.days if test else 0,
        "tested_error": test.error if test else None,
        "tested_inside": test.inside if test else 0,
    }


def path_of(found: FillForecast, most: float, full: Reached | None) -> Path:
    """What was observed, what is forecast, and that with other quotas, up to the `most` bytes that there can be. It is drawn until
    it is `full`, but not further than six times its history, and two weeks at least."""
    result, proposed = found.forecast, found.proposed
    if result.fit is None:
        return Path(found.observed)
    begin = found.history.last
    ahead = (full.late or full.day or begin + HORIZON) - begin + 3 if full else HORIZON
    days = begin + np.linspace(0, min(max(14.0, 6 * found.history.span), max(ahead, 3.0)), _POINTS)
    columns = [np.clip(used, 0, most * 1.02) for used in result.fit.path(days)]
    rows = zip(days, *columns, strict=True)
    fit = proposed.fit if proposed else None
    other = np.clip(fit.path(days).mean, 0, most * 1.02) if fit else np.array([])
    return Path(
        found.observed,
        tuple((round(day * DAY), float(mean), float(low), float(high)) for day, mean, low, high in rows),
        tuple((round(day * DAY), float(used)) for day, used in zip(days, other, strict=False)),
    )


def _time(day: float | None) -> datetime | None:
    return None if day is None else datetime.fromtimestamp(round(day * DAY), UTC)
