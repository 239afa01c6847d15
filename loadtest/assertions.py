"""Whether what a scenario asserts is so. In: a `RunResult`, which holds its scenario. Out: an `AssertionResult` for each. Pure
arithmetic.

Rates over time come from the series of whole seconds, warm-up included: what passed at the beginning of a phase counts for
quotas, too."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from loadtest.results.measures import rate as rate_of
from loadtest.results.model import AssertionResult, PhaseResult, RunResult, TenantResult
from loadtest.scenario import (
    AchievedRate,
    Assertion,
    Converges,
    Errors,
    Fairness,
    Felt,
    Latency,
    OfQuota,
    Overshoot,
    Recovers,
    Scenario,
    Throttled,
    Verified,
)

Judged = tuple[str, str, bool]
"""What was wanted, what was found, whether that is right."""
QUOTA_REFUSED: Final = "THROTTLING_QUOTA_EXCEEDED"


class NothingThere(Exception):
    """The run has nothing to judge by; the message says what is missing."""


def assess(result: RunResult) -> list[AssertionResult]:
    """Every assertion of the scenario, in its order. One that has nothing to go by does not hold."""
    scenario = Scenario.model_validate(result.definition)
    return [_assess(result, one) for one in scenario.assertions]


def _assess(result: RunResult, one: Assertion) -> AssertionResult:
    name = _name(one)
    try:
        wanted, got, passed = JUDGES[type(one)](result, one)
    except NothingThere as e:
        wanted, got, passed = "something to judge by", str(e), False
    text = f"{name}: {got}" + ("" if passed else f"; {wanted} was wanted")
    return AssertionResult(name=name, wanted=wanted, got=got, passed=passed, text=text)


def _name(one: Any) -> str:
    whose = getattr(one, "tenant", None) or "/".join(getattr(one, "tenants", ()))
    return " ".join(part for part in (one.check, whose, f"in {one.phase}" if one.phase else "") if part)


def _found(result: RunResult, phase: str | None, tenant: str) -> tuple[PhaseResult, TenantResult]:
    """The tenant in a phase; without one, in the last that it has load in. With several loads the first."""
    for some in reversed(result.phases):
        if phase in (None, some.name):
            for one in some.tenants:
                if one.tenant == tenant:
                    return some, one
    raise NothingThere(f"no load of {tenant}" + (f" in phase {phase}" if phase else ""))


def _flow(one: OfQuota, result: RunResult) -> tuple[PhaseResult, TenantResult, list[int]]:
    """The tenant in its phase, and what the quota counts of it, second by second from the beginning of the phase.

    The first second is a part of one: it belongs to the next."""
    phase, tenant = _found(result, one.phase, one.tenant)
    values = tenant.series.bytes if one.of == "bytes" else tenant.series.acknowledged
    before = max(tenant.series.first - math.floor(phase.started), 0)
    return phase, tenant, [0] * before + list(values)


def _rate(result: RunResult, one: AchievedRate) -> Judged:
    phase, tenant = _found(result, one.phase, one.tenant)
    got = tenant.bytes / phase.duration_s if one.of == "bytes" else rate_of(phase, tenant)
    off = got / one.quota - 1
    wanted = f"{'at most ' if one.side == 'above' else ''}{_per_second(one, one.quota)} within {one.within:.1%}"
    return wanted, f"{_per_second(one, got)} ({off:+.1%})", off <= one.within and (one.side == "above" or off >= -one.within)


def _converges(result: RunResult, one: Converges) -> Judged:
    phase, _, flow = _flow(one, result)
    length = math.floor(phase.warmup_s + phase.duration_s)
    window = max(round(one.window), 1)
    flow = (flow + [0] * length)[:length]
    off = [abs(sum(flow[i : i + window]) / window / one.quota - 1) for i in range(length - window + 1)]
    wanted = f"{_per_second(one, one.quota)} within {one.within:.1%} over {window} s from {one.by:g} s on"
    if not off:
        raise NothingThere(f"the phase is shorter than {window} s")
    last_bad = max((i for i, share in enumerate(off) if share > one.within), default=-1)
    if last_bad == len(off) - 1:
        return wanted, f"not until the end, which is {off[-1]:.1%} off", False
    return wanted, f"from {last_bad + 1} s on", last_bad + 1 <= one.by


def _overshoot(result: RunResult, one: Overshoot) -> Judged:
    phase, _, flow = _flow(one, result)
    part = math.ceil(phase.started) - phase.started  # of the first second
    largest, total = 0.0, 0
    for i, amount in enumerate(flow[: math.ceil(phase.warmup_s + phase.duration_s)]):
        total += amount
        largest = max(largest, total / one.quota - (i + part))
    return f"at most {one.at_most:g} s of the quota beyond it", f"{largest:.1f} s", largest <= one.at_most


def _recovers(result: RunResult, one: Recovers) -> Judged:
    phase, tenant = _found(result, one.phase, one.tenant)
    _, before = _found(result, one.compared_with, one.tenant)
    if not before.latency.count:
        raise NothingThere(f"no latencies of {one.tenant} in phase {one.compared_with}")
    limit = before.latency.mean_us * (1 + one.within)
    series, start = tenant.series, math.ceil(phase.started)
    means = [
        (series.first + i - start + 1, total / count if count else math.inf)
        for i, (total, count) in enumerate(zip(series.latency_sum_us, series.acknowledged, strict=True))
        if series.first + i < math.floor(phase.started + phase.warmup_s + phase.duration_s)
    ]
    if not means:
        raise NothingThere(f"no latencies of {one.tenant} in phase {phase.name}")
    recovered = max((second for second, mean in means if mean > limit), default=0)
    over = recovered == means[-1][0]
    wanted = f"means of at most {limit / 1000:.3g} ms from {one.by:g} s on"
    return wanted, "not until the end" if over else f"from {max(recovered, 0)} s on", not over and recovered <= one.by


def _fairness(result: RunResult, one: Fairness) -> Judged:
    found = [_found(result, one.phase, tenant) for tenant in one.tenants]
    index = jain([rate_of(phase, tenant) for phase, tenant in found])
    return f"Jain's index of at least {one.at_least:g}", f"{index:.3f}", index >= one.at_least


def jain(rates: Sequence[float]) -> float:
    """(sum of x)² / (n · sum of x²): from 1/n to 1; 1 if all are 0."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 1.0


