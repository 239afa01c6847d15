"""Series: what happened in each second. In: operations with their time of day. Out: `Series`, which add."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from loadtest.results.model import Series

COLUMNS: Final = ("intended", "sent", "acknowledged", "failed", "bytes", "latency_sum_us", "latency_max_us")
_INTENDED, _SENT, _ACKNOWLEDGED, _FAILED, _BYTES, _SUM, _MAX = range(len(COLUMNS))
LONGEST: Final = 86_400
"""Seconds. A bound, so that a clock that jumps does not make a list of millions."""


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
