"""The result of a load test: what `--json` writes and what everything else here reads.

In: what drivers counted. Out: JSON with a schema (`python -m loadtest.results.schema`, docs/loadtest-results.schema.json).
Units stand in the names: `_s` seconds, `_ms` milliseconds, `_us` microseconds, `_bytes`. Times of day are seconds since 1970.
A file holds one `RunResult`, one `Comparison` or one `Sweep`; `kind` says which. A field that is not known is refused, so that
a file of a newer version is never half understood: `schema_version` goes up with every change.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from loadtest.results.counts import Count, Counts, Model

SCHEMA_VERSION: Final = 2
Version = Literal[1, 2]
"""Version 1 has no faults, deliveries and aborted transactions."""


class WarningCode(StrEnum):
    """Problems that the harness found in its own measurement."""

    DRIVER_SATURATED = "driver-saturated"
    DRIVER_LAG = "driver-lag"
    MACHINE_SATURATED = "machine-saturated"
    COORDINATED_OMISSION = "coordinated-omission"
    CLOCK_RESOLUTION = "clock-resolution"
    CLOCK_SKEW = "clock-skew"
    DRIVER_LOST = "driver-lost"
    DRIVER_MISSING = "driver-missing"
    DRIVERS_APART = "drivers-apart"
    RATE_NOT_REACHED = "rate-not-reached"
    WATCH_LOST = "watch-lost"
    DRIFT = "drift"
    LEFT_BEHIND = "left-behind"
    NOTHING_LIMITED = "nothing-limited"
    QUOTA_LIMITED = "quota-limited"


class Warning(Model):
    """Why a figure of this result may be misleading."""

    code: WarningCode = Field(description="Which of the checks of the harness.")
    text: str = Field(description="One sentence for people.")
    phase: str | None = Field(None, description="The phase it is about; null for the whole run.")


class Machine(Model):
    """Where drivers ran: figures compare only with those of the same kind."""

    system: str = Field(description="Operating system and its release.")
    processor: str = Field(description="Model of the processor.")
    cpus: int = Field(ge=1, description="CPUs that the drivers may use.")
    memory_bytes: Count = Field(description="Memory of the machine, or of the cgroup if that has less.")
    python: str = Field(description="Version of Python.")
    clock_resolution_ns: float = Field(ge=0, description="Smallest step of the clock that latencies are taken from, as measured.")


class DriverProcess(Model):
    """One process that made load, and how busy that kept it."""

    name: str = Field(description="What it did: `victim-0`.")
    pid: int | None = Field(None, description="Its process id; null if it never started.")
    cpu_s: float = Field(0.0, ge=0, description="CPU time of all its threads while load ran.")
    cpu_max: float = Field(0.0, ge=0, description="Busiest second, in cores (1.0 is one core fully used), after warm-up.")
    thread_max: float = Field(0.0, ge=0, description="The same of its busiest thread.")
    saturated_s: float = Field(
        0.0, ge=0, description="Seconds in which one thread used over 90% of a core: the driver is the limit."
    )
    lag_p99_ms: float = Field(0.0, ge=0, description="99th percentile of how late due operations were begun.")
    lag_max_ms: float = Field(0.0, ge=0, description="The longest delay with which one was begun.")
    lost: bool = Field(False, description="It ended before its load was over; its counts are missing.")


class Driver(Model):
    """One machine's (or pod's) part in the run."""

    index: Count = Field(0, description="`--driver-index`, from 0.")
    machine: Machine
    busy_s: float = Field(0.0, ge=0, description="Seconds in which less than 5% of the machine's CPUs was idle, after warm-up.")
    libraries: dict[str, str] = Field(default_factory=dict, description="Client libraries and their versions.")
    processes: list[DriverProcess] = Field(default_factory=list)


class TenantResult(Counts):
    """What one tenant did in one phase, all its clients and processes together. Warm-up counts in `series` alone."""

    tenant: str = Field(description="Its name in the scenario.")
    role: str = Field("", description="`victim` or `offender` where the scenario says so.")
    operation: str = Field(description="produce, consume, end_to_end, connect, create_topics, …")
    client: str = Field(description="Client library.")
    limited: bool = Field(False, description="The scenario expects a quota to hold it below its rate: then that is no warning.")
    intended_rate: float | None = Field(None, description="Operations per second that were due; null: as fast as possible.")

    @property
    def failures(self) -> int:
        return sum(self.failed.values())


class Watched(Model):
    """CPU and memory of something beside the load (`--watch NAME=PID`, `--watch NAME=/sys/fs/cgroup/…`): its whole process tree."""

    name: str
    cpu_s: float = Field(0.0, ge=0, description="CPU time in the measured part of the phase.")
    cpu_max: float = Field(0.0, ge=0, description="The busiest second, in cores.")
    memory_bytes: Count = Field(0, description="Median of its resident memory (cgroup: memory.current).")
    memory_max_bytes: Count = Field(0, description="The most that was seen.")
    lost: bool = Field(False, description="It ended before the phase did.")
    first: int = Field(0, description="The second (since 1970) of the first value.")
    cpu: list[float] = Field(default_factory=list, description="Cores used, second by second.")
    memory: list[int] = Field(default_factory=list, description="Bytes, second by second.")


class Event(Model):
    """Something that a scenario did to the system: a restart, a quota that changed."""

    at: float = Field(description="When, in seconds since 1970.")
    text: str
    kind: str = Field("", description="Of a fault that an event's command told of: `broker killed`. Empty for the command itself.")
    until: float | None = Field(None, description="When a fault was over, in seconds since 1970.")


class PhaseResult(Model):
    """One phase of a scenario."""

    name: str
    started: float = Field(description="When its warm-up began, in seconds since 1970.")
    warmup_s: float = Field(0.0, ge=0, description="What is left out of all counts, histograms and watched CPU times.")
    duration_s: float = Field(gt=0, description="The measured part; a rate is a count divided by this.")
    tenants: list[TenantResult] = Field(default_factory=list)
    watched: list[Watched] = Field(default_factory=list)
    events: list[Event] = Field(default_factory=list)


class Verification(Model):
    """Whether the acknowledged records of one client library can be consumed after the run."""

    client: str = Field(description="Client library that produced.")
    tenant: str = ""
    acknowledged: Count = 0
    consumed: Count = Field(0, description="Different records of this run that were found.")
    lost: Count = Field(0, description="Acknowledged and not found.")
    duplicated: Count = Field(0, description="Found again.")
    out_of_order: Count = Field(0, description="Found behind a later one of the same producer and partition.")
    unacknowledged: Count = Field(0, description="Found though never acknowledged. This is no error: the answer was lost.")
    aborted: Count = Field(0, description="Found though their transaction was aborted.")
    examples: list[str] = Field(default_factory=list, max_length=20, description="Some that were lost, duplicated or out of order.")


class Delivery(Model):
    """Whether the members of a group were given every record that the topic has after the run."""

    tenant: str
    client: str = Field(description="Client library that read.")
    there: Count = Field(0, description="Different records of this run in the topic.")
    read: Count = Field(0, description="Different ones of them that a member was given.")
    missed: Count = Field(0, description="Those that no member was given.")
    again: Count = Field(0, description="Deliveries of a record after its first. This is no error: groups promise at least one.")
    examples: list[str] = Field(default_factory=list, max_length=20, description="Some that were missed.")


class AssertionResult(Model):
    """One assertion of the scenario."""

    name: str
    wanted: str = Field(description="As the scenario has it, with units.")
    got: str = Field(description="What was found, with units.")
    passed: bool
    text: str = Field(description="One sentence for people.")


class Endpoint(Model):
    """What was driven."""

    name: str = Field(description="How tables call it: `direct`, `proxy`, or its address.")
    bootstrap: str
    cluster_id: str | None = None


class RunResult(Model):
    """One scenario, once, at one endpoint."""

    kind: Literal["run"] = "run"
    schema_version: Version = SCHEMA_VERSION
    run_id: str = Field(description="Also part of the names of its topics; drivers of one run share it.")
    scenario: str
    definition: dict[str, Any] = Field(default_factory=dict, description="The scenario as it ran, `--set` included.")
    endpoint: Endpoint
    started: float = Field(description="Seconds since 1970.")
    duration_s: float = Field(ge=0)
    driver_count: int = Field(1, ge=1, description="`--driver-count`: the number of drivers whose figures this result should have.")
    drivers: list[Driver] = Field(description="Those whose figures are in it.")
    phases: list[PhaseResult] = Field(default_factory=list)
    verification: list[Verification] = Field(default_factory=list)
    deliveries: list[Delivery] = Field(default_factory=list, description="Of readers that are verified.")
    assertions: list[AssertionResult] = Field(default_factory=list)
    warnings: list[Warning] = Field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if every assertion holds, no driver was lost, every rate was reached, and quotas held back who they should (else it
        was not tested)."""
        untested = {WarningCode.RATE_NOT_REACHED, WarningCode.NOTHING_LIMITED}
        failing = {*untested, WarningCode.DRIVER_LOST, WarningCode.DRIVER_MISSING}
        return all(assertion.passed for assertion in self.assertions) and not any(w.code in failing for w in self.warnings)

    def differing_keys(self, other: RunResult) -> list[str]:
        """Keys of the scenario that are not the same in another run's."""
        ours, theirs = self.definition, other.definition
        return sorted(key for key in ours | theirs if ours.get(key) != theirs.get(key))


