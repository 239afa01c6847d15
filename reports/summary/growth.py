"""Growth of a summary: what a forecast says, for the page. In: a `Forecast`, its limits. Out: `Level`s, and the fields of
a `Growth`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from reports.forecast.forecast import Forecast
from reports.forecast.history import DAY
from reports.summary.model import Level

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


def _time(day: float | None) -> datetime | None:
    return None if day is None else datetime.fromtimestamp(round(day * DAY), UTC)
