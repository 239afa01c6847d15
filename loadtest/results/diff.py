"""Differences of two results: which figures got worse by more than a threshold. In: an older and a newer result. Out: changes.

Of two runs, every figure is compared. Of two comparisons, the ratios to the first endpoint are compared, which do not depend on
the machine; a change that may be chance is no regression. Of two sweeps, the knees are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from loadtest.results.counts import Model
from loadtest.results.measures import KINDS, Kind, figures
from loadtest.results.model import Comparison, Machine, RunResult, Sweep
from loadtest.results.statistics import LEVEL, rank_sum

_KNEE: Final = Kind("knee", "1/s", "higher", 0.1, 0.5)
_ALL: Final = KINDS | {_KNEE.name: _KNEE}


class DiffError(Exception):
    """Two results cannot be compared, or a threshold is wrong."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a result: one value, or the ratios of all rounds."""

    what: str
    kind: Kind
    values: Sequence[float]
    is_ratio: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One figure, before and after."""

    figure: Figure
    before: float
    after: float
    threshold: float
    p_value: float | None

    @property
    def what(self) -> str:
        return self.figure.what

    @property
    def name(self) -> str:
        return self.figure.kind.name

    @property
    def unit(self) -> str:
        return "ratio" if self.figure.is_ratio else self.figure.kind.unit

    @property
    def share(self) -> float | None:
        """after / before - 1; None if before is 0."""
        return self.after / self.before - 1 if self.before else None

    @property
    def regressed(self) -> bool:
        """True if it is worse by more than the threshold and the noise, and (if known) not by chance."""
        kind = self.figure.kind
        worse = self.after - self.before if kind.better == "lower" else self.before - self.after
        beyond = worse > self.threshold * self.before and worse > (0.0 if self.figure.is_ratio else kind.noise)
        return beyond and (self.p_value is None or self.p_value < LEVEL)


def diff(before: Model, after: Model, thresholds: Mapping[str, float] | None = None) -> list[Change]:
    """Compare every figure that both have. `thresholds`: shares by the name of the figure. Raises DiffError."""
    if type(before) is not type(after):
        raise DiffError(f"one is a {_kind(before)}, the other a {_kind(after)}: only results of one kind can be compared")
    older, newer = _figures(before), _figures(after)
    changes = [_change(figure, newer[key], thresholds or {}) for key, figure in older.items() if key in newer]
    scenarios = [str(getattr(result, "scenario", "")) for result in (before, after)]
    if scenarios[0] != scenarios[1]:
        raise DiffError(f"one is of scenario {scenarios[0]}, the other of {scenarios[1]}")
    if not changes:
        raise DiffError("they have no figure in common")
    return changes


def _change(older: Figure, newer: Figure, thresholds: Mapping[str, float]) -> Change:
    threshold = thresholds.get(older.kind.name, older.kind.threshold)
    return Change(older, median(older.values), median(newer.values), threshold, rank_sum(older.values, newer.values))


def _figures(result: Model) -> dict[tuple[str, ...], Figure]:
    match result:
        case RunResult():
            return {key: Figure(f"{key.phase}, {key.whose}", KINDS[key.name], [x]) for key, x in figures(result).items()}
        case Comparison():
            return {
                (measure.phase, measure.tenant, measure.name, sample.endpoint): Figure(
                    f"{measure.phase}, {measure.tenant}, {sample.endpoint} / {measure.samples[0].endpoint}",
                    KINDS[measure.name],
                    [value / base for value, base in zip(sample.values, measure.samples[0].values, strict=True)],
                    is_ratio=True,
                )
                for measure in result.measures
                if all(measure.samples[0].values)
                for sample in measure.samples[1:]
            }
        case Sweep():
            return {(_KNEE.name,): Figure(result.endpoint.name, _KNEE, [result.knee or 0.0])}
    return {}


def thresholds(texts: Sequence[str]) -> dict[str, float]:
    """Parse `--threshold NAME=PERCENT`. Raises DiffError, which names the mistake."""
    found = {}
    for text in texts:
        name, _, percent = text.partition("=")
        if name not in _ALL:
            raise DiffError(f"--threshold {text}: there is no figure {name}; there are {', '.join(_ALL)}")
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


def _run_of(result: Model) -> RunResult | None:
    if isinstance(result, RunResult):
        return result
    return result.runs[0] if isinstance(result, Comparison | Sweep) and result.runs else None


def _kind(result: Model) -> str:
    return str(getattr(result, "kind", type(result).__name__))
