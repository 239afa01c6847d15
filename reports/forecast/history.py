"""History: observations of one volume as one value a day. In: times and used bytes. Out: `History`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DAY = 86_400

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class History:
    """`days` since the epoch, whole ones, ascending, not all of them need be there; `used` bytes at the end of each; `last` is the
    time of the last observation, in days since the epoch."""

    days: Array
    used: Array
    last: float

    @classmethod
    def of(cls, observations: Iterable[tuple[float, float]]) -> History:
        """Of (seconds since the epoch, used bytes) in any order: the last of each day counts, put at the time it was made."""
        latest: dict[int, tuple[float, float]] = {}
        for at, used in observations:
            day = int(at // DAY)
            if day not in latest or at >= latest[day][0]:
                latest[day] = (at, used)
        rows = [latest[day] for day in sorted(latest)]
        return cls(
            np.array([at / DAY for at, _ in rows]), np.array([float(used) for _, used in rows]), rows[-1][0] / DAY if rows else 0.0
        )

    @property
    def span(self) -> float:
        """Days from the first observation to the last."""
        return float(self.days[-1] - self.days[0]) if len(self) else 0.0

    def __len__(self) -> int:
        return len(self.days)

    def until(self, count: int) -> History:
        """The first `count` days."""
        return History(self.days[:count], self.used[:count], float(self.days[count - 1]))