class Sample(Model):
    """A measure at one endpoint: one value for each round."""

    endpoint: str
    values: list[float]
    median: float


class Ratio(Model):
    """A measure at one endpoint divided by the same at the first one."""

    endpoint: str
    ratio: float | None = Field(description="Of the medians; null where the first endpoint has 0.")
    low: float | None = Field(description="Lower bound of the 95% confidence interval; null with fewer than three rounds.")
    high: float | None = Field(description="Its upper bound.")
    p_value: float | None = Field(description="Probability of so large a difference by chance alone; null where unknown.")
    verdict: Literal["better", "worse", "same", "unsure"] = Field(
        description="better or worse: significant at 5%. same: the interval lies within 5% of 1. Else unsure."
    )


class Measure(Model):
    """One figure of a scenario, at every endpoint."""

    phase: str
    tenant: str = Field(description="Tenant, or the name of what was watched.")
    name: str = Field(description="`rate`, `p99`, `cpu`, …")
    unit: str
    better: Literal["lower", "higher"]
    samples: list[Sample]
    ratios: list[Ratio]


class Comparison(Model):
    """Rounds of one scenario at two or more endpoints, in turn: A B A B."""

    kind: Literal["comparison"] = "comparison"
    schema_version: Version = SCHEMA_VERSION
    scenario: str
    endpoints: list[Endpoint] = Field(min_length=2)
    rounds: int = Field(ge=1)
    measures: list[Measure] = Field(default_factory=list)
    runs: list[RunResult] = Field(default_factory=list, description="In the order in which they ran.")
    warnings: list[Warning] = Field(default_factory=list)


class Step(Model):
    """One rate of a sweep."""

    rate: float = Field(gt=0, description="Operations per second that were due, all tenants together.")
    achieved: float = Field(ge=0, description="Operations per second that succeeded.")
    p99_us: Count
    held: bool = Field(description="The rate was reached, and p99 was below the limit.")
    why: str = Field(description="One sentence: what held, or what did not.")


class Sweep(Model):
    """The search for the highest rate that holds."""

    kind: Literal["sweep"] = "sweep"
    schema_version: Version = SCHEMA_VERSION
    scenario: str
    endpoint: Endpoint
    p99_limit_us: int | None = Field(None, description="Above this a rate does not hold; null: the achieved rate alone decides.")
    reached_share: float = Field(description="Achieved divided by intended that counts as reached.")
    knee: float | None = Field(description="The highest rate that held; null if not even the lowest did.")
    bounded: bool = Field(description="A higher rate was seen to fail: else the knee is only where the sweep ended.")
    steps: list[Step] = Field(default_factory=list, description="In the order in which they ran.")
    runs: list[RunResult] = Field(default_factory=list)
    warnings: list[Warning] = Field(default_factory=list)


Result = Annotated[RunResult | Comparison | Sweep, Field(discriminator="kind")]
