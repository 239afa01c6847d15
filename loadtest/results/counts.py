"""Counts of operations, in all and second by second. In: operations with their time of day. Out: `Counts`, which add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from loadtest.results.histogram import Histogram, merge

Count = Annotated[int, Field(ge=0)]
COLUMNS: Final = ("intended", "sent", "acknowledged", "failed", "bytes", "latency_sum_us", "latency_max_us")
_INTENDED, _SENT, _ACKNOWLEDGED, _FAILED, _BYTES, _SUM, _MAX = range(len(COLUMNS))
LONGEST: Final = 86_400
"""Seconds. A bound, so that a clock that jumps does not make a list of millions."""


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Throttle(Model):
    """Throttle times that answers asked for."""

    count: Count = Field(0, description="Answers with a throttle time above 0.")
    sum_ms: Count = 0
    max_ms: Count = 0


class Series(Model):
    """Second by second, warm-up included; all lists are of one length. Of N drivers the seconds are added."""

    first: int = Field(0, description="The second (since 1970) of the first value.")
    intended: list[int] = Field(default_factory=list, description="Operations due; zeros if as fast as possible.")
    sent: list[int] = Field(default_factory=list)
    acknowledged: list[int] = Field(default_factory=list)
    failed: list[int] = Field(default_factory=list)
    bytes: list[int] = Field(default_factory=list, description="Of what was acknowledged.")
    latency_sum_us: list[int] = Field(default_factory=list, description="Divided by `acknowledged`: the mean of that second.")
    latency_max_us: list[int] = Field(default_factory=list)


class Tick(Model):
    """Sums of a driver since the beginning of a phase. It sends them once a second."""

    intended: int = 0
    sent: int = 0
    acknowledged: int = 0
    failed: int = 0
    bytes: int = 0
    latency_max_us: int = 0
    """Of the last second."""


class Counts(Model):
    """What a driver's report and a tenant's result have in common. Warm-up counts only in `series`."""

    intended: Count = Field(0, description="Operations that fell due (for `as fast as possible`: that were sent).")
    sent: Count = 0
    acknowledged: Count = Field(0, description="Operations that succeeded: records acknowledged or consumed, topics made, …")
    failed: dict[str, Count] = Field(default_factory=dict, description="Number of failures by error name.")
    bytes: Count = Field(0, description="Payload (keys and values) of what was acknowledged.")
    latency: Histogram = Field(default_factory=Histogram, description="From the time an operation was due to its success.")
    service: Histogram = Field(default_factory=Histogram, description="From the time it was sent: what a closed loop would show.")
    throttle: Throttle = Field(default_factory=Throttle)
    series: Series = Field(default_factory=Series)

    @staticmethod
    def added(several: Sequence[Counts]) -> dict[str, Any]:
        """The sums of all, by field."""
        throttles = [one.throttle for one in several]
        return {
            **{name: sum(getattr(one, name) for one in several) for name in ("intended", "sent", "acknowledged", "bytes")},
            "failed": dict(sum((Counter(one.failed) for one in several), Counter[str]())),
            "latency": merge(one.latency for one in several),
            "service": merge(one.service for one in several),
            "throttle": Throttle(
                count=sum(told.count for told in throttles),
                sum_ms=sum(told.sum_ms for told in throttles),
                max_ms=max((told.max_ms for told in throttles), default=0),
            ),
            "series": add(one.series for one in several),
        }


class SeriesRecorder:
    """One row for each second in which something happened. Times are seconds since 1970."""

    def __init__(self) -> None:
        self._rows: dict[int, list[int]] = {}

    def intended(self, at: float, count: int = 1) -> None:
        self._row(int(at))[_INTENDED] += count

    def sent(self, at: float, count: int = 1) -> None:
        self._row(int(at))[_SENT] += count

    def acknowledged(self, at: float, latency_us: int, size: int = 0, count: int = 1) -> None:
        """`count` operations succeeded, each `latency_us` after it was due, with `size` bytes in total."""
        row = self._row(int(at))
        row[_ACKNOWLEDGED] += count
        row[_BYTES] += size
        row[_SUM] += latency_us * count
        row[_MAX] = max(row[_MAX], latency_us)

    def failed(self, at: float, count: int = 1) -> None:
        self._row(int(at))[_FAILED] += count

    def add(self, series: Series) -> None:
        """What another one recorded."""
        for column, name in enumerate(COLUMNS):
            for offset, value in enumerate(getattr(series, name)):
                row = self._row(series.first + offset)
                row[column] = max(row[column], value) if column == _MAX else row[column] + value

    def series(self) -> Series:
        if not self._rows:
            return Series()
        first = min(self._rows)
        seconds = range(first, min(max(self._rows), first + LONGEST) + 1)
        nothing = [0] * len(COLUMNS)
        columns = zip(*(self._rows.get(second, nothing) for second in seconds), strict=True)
        return Series(first=first, **{name: list(values) for name, values in zip(COLUMNS, columns, strict=True)})

    def _row(self, second: int) -> list[int]:
        row = self._rows.get(second)
        if row is None:
            row = self._rows.setdefault(second, [0] * len(COLUMNS))  # two threads may count in different columns
        return row


def add(several: Iterable[Series]) -> Series:
    """Second by second."""
    recorder = SeriesRecorder()
    for series in several:
        recorder.add(series)
    return recorder.series()
