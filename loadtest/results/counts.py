"""The counts that a driver's report and a tenant's result have in common. In: several of them. Out: their sums, by field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from loadtest.results.histogram import Histogram, merge
from loadtest.results.model import Series, Throttle
from loadtest.results.series import add

FIELDS: Final = ("intended", "sent", "acknowledged", "failed", "bytes", "latency", "service", "throttle", "series")
_SUMS: Final = ("intended", "sent", "acknowledged", "bytes")


class Counts(Protocol):
    """What both have. Four more fields are numbers that add up: `_SUMS`."""

    @property
    def failed(self) -> Mapping[str, int]: ...
    @property
    def latency(self) -> Histogram: ...
    @property
    def service(self) -> Histogram: ...
    @property
    def throttle(self) -> Throttle: ...
    @property
    def series(self) -> Series: ...


def added(several: Sequence[Counts]) -> dict[str, Any]:
    """A value for each of FIELDS."""
    failed: Counter[str] = Counter()
    for one in several:
        failed.update(one.failed)
    return {
        **{name: sum(getattr(one, name) for one in several) for name in _SUMS},
        "failed": dict(failed),
        "latency": merge(one.latency for one in several),
        "service": merge(one.service for one in several),
        "throttle": Throttle(
            count=sum(one.throttle.count for one in several),
            sum_ms=sum(one.throttle.sum_ms for one in several),
            max_ms=max((one.throttle.max_ms for one in several), default=0),
        ),
        "series": add(one.series for one in several),
    }