def _felt(result: RunResult, one: Felt) -> Judged:
    _, now = _found(result, one.phase, one.tenant)
    _, before = _found(result, one.compared_with, one.tenant)
    if not before.latency.count or not now.latency.count:
        raise NothingThere(f"no latencies of {one.tenant} in one of the two phases")
    us, alone = now.latency.percentile_us(one.percentile), before.latency.percentile_us(one.percentile)
    ratio = us / max(alone, 1)
    wanted = [
        f"at most {one.at_most:g} times as long" if one.at_most else "",
        f"at least {one.at_least:g} times as long" if one.at_least else "",
    ]
    if one.or_below:
        wanted.append(f"or at most {one.or_below * 1000:g} ms")
    passed = (one.at_most is None or ratio <= one.at_most or (one.or_below is not None and us <= one.or_below * 1e6)) and (
        one.at_least is None or ratio >= one.at_least
    )
    got = f"p{one.percentile:g} of {us / 1000:.3g} ms, {ratio:.2f} times the {alone / 1000:.3g} ms of {one.compared_with}"
    return ", ".join(part for part in wanted if part), got, passed


def _latency(result: RunResult, one: Latency) -> Judged:
    _, tenant = _found(result, one.phase, one.tenant)
    if not tenant.latency.count:
        raise NothingThere(f"no latencies of {one.tenant}")
    us = tenant.latency.percentile_us(one.percentile)
    return f"p{one.percentile:g} of at most {one.at_most * 1000:g} ms", f"{us / 1000:.3g} ms", us <= one.at_most * 1e6


def _throttled(result: RunResult, one: Throttled) -> Judged:
    _, tenant = _found(result, one.phase, one.tenant)
    count = tenant.throttle.count + tenant.failed.get(QUOTA_REFUSED, 0)
    wanted = "throttle times" if one.expected else "no throttle times"
    return wanted, f"{count} answers with throttle times, {tenant.throttle.max_ms} ms at most", (count > 0) == one.expected


def _errors(result: RunResult, one: Errors) -> Judged:
    phases = [phase for phase in result.phases if one.phase in (None, phase.name)]
    tenants = [tenant for phase in phases for tenant in phase.tenants if one.tenant in (None, tenant.tenant)]
    count = sum(tenant.failures for tenant in tenants)
    names = sorted({name for tenant in tenants for name, n in tenant.failed.items() if n})
    return f"at most {one.at_most}", f"{count}" + (f" ({', '.join(names)})" if names else ""), count <= one.at_most


def _verified(result: RunResult, one: Verified) -> Judged:
    acknowledged = sum(found.acknowledged for found in result.verification)
    if not acknowledged:
        raise NothingThere("no record was acknowledged")
    sums = {name: sum(getattr(found, name) for found in result.verification) for name in ("lost", "duplicated", "out_of_order")}
    wanted = ", ".join(f"{getattr(one, name)} {name.replace('_', ' ')}" for name in sums)
    got = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sums.items()) + f" of {acknowledged:,} acknowledged"
    return f"at most {wanted}", got, all(count <= getattr(one, name) for name, count in sums.items())


def _per_second(one: OfQuota, amount: float) -> str:
    return f"{amount / 2**20:.4g} MiB/s" if one.of == "bytes" else f"{amount:.4g}/s"


JUDGES: Final[dict[type[Assertion], Callable[[RunResult, Any], Judged]]] = {
    AchievedRate: _rate,
    Converges: _converges,
    Overshoot: _overshoot,
    Recovers: _recovers,
    Fairness: _fairness,
    Felt: _felt,
    Latency: _latency,
    Throttled: _throttled,
    Errors: _errors,
    Verified: _verified,
}
