"""Differences of two results: which figures got worse by more than a threshold. In: an older and a newer result. Out: changes.

Of two runs, every figure is compared. Of two comparisons, the ratios to the first endpoint are compared, which do not depend on
the machine; a change that may be chance is no regression. Of two sweeps, the knees are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from loadtest.results.measures import KINDS, Better, figures
from loadtest.results.model import Comparison, Machine, Measure, Model, RunResult, Sweep
from loadtest.results.statistics import LEVEL, rank_sum

NOISE: Final = {"ms": 0.5, "1/s": 0.5, "MiB": 8.0, "MiB/s": 0.01, "s/100k": 0.01}
"""Differences below this, by unit, are ignored: twice a very small value is still a very small value."""
KNEE: Final = 0.1


class DiffError(Exception):
    """Two results cannot be compared, or a threshold is wrong."""


@dataclass(frozen=True, slots=True)
class Change:
    """One figure, before and after."""

    what: str
    name: str
    unit: str
    before: float
    after: float
    threshold: float
    better: Better
    p_value: float | None = None

    @property
    def share(self) -> float | None:
        """after / before - 1; None if before is 0."""
        return self.after / self.before - 1 if self.before else None

    @property
    def regressed(self) -> bool:
        """True if it is worse by more than the threshold and the noise, and (if known) not by chance."""
        worse = self.after - self.before if self.better == "lower" else self.before - self.after
        beyond = worse > self.threshold * self.before and worse > NOISE.get(self.unit, 0.0)
        return beyond and (self.p_value is None or self.p_value < LEVEL)


def diff(before: Model, after: Model, thresholds: Mapping[str, float] | None = None) -> list[Change]:
    """Compare every figure that both have. `thresholds`: shares by the name of the figure. Raises DiffError."""
    limits = {kind.name: kind.threshold for kind in KINDS.values()} | {"knee": KNEE} | dict(thresholds or {})
    match before, after:
        case RunResult(), RunResult():
            changes = list(_runs(before, after, limits))
        case Comparison(), Comparison():
            changes = list(_comparisons(before, after, limits))
        case Sweep(), Sweep():
            changes = [_knees(before, after, limits)]
        case _:
            raise DiffError(f"one is a {_kind(before)}, the other a {_kind(after)}: only results of one kind can be compared")
    if before.scenario != after.scenario:
        raise DiffError(f"one is of scenario {before.scenario}, the other of {after.scenario}")
    if not changes:
        raise DiffError("they have no figure in common")
    return changes


def thresholds(texts: Sequence[str]) -> dict[str, float]:
    """Parse `--threshold NAME=PERCENT`. Raises DiffError, which names the mistake."""
    found = {}
    for text in texts:
        name, _, percent = text.partition("=")
        if name not in (*KINDS, "knee"):
            raise DiffError(f"--threshold {text}: there is no figure {name}; there are {', '.join((*KINDS, 'knee'))}")
        try:
            found[name] = float(percent.removesuffix("%")) / 100
        except ValueError:
            raise DiffError(f"--threshold {text}: must be a percentage, as in {name}=10%") from None
        if not 0 <= found[name] < float("inf"):
            raise DiffError(f"--threshold {text}: a threshold is 0% or more")
    return found


def apart(before: Model, after: Model) -> list[str]:
    """Reasons other than the system under test why the figures may differ: machines, clients, scenarios."""
    one, other = _run_of(before), _run_of(after)
    if one is None or other is None:
        return []
    found = []
    machines = [{kind(driver.machine) for driver in run.drivers} for run in (one, other)]
    if machines[0] != machines[1]:
        found.append("they ran on machines of different kinds")
    if [driver.libraries for driver in one.drivers] != [driver.libraries for driver in other.drivers]:
        found.append("client libraries, or the number of drivers, are not the same")
    if keys := one.differing_keys(other):
        found.append(f"the scenario was not the same: {', '.join(keys)}")
    return found


def kind(machine: Machine) -> str:
    """The properties of a machine that figures depend on, as text."""
    return f"{machine.system}, {machine.processor}, {machine.cpus} CPUs, Python {machine.python}"


def _runs(before: RunResult, after: RunResult, limits: Mapping[str, float]) -> Iterator[Change]:
    later = figures(after)
    for key, value in figures(before).items():
        if key in later:
            kind = KINDS[key.name]
            yield Change(f"{key.phase}, {key.whose}", key.name, kind.unit, value, later[key], limits[key.name], kind.better)


def _comparisons(before: Comparison, after: Comparison, limits: Mapping[str, float]) -> Iterator[Change]:
    later = {(m.phase, m.tenant, m.name): _by_endpoint(m) for m in after.measures}
    for measure in before.measures:
        newer = later.get((measure.phase, measure.tenant, measure.name), {})
        for endpoint, ratios in _by_endpoint(measure).items():
            if endpoint in newer:
                yield Change(
                    f"{measure.phase}, {measure.tenant}, {endpoint} / {measure.samples[0].endpoint}",
                    measure.name,
                    "ratio",
                    median(ratios),
                    median(newer[endpoint]),
                    limits[measure.name],
                    measure.better,
                    rank_sum(ratios, newer[endpoint]),
                )


def _by_endpoint(measure: Measure) -> dict[str, list[float]]:
    """The ratios to the first endpoint within each round, by endpoint."""
    base = measure.samples[0].values
    if not all(base):
        return {}
    return {sample.endpoint: [a / b for a, b in zip(sample.values, base, strict=True)] for sample in measure.samples[1:]}


def _knees(before: Sweep, after: Sweep, limits: Mapping[str, float]) -> Change:
    return Change(before.endpoint.name, "knee", "1/s", before.knee or 0.0, after.knee or 0.0, limits["knee"], "higher")


def _run_of(result: Model) -> RunResult | None:
    if isinstance(result, RunResult):
        return result
    return result.runs[0] if isinstance(result, Comparison | Sweep) and result.runs else None


def _kind(result: Model) -> str:
    return str(getattr(result, "kind", type(result).__name__))
