"""Measures: the figures of a run that comparisons, differences and tables show. In: a `RunResult`. Out: named numbers with units.

One place decides what is a figure, in which unit, and whether less of it is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from loadtest.results.model import PhaseResult, RunResult, TenantResult

Better = Literal["lower", "higher"]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of figure, and how large a change for the worse is a regression."""

    name: str
    unit: str
    better: Better
    threshold: float
    """Share of the older value."""


RATE: Final = Kind("rate", "1/s", "higher", 0.05)
BYTES: Final = Kind("bytes", "MiB/s", "higher", 0.05)
MEAN: Final = Kind("mean", "ms", "lower", 0.2)
P50: Final = Kind("p50", "ms", "lower", 0.2)
P99: Final = Kind("p99", "ms", "lower", 0.25)
P999: Final = Kind("p99.9", "ms", "lower", 0.5)
FAILED: Final = Kind("failed", "1/s", "lower", 0.05)
CPU: Final = Kind("cpu", "s/100k", "lower", 0.1)
MEMORY: Final = Kind("memory", "MiB", "lower", 0.2)
KINDS: Final = {kind.name: kind for kind in (RATE, BYTES, MEAN, P50, P99, P999, FAILED, CPU, MEMORY)}


class Key(NamedTuple):
    """Which figure."""

    phase: str
    whose: str
    """Tenant and, where it does several, operation or client; or what was watched."""
    name: str


def figures(result: RunResult) -> dict[Key, float]:
    """All figures of a run, in the units of `KINDS`."""
    return {Key(phase.name, whose, kind.name): value for phase in result.phases for whose, kind, value in _of_phase(phase)}


def rate(phase: PhaseResult, tenant: TenantResult) -> float:
    """Operations per second that succeeded."""
    return tenant.acknowledged / phase.duration_s


def names(phase: PhaseResult) -> list[str]:
    """What each tenant result of a phase is called: the tenant's name, with operation and client where it has several."""
    seen = [tenant.tenant for tenant in phase.tenants]
    return [
        tenant.tenant if seen.count(tenant.tenant) == 1 else f"{tenant.tenant} ({tenant.operation}, {tenant.client})"
        for tenant in phase.tenants
    ]


def _of_phase(phase: PhaseResult) -> Iterator[tuple[str, Kind, float]]:
    for whose, tenant in zip(names(phase), phase.tenants, strict=True):
        yield whose, RATE, rate(phase, tenant)
        if tenant.bytes:
            yield whose, BYTES, tenant.bytes / phase.duration_s / 2**20
        if tenant.latency.count:
            yield whose, MEAN, tenant.latency.mean_us / 1000
            for kind, percentile in ((P50, 50), (P99, 99), (P999, 99.9)):
                yield whose, kind, tenant.latency.percentile_us(percentile) / 1000
        yield whose, FAILED, tenant.failures / phase.duration_s
    done = sum(tenant.acknowledged for tenant in phase.tenants)
    for watched in phase.watched:
        if done:
            yield watched.name, CPU, watched.cpu_s / done * 100_000
        yield watched.name, MEMORY, watched.memory_max_bytes / 2**20
