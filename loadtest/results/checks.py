"""Checks of the harness on its own figures. In: results. Out: `Warning`s, which are kept in the results.

A driver without idle CPU measures itself. A due operation that was never sent has no latency, and latencies from the time of
sending hide the time before it (coordinated omission). A coarse clock gives coarse latencies. The figures of a lost driver are
missing. A rate that was not reached was not tested. Each check is one function from values to warnings; `warnings` calls all.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import psutil

from loadtest.results.faults import faults
from loadtest.results.limiting import nothing_limited
from loadtest.results.model import Driver, Machine, PhaseResult, RunResult, TenantResult, Warning, WarningCode
from loadtest.results.sampling import BUSY, IDLE
from webpage.text import counted

Found = Iterator[Warning]
FOUND: Final = frozenset(WarningCode) - {
    WarningCode.DRIVER_MISSING,
    WarningCode.DRIVERS_APART,
    WarningCode.DRIFT,
    WarningCode.LEFT_BEHIND,
    WarningCode.QUOTA_LIMITED,
}
"""The codes that `warnings` finds, and finds again in a merged result."""
REACHED: Final = 0.98
"""Share of the intended operations that has to succeed (or be sent)."""
MAX_SATURATED: Final = 0.05
"""Share of the measured time that a driver may be saturated."""
LAG_MS: Final = 1.0
"""Lateness that is too small to matter."""
LAG_SHARE: Final = 0.1
"""Largest lateness of the driver as a share of the p99 latency, as lateness is part of every latency."""
HIDDEN: Final = 2.0
"""Largest p99 from the due time, divided by p99 from the time of sending."""
STEPS: Final = 10
"""A median latency has to be at least this number of steps of the clock."""


def warnings(result: RunResult) -> list[Warning]:
    """All warnings about these figures."""
    found = [*lost(result.drivers), *saturated(result), *lagging(result), *coarse_clock(result), *not_limited(result)]
    for phase in result.phases:
        found += watch_lost(phase)
        for tenant in phase.tenants:
            found += [*rate_not_reached(phase, tenant), *omission(phase, tenant), *skew(phase, tenant)]
    return found


def lost(drivers: Iterable[Driver]) -> Found:
    """Driver processes that ended early."""
    if names := [process.name for driver in drivers for process in driver.processes if process.lost]:
        what = counted(len(names), "driver process", "driver processes")
        yield Warning(code=WarningCode.DRIVER_LOST, text=f"lost {what} ({_names(names)}): their counts are missing")


def watch_lost(phase: PhaseResult) -> Found:
    """Watched processes that ended early."""
    if names := [one.name for one in phase.watched if one.lost]:
        yield _of(phase, WarningCode.WATCH_LOST, f"{_names(names)} ended before the phase did, or never existed")


def saturated(result: RunResult) -> Found:
    """Drivers, or machines, without idle CPU."""
    measured = sum(phase.duration_s for phase in result.phases)
    for driver in result.drivers:
        for process in driver.processes:
            if process.saturated_s > measured * MAX_SATURATED:
                text = (
                    f"{process.name}: one thread used over {BUSY:.0%} of a core for {process.saturated_s:.0f} of {measured:.0f} s: "
                    "the figures show the limit of the driver; give the tenant more processes"
                )
                yield Warning(code=WarningCode.DRIVER_SATURATED, text=text)
        if driver.busy_s > measured * MAX_SATURATED:
            text = (
                f"driver {driver.index}: its machine had under {IDLE:.0%} of its CPUs idle for {driver.busy_s:.0f} of "
                f"{measured:.0f} s: other processes on that machine compete with the load"
            )
            yield Warning(code=WarningCode.MACHINE_SATURATED, text=text)


def lagging(result: RunResult) -> Found:
    """Drivers that begin due operations late, compared with the latencies that they measure."""
    slowest = max((t.latency.percentile_us(99) for phase in result.phases for t in phase.tenants), default=0) / 1000
    for process in (process for driver in result.drivers for process in driver.processes):
        if process.lag_p99_ms > max(LAG_MS, slowest * LAG_SHARE):
            text = (
                f"{process.name}: 1% of due operations were begun over {process.lag_p99_ms:.1f} ms late, at most "
                f"{process.lag_max_ms:.0f} ms: this delay is part of its latencies"
            )
            yield Warning(code=WarningCode.DRIVER_LAG, text=text)


def coarse_clock(result: RunResult) -> Found:
    """Clocks whose steps are large compared with a latency."""
    medians = [t.latency.percentile_us(50) for phase in result.phases for t in phase.tenants if t.latency.count]
    for driver in result.drivers if medians else ():
        step, least = driver.machine.clock_resolution_ns / 1000, min(medians)
        if step > least / STEPS:
            text = f"driver {driver.index}: its clock has steps of {step:.3g} µs, the smallest median latency is {least} µs"
            yield Warning(code=WarningCode.CLOCK_RESOLUTION, text=text)


def rate_not_reached(phase: PhaseResult, tenant: TenantResult) -> Found:
    """An open-loop rate that was not reached, unless the scenario expects a quota to limit it, or there were faults."""
    if (
        not faults(phase)
        and tenant.intended_rate is not None
        and not tenant.limited
        and tenant.acknowledged < tenant.intended * REACHED
    ):
        wanted, got = tenant.intended / phase.duration_s, tenant.acknowledged / phase.duration_s
        why = f"; {tenant.failures} failed" if tenant.failures else ""
        text = f"{wanted:,.0f} per second were intended, {got:,.0f} succeeded{why}"
        yield _of(phase, WarningCode.RATE_NOT_REACHED, text, tenant)


def not_limited(result: RunResult) -> Found:
    """A scenario with tenants that a quota should hold back, and did not."""
    if nothing_limited(result):
        names = sorted({tenant.tenant for phase in result.phases for tenant in phase.tenants if tenant.limited})
        text = f"nobody of {_names(names)} was throttled or refused: no quota held them back, so assertions say nothing of quotas"
        yield Warning(code=WarningCode.NOTHING_LIMITED, text=text)


def omission(phase: PhaseResult, tenant: TenantResult) -> Found:
    """Due operations that were never sent, and so have no latency, or that waited in the driver."""
    due, sent = tenant.latency.percentile_us(99), tenant.service.percentile_us(99)
    if tenant.intended_rate is None:
        return
    if tenant.sent < tenant.intended * REACHED:
        never = f"{tenant.intended - tenant.sent:,} of {tenant.intended:,} due operations were never sent"
        text = f"{never} and have no latency: percentiles are too low"
        yield _of(phase, WarningCode.COORDINATED_OMISSION, text, tenant)
    elif tenant.service.count and due > sent * HIDDEN and due - sent > LAG_MS * 1000:
        times = f"{due / 1000:.1f} ms from the due time, {sent / 1000:.1f} ms from the time of sending"
        yield _of(phase, WarningCode.COORDINATED_OMISSION, f"p99 is {times}: operations waited in the driver", tenant)


def skew(phase: PhaseResult, tenant: TenantResult) -> Found:
    """Records that seem to have arrived before they were sent."""
    if below := tenant.latency.below_zero + tenant.service.below_zero:
        text = f"{below:,} negative latencies, counted as 0: the clocks of two machines differ"
        yield _of(phase, WarningCode.CLOCK_SKEW, text, tenant)


def _of(phase: PhaseResult, code: WarningCode, text: str, tenant: TenantResult | None = None) -> Warning:
    where = f"phase {phase.name}{f', {tenant.tenant}' if tenant else ''}"
    return Warning(code=code, text=f"{where}: {text}", phase=phase.name)


def machine() -> Machine:
    """This one."""
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=_memory(),
        python=platform.python_version(),
        clock_resolution_ns=clock_resolution(),
    )


def clock_resolution(readings: int = 1000) -> float:
    """The smallest step that `time.perf_counter_ns` was seen to take, in ns."""
    smallest = float("inf")
    for _ in range(readings):
        before = after = time.perf_counter_ns()
        while after == before:
            after = time.perf_counter_ns()
        smallest = min(smallest, after - before)
    return smallest


def _processor() -> str:
    try:
        rows = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        rows = []
    found = next((row.partition(":")[2].strip() for row in rows if row.lower().startswith("model name")), "")
    return found or platform.processor() or platform.machine()


def _memory() -> int:
    total = int(psutil.virtual_memory().total)
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return total
    return min(total, int(limit)) if limit.isdigit() else total


def _names(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
