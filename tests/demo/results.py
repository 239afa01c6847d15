"""Results for tests that need some, as the storm of a good run gives them."""

from collections.abc import Mapping

from demo.figures import Delivery, Felt, Latencies, PhaseFigures, StormFigures, Waits
from demo.usage import Told
from demo.verdict import Results

TOLD = {"storm-new": Told(7, 12_000), "storm-old": Told(0, 9_280)}


def felt(p99: float, wait: float, pending: int = 0) -> Felt:
    """What clients felt: p99 in ms, the median wait for a topic in seconds."""
    seconds = tuple(p99 if second % 4 else 1.0 for second in range(15))
    return Felt(Latencies(3000, 1.2, p99, 2 * p99, seconds), Waits(15, wait, 2 * wait, pending, 0, (wait,)))


def phase(whole: Felt, after: Felt | None = None, storms: Mapping[str, StormFigures] | None = None) -> PhaseFigures:
    """A phase of 15 s."""
    return PhaseFigures(15, whole, whole, after or whole, dict(storms or {}))


def results(
    *,
    alone: Felt | None = None,
    storm: Felt | None = None,
    after: Felt | None = None,
    told: Mapping[str, Told] | None = None,
    lost: int = 0,
    old_refused: int = 0,
    new_refused: int = 560,
) -> Results:
    """A good run, but for what is given."""
    unlimited = {f"{name}-unlimited": StormFigures(4, 1680, 0, 0, 0.2) for name in ("storm-new", "storm-old")}
    limited = {"storm-new": StormFigures(2, 560, new_refused, 0, 12.0), "storm-old": StormFigures(11, 616, old_refused, 0, 10.4)}
    return Results(
        phase(alone or felt(10, 0.04)),
        phase(storm or felt(200, 8.0, pending=14), storms=unlimited),
        phase(felt(100, 2.0), after or felt(12, 0.04), storms=limited),
        Delivery(9600, 0, lost),
        TOLD if told is None else told,
    )
