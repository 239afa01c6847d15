"""Saturation sweep: the highest rate that an endpoint holds. In: a callable that runs a scenario at a rate. Out: a `Sweep`.

Rates double until one fails, then the interval is halved until it is small. A rate that failed by little is tried once more, as
one bad second is not a limit. A rate holds when the wanted share of it succeeded and p99 (from the due time) is below the limit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from loadtest.results.checks import REACHED
from loadtest.results.limiting import limited
from loadtest.results.model import PhaseResult, RunResult, Step, Sweep, Warning, WarningCode

PRECISION: Final = 0.05
"""The sweep ends when the lowest rate that failed is at most this share above the highest that held."""
MAX_STEPS: Final = 40
NEAR: Final = 0.8
"""If less than this share succeeded, there is no second try."""
JUDGES: Final = frozenset(
    {WarningCode.DRIVER_SATURATED, WarningCode.MACHINE_SATURATED, WarningCode.DRIVER_LAG, WarningCode.DRIVER_LOST}
)
"""Warnings according to which the driver, not the endpoint, was the limit."""


def find_knee(
    run_at: Callable[[float], RunResult],
    *,
    low: float,
    high: float | None = None,
    p99_limit_us: int | None = None,
    reached: float = REACHED,
    precision: float = PRECISION,
    told: Callable[[Step], None] = lambda _: None,
) -> Sweep:
    """`low` and `high` (None: no upper bound) in operations per second; `told` gets each step. Raises what `run_at` raises."""
    if low <= 0 or (high is not None and high < low):
        raise ValueError(
            f"a sweep needs a lowest rate above 0 and a highest rate that is not below it, not {low:g} and {high or 0:g}"
        )
    steps: list[Step] = []
    runs: list[RunResult] = []

    def once(rate: float) -> bool:
        run = run_at(rate)
        runs.append(run)
        steps.append(judge(run, rate, p99_limit_us, reached))
        told(steps[-1])
        return steps[-1].held

    def holds(rate: float) -> bool:
        return once(rate) or (steps[-1].achieved > rate * NEAR and len(steps) < MAX_STEPS and once(rate))

    knee, failing, rate = None, None, low
    while len(steps) < MAX_STEPS:
        if holds(rate):
            knee = rate
        else:
            failing = rate
        if knee is None or (failing is None and rate == high):
            break
        if failing is None:
            rate = min(knee * 2, high or knee * 2)
        elif failing - knee > precision * knee:
            rate = (knee + failing) / 2
        else:
            break
    return Sweep(
        scenario=runs[0].scenario,
        endpoint=runs[0].endpoint,
        p99_limit_us=p99_limit_us,
        reached_share=reached,
        knee=knee,
        bounded=failing is not None,
        steps=steps,
        runs=runs,
        warnings=_warnings(steps, runs, knee),
    )


def judge(run: RunResult, rate: float, p99_limit_us: int | None, reached: float) -> Step:
    """Judge whether a run held its rate: the worst phase decides."""
    judged = [_phase(phase) for phase in run.phases]
    achieved = min((share for share, _ in judged), default=0.0) * rate
    p99 = max((p99 for _, p99 in judged), default=0)
    if achieved < reached * rate:
        held, why = False, f"{achieved:,.0f} of {rate:,.0f} per second succeeded, under {reached:.0%}"
    elif p99_limit_us is not None and p99 >= p99_limit_us:
        held, why = False, f"p99 is {p99 / 1000:.1f} ms, the limit {p99_limit_us / 1000:.1f} ms"
    else:
        held, why = True, f"{achieved:,.0f} per second succeeded, p99 {p99 / 1000:.1f} ms"
    if not held and (quota := limited(run)):
        why += f"; a quota held it back: {quota}"
    return Step(rate=rate, achieved=achieved, p99_us=p99, held=held, why=why)


def _phase(phase: PhaseResult) -> tuple[float, int]:
    """(share of the intended operations that succeeded, worst p99) of the tenants that have a rate."""
    open_loop = [tenant for tenant in phase.tenants if tenant.intended_rate is not None]
    intended = sum(tenant.intended for tenant in open_loop)
    succeeded = sum(tenant.acknowledged for tenant in open_loop)
    return succeeded / intended if intended else 0.0, max((t.latency.percentile_us(99) for t in open_loop), default=0)


def _warnings(steps: list[Step], runs: list[RunResult], knee: float | None) -> list[Warning]:
    """Warnings for steps in which the driver may have been the limit."""
    found: list[Warning] = []
    for step, run in zip(steps, runs, strict=True):
        judges = [warning for warning in run.warnings if warning.code in JUDGES]
        if judges and not step.held and (knee is None or step.rate > knee):
            text = f"at {step.rate:,.0f} per second: {judges[0].text}: the knee may be that of the driver"
            found.append(Warning(code=judges[0].code, text=text))
    if (quota := quota_of(steps, runs)) is not None:
        found.append(Warning(code=WarningCode.QUOTA_LIMITED, text=f"{quota}: a quota limits it, not the endpoint"))
    return found


def quota_of(steps: list[Step], runs: list[RunResult]) -> str | None:
    """How a quota held back the lowest rate that failed, in words; None where none did, or no rate failed."""
    failed = [(step.rate, i) for i, step in enumerate(steps) if not step.held]
    if not failed:
        return None
    rate, i = min(failed)
    said = limited(runs[i])
    return None if said is None else f"at {rate:,.0f} per second {said}"
