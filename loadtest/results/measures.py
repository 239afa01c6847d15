"""Measures: the figures of a run that comparisons, differences and tables show. In: a `RunResult`. Out: named numbers with units.

The table `KINDS` decides what is a figure, in which unit, and whether less of it is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from loadtest.results.model import PhaseResult, RunResult, TenantResult, Watched

Better = Literal["lower", "higher"]
_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure, and how large a change for the worse is a regression."""

    name: str
    unit: str
    better: Better
    threshold: float
    """Share of the older value."""
    noise: float
    """A smaller difference is ignored: twice a very small value is still a very small value."""
    of_tenant: Callable[[PhaseResult, TenantResult], float | None] = lambda *_: None
    of_watched: Callable[[PhaseResult, Watched], float | None] = lambda *_: None


def rate(phase: PhaseResult, tenant: TenantResult) -> float:
    """Operations per second that succeeded."""
    return tenant.acknowledged / phase.duration_s


def cpu_per_100k(phase: PhaseResult, watched: Watched) -> float | None:
    """CPU seconds for 100 000 operations of all tenants that succeeded."""
    done = sum(tenant.acknowledged for tenant in phase.tenants)
    return watched.cpu_s / done * 100_000 if done else None


def _percentile(percentile: float) -> Callable[[PhaseResult, TenantResult], float | None]:
    return lambda _, tenant: tenant.latency.percentile_us(percentile) / 1000 if tenant.latency.count else None


_TABLE: Final = (
    Kind("rate", "1/s", "higher", 0.05, 0.5, rate),
    Kind("bytes", "MiB/s", "higher", 0.05, 0.01, lambda phase, t: t.bytes / phase.duration_s / _MIB if t.bytes else None),
    Kind("mean", "ms", "lower", 0.2, 0.5, lambda _, t: t.latency.mean_us / 1000 if t.latency.count else None),
    Kind("p50", "ms", "lower", 0.2, 0.5, _percentile(50)),
    Kind("p99", "ms", "lower", 0.25, 0.5, _percentile(99)),
    Kind("p99.9", "ms", "lower", 0.5, 0.5, _percentile(99.9)),
    Kind("failed", "1/s", "lower", 0.05, 0.5, lambda phase, t: t.failures / phase.duration_s),
    Kind("cpu", "s/100k", "lower", 0.1, 0.01, of_watched=cpu_per_100k),
    Kind("memory", "MiB", "lower", 0.2, 8.0, of_watched=lambda _, watched: watched.memory_max_bytes / _MIB),
)
KINDS: Final = {kind.name: kind for kind in _TABLE}


class Key(NamedTuple):
    """Which figure."""

    phase: str
    whose: str
    """Tenant and, where it does several, operation or client; or what was watched."""
    name: str


def figures(result: RunResult) -> dict[Key, float]:
    """All figures of a run, in the units of `KINDS`."""
    found: dict[Key, float | None] = {}
    for phase in result.phases:
        for name, tenant in named(phase):
            found |= {Key(phase.name, name, kind.name): kind.of_tenant(phase, tenant) for kind in _TABLE}
        for watched in phase.watched:
            found |= {Key(phase.name, watched.name, kind.name): kind.of_watched(phase, watched) for kind in _TABLE}
    return {key: value for key, value in found.items() if value is not None}


def named(phase: PhaseResult) -> list[tuple[str, TenantResult]]:
    """The tenant results of a phase, each with a name: the tenant's, with operation and client if the tenant has several."""
    seen = [tenant.tenant for tenant in phase.tenants]
    return [
        (name if seen.count(name := tenant.tenant) == 1 else f"{name} ({tenant.operation}, {tenant.client})", tenant)
        for tenant in phase.tenants
    ]
