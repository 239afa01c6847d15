"""Merge the results of N drivers into that of one run. In: a `RunResult` of each driver. Out: one.

Counts add, histograms merge exactly, series add by second. Assertions and warnings about figures are not merged, as the figures of
one driver say nothing about the sum: `assess` and `checks` judge the merged result. A missing driver is named, and fails the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, TypeVar

from loadtest.results import checks
from loadtest.results.model import (
    AssertionResult,
    PhaseResult,
    RunResult,
    TenantResult,
    Verification,
    Warning,
    WarningCode,
    Watched,
)

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

APART_S: Final = 1.0
"""Drivers that begin a phase further apart than this (seconds) did not run it at the same time."""
MAX_EXAMPLES: Final = 20


class MergeError(Exception):
    """These results are not of one run."""


def merge_runs(results: Sequence[RunResult], assess: Callable[[RunResult], list[AssertionResult]] | None = None) -> RunResult:
    """Raises MergeError if they do not belong together, naming what differs."""
    if not results:
        raise MergeError("no result to merge")
    _belong_together(results)
    begun = min(result.started for result in results)
    merged = results[0].model_copy(
        update={
            "started": begun,
            "duration_s": max(result.started + result.duration_s for result in results) - begun,
            "drivers": sorted(_all(results, "drivers"), key=lambda driver: driver.index),
            "phases": [_phase(several) for several in _grouped(_all(results, "phases"), lambda phase: phase.name)],
            "verification": [_verification(v) for v in _grouped(_all(results, "verification"), lambda v: (v.client, v.tenant))],
            "deliveries": _all(results, "deliveries"),
            "assertions": [],
        }
    )
    told = [warning for warning in _all(results, "warnings") if warning.code not in checks.FOUND]
    merged.warnings = _unique(
        [*told, *_missing(results), *_apart(results), *checks.warnings(merged)],
        lambda warning: (warning.code, warning.text, warning.phase),
    )
    if assess is not None:
        merged.assertions = assess(merged)
    return merged


def _belong_together(results: Sequence[RunResult]) -> None:
    first = results[0]
    for other in results[1:]:
        for name, ours, theirs in (
            ("run id", first.run_id, other.run_id),
            ("scenario", first.scenario, other.scenario),
            ("cluster", first.endpoint.cluster_id, other.endpoint.cluster_id),
            ("number of drivers", first.driver_count, other.driver_count),
        ):
            if ours != theirs:
                raise MergeError(f"not of one run: the {name} of one is {ours}, of another {theirs}")
        if keys := first.differing_keys(other):
            raise MergeError(f"not of one run: the scenario's {', '.join(f'`{key}`' for key in keys)} differ")
    seen = Counter(driver.index for result in results for driver in result.drivers)
    if twice := sorted(index for index, times in seen.items() if times > 1):
        raise MergeError(f"the result of driver {', '.join(map(str, twice))} is given more than once")
    if beyond := sorted(index for index in seen if index >= first.driver_count):
        last = first.driver_count - 1
        raise MergeError(
            f"there is no driver {', '.join(map(str, beyond))} in a run of {first.driver_count}: the last one is {last}"
        )


def _phase(several: Sequence[PhaseResult]) -> PhaseResult:
    tenants = _grouped(_all(several, "tenants"), lambda t: (t.tenant, t.operation, t.client))
    return several[0].model_copy(
        update={
            "started": min(phase.started for phase in several),
            "warmup_s": max(phase.warmup_s for phase in several),
            "duration_s": max(phase.duration_s for phase in several),
            "tenants": [_tenant(same) for same in tenants],
            "watched": _watched(several),
            "events": sorted(_unique(_all(several, "events"), lambda event: (event.at, event.text)), key=lambda event: event.at),
        }
    )


def _tenant(several: Sequence[TenantResult]) -> TenantResult:
    rates = [tenant.intended_rate for tenant in several if tenant.intended_rate is not None]
    rate = sum(rates) if len(rates) == len(several) else None
    return several[0].model_copy(update={"intended_rate": rate, **TenantResult.added(several)})


def _watched(several: Sequence[PhaseResult]) -> list[Watched]:
    """Each driver watches its own machine, so equal names get a number."""
    found: dict[str, Watched] = {}
    for watched in _all(several, "watched"):
        name, number = watched.name, 2
        while name in found:
            name, number = f"{watched.name} ({number})", number + 1
        found[name] = watched.model_copy(update={"name": name})
    return list(found.values())


def _verification(several: Sequence[Verification]) -> Verification:
    counts = ("acknowledged", "consumed", "lost", "duplicated", "out_of_order", "unacknowledged", "aborted")
    sums: dict[str, Any] = {name: sum(getattr(found, name) for found in several) for name in counts}
    return several[0].model_copy(update={**sums, "examples": _all(several, "examples")[:MAX_EXAMPLES]})


def _apart(results: Sequence[RunResult]) -> list[Warning]:
    """Phases that drivers did not run at the same time: the sum of their rates is then not what the cluster saw at any time."""
    found = []
    for phases in _grouped(_all(results, "phases"), lambda phase: phase.name):
        starts = [phase.started for phase in phases]
        if (apart := max(starts) - min(starts)) > APART_S:
            text = f"phase {phases[0].name}: the drivers began it {apart:.1f} s apart"
            found.append(Warning(code=WarningCode.DRIVERS_APART, text=text, phase=phases[0].name))
        if len(phases) < len(results):
            text = f"phase {phases[0].name}: {len(phases)} of {len(results)} drivers did it"
            found.append(Warning(code=WarningCode.DRIVER_LOST, text=text, phase=phases[0].name))
    return found


def _missing(results: Sequence[RunResult]) -> list[Warning]:
    there = {driver.index for result in results for driver in result.drivers}
    missing = [index for index in range(results[0].driver_count) if index not in there]
    if not missing:
        return []
    names = ", ".join(map(str, missing[:20])) + (", …" if len(missing) > 20 else "")
    text = f"{len(missing)} of {results[0].driver_count} drivers are missing: {names}; what they did is in none of the figures"
    return [Warning(code=WarningCode.DRIVER_MISSING, text=text)]


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> list[list[T]]:
    """Items grouped by key, in the order in which keys first appear."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _unique(items: Iterable[T], key: Callable[[T], K]) -> list[T]:
    """The first item of each key."""
    return [several[0] for several in _grouped(items, key)]


def _all(several: Sequence[object], name: str) -> list[Any]:
    """The items that the lists of this name have together."""
    return [item for one in several for item in getattr(one, name)]
