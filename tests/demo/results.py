"""Results for tests that need some, as the storm of a good run gives them."""

from collections.abc import Mapping

from demo.figures import Delivery, Felt, Flood, HeldBack, Latencies, StormFigures, Waits
from demo.throttling import Throttling
from demo.verdict import Results

THROTTLING = {"storm-new": Throttling(7, 12_000), "storm-old": Throttling(0, 9_280)}


def felt(longest: float, wait: float, pending: int = 0) -> Felt:
    """What clients felt: the longest latency of most seconds in ms, the median wait for a topic in seconds."""
    seconds = tuple(longest if second % 4 else 1.0 for second in range(15))
    return Felt(Latencies(1.2, longest, 2 * longest, seconds), Waits(15, wait, 2 * wait, pending))


def results(
    *,
    alone: Felt | None = None,
    storm: Felt | None = None,
    after: Felt | None = None,
    throttling: Mapping[str, Throttling] | None = None,
    lost: int = 0,
    old_refused: int = 0,
    new_refused: int = 560,
    clicks: HeldBack | None = None,
    archive: HeldBack | None = None,
    flood: Flood | None = None,
) -> Results:
    """A good run, but for what is given."""
    storms = {f"{name}-unlimited": StormFigures(1680, 0, 0, 0.2) for name in ("storm-new", "storm-old")}
    storms["storm-new"] = StormFigures(560, new_refused, 0, 12.0)
    storms["storm-old"] = StormFigures(616, old_refused, 0, 10.4)
    return Results(
        15,
        alone or felt(10, 0.04),
        storm or felt(200, 8.0, pending=14),
        after or felt(12, 0.04),
        storms,
        Delivery(9600, 0, lost),
        THROTTLING if throttling is None else throttling,
        clicks or HeldBack(24.6e6, 3.4e6, 120, 0),
        archive or HeldBack(126e6, 98e6, 15, 2800),
        (felt(10, 0.04), felt(10, 0.04)),
        flood or Flood(400.0, 30.0, 12_000),
    )
