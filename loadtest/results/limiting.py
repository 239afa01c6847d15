"""What limited a run: told from throttle times and refusals. In: a `RunResult`. Out: words, or None where no quota did."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from loadtest.results.model import RunResult, TenantResult
from webpage.text import counted, duration

REFUSED: Final = frozenset({"THROTTLING_QUOTA_EXCEEDED", "POLICY_VIOLATION"})
"""Errors by which quotas refuse, of brokers and of the proxy."""


def held_back(tenants: Iterable[TenantResult]) -> str | None:
    """How quotas held these tenants back: `40 answers told of throttles, 32 s in all, and 5 operations were refused`; None if none
    did. Of a tenant whose scenario expects that, whatever failed was refused: connections that were closed have no error code."""
    answers = throttled_ms = refused = 0
    for tenant in tenants:
        answers += tenant.throttle.count
        throttled_ms += tenant.throttle.sum_ms
        refused += sum(count for error, count in tenant.failed.items() if tenant.limited or error in REFUSED)
    said = []
    if answers:
        said.append(f"{counted(answers, 'answer')} told of throttles, {duration(throttled_ms)} in all")
    if refused:
        said.append(f"{counted(refused, 'operation')} {'was' if refused == 1 else 'were'} refused")
    return ", and ".join(said) or None


def limited(run: RunResult) -> str | None:
    """The same of all tenants of a run."""
    return held_back(tenant for phase in run.phases for tenant in phase.tenants)


def nothing_limited(run: RunResult) -> bool:
    """True if the scenario has tenants that a quota should hold back, and none of them was."""
    expected = [tenant for phase in run.phases for tenant in phase.tenants if tenant.limited]
    return bool(expected) and held_back(expected) is None
