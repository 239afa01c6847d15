"""What faults did to those who made load. In: what a command of `events` printed, series of whole seconds. Out: stalls by kind of
fault, and when everybody went on.

A stall is a run of whole seconds in which no operation of a tenant succeeded, after its first success. It belongs to the fault that
began last before it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.results.model import Event, PhaseResult, TenantResult


@dataclass(slots=True)
class OfKind:
    """All faults of one kind. `longest`: seconds of the longest stall that belongs to one, and whose that was; `of_limited`: the
    same of those whom a quota may hold back, so that their stalls need not come of the fault."""

    kind: str
    times: int = 0
    longest: int = 0
    tenant: str = ""
    of_limited: int = 0


def fault_of(line: str) -> Event | None:
    """The fault that a line tells of; None: it is about something else."""
    try:
        match json.loads(line):
            case {"fault": str(kind), "at": int() | float() as at, "until": int() | float() as until, **rest}:
                return Event(at=at, text=str(rest.get("target", "")), kind=kind, until=until)
    except ValueError:
        pass
    return None


def faults(phase: PhaseResult) -> list[Event]:
    """In the order in which they began."""
    return sorted((event for event in phase.events if event.kind), key=lambda event: event.at)


def last_end(phase: PhaseResult) -> float:
    """When the last fault was over, in seconds since 1970; 0 without any."""
    return max((event.until or event.at for event in faults(phase)), default=0.0)


def by_kind(phase: PhaseResult) -> list[OfKind]:
    """Those with the longest stalls first."""
    found, all_of_them = dict[str, OfKind](), faults(phase)
    for fault in all_of_them:
        found.setdefault(fault.kind, OfKind(fault.kind)).times += 1
    for tenant in phase.tenants if found else ():
        for first, length in _stalls(phase, tenant):
            before = [fault for fault in all_of_them if fault.at < first + 1]
            one = found.setdefault(before[-1].kind if before else "before any", OfKind(before[-1].kind if before else "before any"))
            if tenant.limited:
                one.of_limited = max(one.of_limited, length)
            elif length > one.longest:
                one.longest, one.tenant = length, tenant.tenant
    return sorted(found.values(), key=lambda one: (-one.longest, one.kind))


def back_after(phase: PhaseResult, tenant: TenantResult) -> float:
    """Seconds from the end of the last fault until an operation succeeded; infinite if none did within the phase."""
    end = last_end(phase)
    succeeded = (second for second, count in _seconds(phase, tenant) if count and second + 1 > end)
    first = next(succeeded, None)
    return math.inf if first is None else max(first - end, 0.0)


def _stalls(phase: PhaseResult, tenant: TenantResult) -> Iterator[tuple[int, int]]:
    """(first second, number of seconds) of each."""
    begun, empty = False, 0
    second = 0
    for second, count in _seconds(phase, tenant):
        if count:
            if empty and begun:
                yield second - empty, empty
            begun, empty = True, 0
        else:
            empty += 1
    if empty and begun:
        yield second + 1 - empty, empty


def _seconds(phase: PhaseResult, tenant: TenantResult) -> Iterator[tuple[int, int]]:
    """(second since 1970, operations that succeeded) for each whole second of the phase."""
    series = tenant.series
    for second in range(math.ceil(phase.started), math.floor(phase.started + phase.warmup_s + phase.duration_s)):
        place = second - series.first
        yield second, series.acknowledged[place] if 0 <= place < len(series.acknowledged) else 0
