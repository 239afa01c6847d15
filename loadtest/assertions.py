"""What a scenario asserts, and whether that is so. In: a `RunResult`. Out: an `AssertionResult` for each. Pure arithmetic.

Each kind of assertion is one class: its settings are the reference of the file format, `judge` decides. Rates over time come from
the series of whole seconds, warm-up included: what passed at the beginning of a phase counts for quotas, too."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveFloat, model_validator

from configfile.base import Model, Name
from loadtest.results.faults import back_after, last_end
from loadtest.results.measures import rate as rate_of
from loadtest.results.model import AssertionResult, PhaseResult, RunResult, TenantResult
from loadtest.units import Amount, Share, SomeTime

Judged = tuple[str, str, bool]
"""What was wanted, what was found, whether that is right."""
_WRONG: Final = ("lost", "duplicated", "out_of_order", "aborted")
"""What may be wrong with records."""
QUOTA_REFUSED: Final = "THROTTLING_QUOTA_EXCEEDED"


class NothingThere(Exception):
    """The run has nothing to judge by; the message says what is missing."""


class Assertion(Model, ABC):
    """What all assertions have."""

    phase: Name | None = None
    """The phase it is about; by default the last one that has load of its tenant."""

    @abstractmethod
    def judge(self, result: RunResult) -> Judged:
        """Raises NothingThere."""

    @property
    def name(self) -> str:
        """What it checks, of whom, and in which phase."""
        whose = getattr(self, "tenant", None) or "/".join(getattr(self, "tenants", ()))
        return " ".join(part for part in (getattr(self, "check", ""), whose, f"in {self.phase}" if self.phase else "") if part)

    def assess(self, result: RunResult) -> AssertionResult:
        """An assertion that has nothing to go by does not hold."""
        try:
            wanted, got, passed = self.judge(result)
        except NothingThere as e:
            wanted, got, passed = "something to judge by", str(e), False
        text = f"{self.name}: {got}" + ("" if passed else f"; {wanted} was wanted")
        return AssertionResult(name=self.name, wanted=wanted, got=got, passed=passed, text=text)


class OfQuota(Assertion):
    tenant: Name
    quota: Amount
    """Operations or bytes per second."""
    of: Literal["operations", "bytes"] = "operations"
    """What the quota counts. Bytes are those of keys and values: batches have some more, compression makes fewer of them."""

    def flow(self, result: RunResult) -> tuple[PhaseResult, TenantResult, list[int]]:
        """The tenant in its phase, and what the quota counts of it, second by second from the beginning of the phase.

        The first second is a part of one: it belongs to the next."""
        phase, tenant = _found(result, self.phase, self.tenant)
        values = tenant.series.bytes if self.of == "bytes" else tenant.series.acknowledged
        before = max(tenant.series.first - math.floor(phase.started), 0)
        return phase, tenant, [0] * before + list(values)

    def per_second(self, amount: float) -> str:
        return f"{amount / 2**20:.4g} MiB/s" if self.of == "bytes" else f"{amount:.4g}/s"


class AchievedRate(OfQuota):
    """The rate in the measured part of a phase is the quota."""

    check: Literal["rate"]
    within: Share = 0.05
    """How far it may be off."""
    side: Literal["both", "above"] = "both"
    """`above`: less than the quota is right as well."""
    shared_with: list[Name] = Field(default_factory=list)
    """Others who have the quota together with the tenant."""

    def judge(self, result: RunResult) -> Judged:
        found = [_found(result, self.phase, tenant) for tenant in (self.tenant, *self.shared_with)]
        got = sum(one.bytes / phase.duration_s if self.of == "bytes" else rate_of(phase, one) for phase, one in found)
        off = got / self.quota - 1
        wanted = f"{'at most ' if self.side == 'above' else ''}{self.per_second(self.quota)} within {self.within:.1%}"
        return wanted, f"{self.per_second(got)} ({off:+.1%})", off <= self.within and (self.side == "above" or off >= -self.within)


class Converges(OfQuota):
    """From some time on, the rate stays at the quota."""

    check: Literal["converges"]
    within: Share = 0.1
    by: SomeTime
    """When, at the latest, after the beginning of the phase."""
    window: SomeTime = 10.0
    """Over which rates are taken."""

    def judge(self, result: RunResult) -> Judged:
        phase, _, flow = self.flow(result)
        length = math.floor(phase.warmup_s + phase.duration_s)
        window = max(round(self.window), 1)
        flow = (flow + [0] * length)[:length]
        off = [abs(sum(flow[i : i + window]) / window / self.quota - 1) for i in range(length - window + 1)]
        wanted = f"{self.per_second(self.quota)} within {self.within:.1%} over {window} s from {self.by:g} s on"
        if not off:
            raise NothingThere(f"the phase is shorter than {window} s")
        last_bad = max((i for i, share in enumerate(off) if share > self.within), default=-1)
        if last_bad == len(off) - 1:
            return wanted, f"not until the end, which is {off[-1]:.1%} off", False
        return wanted, f"from {last_bad + 1} s on", last_bad + 1 <= self.by


class Overshoot(OfQuota):
    """What passed beyond the quota at any time of the phase, its beginning included."""

    check: Literal["overshoot"]
    at_most: SomeTime = 11.0
    """In seconds of the quota: Kafka's windows let ten seconds' worth pass at once, and what is under way."""

    def judge(self, result: RunResult) -> Judged:
        phase, _, flow = self.flow(result)
        part = math.ceil(phase.started) - phase.started  # of the first second
        largest, total = 0.0, 0
        for i, amount in enumerate(flow[: math.ceil(phase.warmup_s + phase.duration_s)]):
            total += amount
            largest = max(largest, total / self.quota - (i + part))
        return f"at most {self.at_most:g} s of the quota beyond it", f"{largest:.1f} s", largest <= self.at_most


class Recovers(Assertion):
    """Mean latencies come back after the load of others stopped."""

    check: Literal["recovers"]
    tenant: Name
    compared_with: Name
    """The phase in which all was well."""
    within: Share = 1.0
    """How much above the mean of that phase a second may be: 100% is twice as long."""
    by: SomeTime
    """When, at the latest, after the beginning of the phase."""

    def judge(self, result: RunResult) -> Judged:
        phase, tenant = _found(result, self.phase, self.tenant)
        _, before = _found(result, self.compared_with, self.tenant)
        if not before.latency.count:
            raise NothingThere(f"no latencies of {self.tenant} in phase {self.compared_with}")
        limit = before.latency.mean_us * (1 + self.within)
        series, start = tenant.series, math.ceil(phase.started)
        means = [
            (series.first + i - start + 1, total / count if count else math.inf)
            for i, (total, count) in enumerate(zip(series.latency_sum_us, series.acknowledged, strict=True))
            if series.first + i < math.floor(phase.started + phase.warmup_s + phase.duration_s)
        ]
        if not means:
            raise NothingThere(f"no latencies of {self.tenant} in phase {phase.name}")
        recovered = max((second for second, mean in means if mean > limit), default=0)
        over = recovered == means[-1][0]
        wanted = f"means of at most {limit / 1000:.3g} ms from {self.by:g} s on"
        return wanted, "not until the end" if over else f"from {max(recovered, 0)} s on", not over and recovered <= self.by


class Fairness(Assertion):
    """Jain's index of the tenants' rates: 1 when all have the same, 1/n when one has everything."""

    check: Literal["fairness"]
    tenants: list[Name] = Field(min_length=2)
    at_least: float = Field(0.95, gt=0, le=1)

    def judge(self, result: RunResult) -> Judged:
        found = [_found(result, self.phase, tenant) for tenant in self.tenants]
        index = jain([rate_of(phase, tenant) for phase, tenant in found])
        return f"Jain's index of at least {self.at_least:g}", f"{index:.3f}", index >= self.at_least


class Total(Assertion):
    """What tenants wrote or read together, compared with one of them. Where that asks for a tenth of what the broker can do,
    8.5 times as much is 85 % of it."""

    check: Literal["total"]
    tenants: list[Name] = Field(min_length=1)
    as_tenant: Name
    """Whom that is compared with."""
    at_least: PositiveFloat
    """How many times as many bytes."""

    def judge(self, result: RunResult) -> Judged:
        total = sum(_found(result, self.phase, tenant)[1].bytes for tenant in self.tenants)
        one = _found(result, self.phase, self.as_tenant)[1].bytes
        times = total / max(one, 1)
        return f"at least {self.at_least:g} times the bytes of {self.as_tenant}", f"{times:.2f} times", times >= self.at_least


class Felt(Assertion):
    """What a tenant felt of the others: a percentile of its latencies, in relation to another phase."""

    check: Literal["felt"]
    tenant: Name
    compared_with: Name
    """The phase in which it was alone."""
    percentile: float = Field(99, gt=0, le=100)
    at_most: PositiveFloat | None = None
    """How many times as long."""
    at_least: PositiveFloat | None = None
    """How many times as long at least: shows that load without a quota is felt."""
    or_below: SomeTime | None = None
    """A latency that is always fast enough, however much faster the other phase was."""

    @model_validator(mode="after")
    def _some(self) -> Felt:
        if self.at_most is None and self.at_least is None:
            raise ValueError("`at_most` or `at_least` is needed")
        return self

    def judge(self, result: RunResult) -> Judged:
        _, now = _found(result, self.phase, self.tenant)
        _, before = _found(result, self.compared_with, self.tenant)
        if not before.latency.count or not now.latency.count:
            raise NothingThere(f"no latencies of {self.tenant} in self of the two phases")
        us, alone = now.latency.percentile_us(self.percentile), before.latency.percentile_us(self.percentile)
        ratio = us / max(alone, 1)
        wanted = [
            f"at most {self.at_most:g} times as long" if self.at_most else "",
            f"at least {self.at_least:g} times as long" if self.at_least else "",
        ]
        if self.or_below:
            wanted.append(f"or at most {self.or_below * 1000:g} ms")
        passed = (self.at_most is None or ratio <= self.at_most or (self.or_below is not None and us <= self.or_below * 1e6)) and (
            self.at_least is None or ratio >= self.at_least
        )
        got = f"p{self.percentile:g} of {us / 1000:.3g} ms, {ratio:.2f} times the {alone / 1000:.3g} ms of {self.compared_with}"
        return ", ".join(part for part in wanted if part), got, passed


class Latency(Assertion):
    """A percentile of latencies from when operations were due."""

    check: Literal["latency"]
    tenant: Name
    percentile: float = Field(99, gt=0, le=100)
    at_most: SomeTime

    def judge(self, result: RunResult) -> Judged:
        _, tenant = _found(result, self.phase, self.tenant)
        if not tenant.latency.count:
            raise NothingThere(f"no latencies of {self.tenant}")
        us = tenant.latency.percentile_us(self.percentile)
        return f"p{self.percentile:g} of at most {self.at_most * 1000:g} ms", f"{us / 1000:.3g} ms", us <= self.at_most * 1e6


class Throttled(Assertion):
    """Whether a tenant was told throttle times, or refused (error 89)."""

    check: Literal["throttled"]
    tenant: Name
    expected: bool = True

    def judge(self, result: RunResult) -> Judged:
        _, tenant = _found(result, self.phase, self.tenant)
        count = tenant.throttle.count + tenant.failed.get(QUOTA_REFUSED, 0)
        wanted = "throttle times" if self.expected else "no throttle times"
        return wanted, f"{count} answers with throttle times, {tenant.throttle.max_ms} ms at most", (count > 0) == self.expected


class Errors(Assertion):
    """Operations that failed."""

    check: Literal["errors"]
    tenant: Name | None = None
    """By default all."""
    at_most: int = Field(0, ge=0)
    refused: str | None = None
    """An error that is expected, as a quota refuses with it: it has to be there, and counts as no failure."""

    def judge(self, result: RunResult) -> Judged:
        phases = [phase for phase in result.phases if self.phase in (None, phase.name)]
        tenants = [tenant for phase in phases for tenant in phase.tenants if self.tenant in (None, tenant.tenant)]
        failed = sum((Counter(tenant.failed) for tenant in tenants), Counter[str]())
        refused = failed.pop(self.refused, 0) if self.refused is not None else 0
        names = f" ({', '.join(sorted(+failed))})" if +failed else ""
        wanted, got, right = f"at most {self.at_most}", f"{failed.total()}{names}", failed.total() <= self.at_most
        if self.refused is None:
            return wanted, got, right
        return f"{self.refused}, others {wanted}", f"{refused} and {got} others", right and refused > 0


class Done(Assertion):
    """How many operations of a tenant succeeded in all: as many as a quota allows that limits how much there may be."""

    check: Literal["done"]
    tenant: Name
    quota: PositiveFloat
    """As many as could, and no more."""
    within: Share = 0.0

    def judge(self, result: RunResult) -> Judged:
        done = _found(result, self.phase, self.tenant)[1].acknowledged
        right = abs(done - self.quota) <= self.within * self.quota
        return f"{self.quota:g}" + (f" within {self.within:.0%}" if self.within else ""), f"{done:,}", right


class Verified(Assertion):
    """Every record that was acknowledged is there, once, in order, and none of an aborted transaction is. For
    all tenants that write, in all phases."""

    check: Literal["verified"]
    lost: int = Field(0, ge=0)
    """The largest number allowed."""
    duplicated: int = Field(0, ge=0)
    out_of_order: int = Field(0, ge=0)
    aborted: int = Field(0, ge=0)

    def judge(self, result: RunResult) -> Judged:
        acknowledged = sum(found.acknowledged for found in result.verification)
        if not acknowledged:
            raise NothingThere("no record was acknowledged")
        sums = {name: sum(getattr(found, name) for found in result.verification) for name in _WRONG}
        wanted = ", ".join(f"{getattr(self, name)} {name.replace('_', ' ')}" for name in sums)
        got = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sums.items()) + f" of {acknowledged:,} acknowledged"
        return f"at most {wanted}", got, all(count <= getattr(self, name) for name, count in sums.items())


class Delivered(Assertion):
    """The members of every group that is `verified` were given all records."""

    check: Literal["delivered"]

    def judge(self, result: RunResult) -> Judged:
        if not sum(found.there for found in result.deliveries):
            raise NothingThere("no verified reader had anything to read")
        missed = [(found.missed, found.tenant) for found in result.deliveries if found.missed]
        got = ", ".join(f"{count} missed by {name}" for count, name in missed) or "0 missed"
        return "0 missed", f"{got} of {sum(found.there for found in result.deliveries):,}", not missed


class GoesOn(Assertion):
    """After the last fault that a command of `events` told of, everybody goes on."""

    check: Literal["goes_on"]
    within: SomeTime = 30.0
    """From the end of the last fault until an operation of each tenant succeeds."""

    def judge(self, result: RunResult) -> Judged:
        phase = next((one for one in reversed(result.phases) if self.phase in (None, one.name) and last_end(one)), None)
        if phase is None:
            raise NothingThere("no fault")
        if phase.started + phase.warmup_s + phase.duration_s < last_end(phase) + self.within:
            raise NothingThere(f"the phase ends less than {self.within:g} s after the last fault")
        took, name = max((back_after(phase, tenant), tenant.tenant) for tenant in phase.tenants)
        got = f"{name} did not" if took == math.inf else f"after at most {took:.0f} s ({name})"
        return f"after at most {self.within:g} s", got, took <= self.within


AnyAssertion = Annotated[
    AchievedRate
    | Converges
    | Overshoot
    | Recovers
    | Fairness
    | Total
    | Felt
    | Latency
    | Throttled
    | Errors
    | Done
    | Verified
    | Delivered
    | GoesOn,
    Field(discriminator="check"),
]


def _found(result: RunResult, phase: str | None, tenant: str) -> tuple[PhaseResult, TenantResult]:
    """The tenant in a phase; without one, in the last that it has load in. With several loads the first."""
    for some in reversed(result.phases):
        if phase in (None, some.name):
            for one in some.tenants:
                if one.tenant == tenant:
                    return some, one
    raise NothingThere(f"no load of {tenant}" + (f" in phase {phase}" if phase else ""))


def jain(rates: Sequence[float]) -> float:
    """(sum of x)² / (n · sum of x²): from 1/n to 1; 1 if all are 0."""
    squares = sum(rate * rate for rate in rates)
    return sum(rates) ** 2 / (len(rates) * squares) if squares else 1.0
