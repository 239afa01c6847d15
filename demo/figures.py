"""What the load test measured, as the demo shows it. In: results of phases. Out: figures as values."""

from dataclasses import dataclass
from itertools import groupby
from statistics import median

from demo import plan
from demo.throttling import Throttling
from loadtest.results.counts import Series
from loadtest.results.model import PhaseResult, RunResult, TenantResult


@dataclass(frozen=True)
class Latencies:
    """Produce latencies in ms, from the moment a record was due to its acknowledgement.

    `seconds`: the longest of the records that were acknowledged in each second of the phase, its first half included.
    """

    p50: float
    p99: float
    worst: float
    seconds: tuple[float, ...]

    @property
    def typical(self) -> float:
        """The longest of a typical second, the median of `seconds`: one second in which the machine hung does not show in it."""
        return median(self.seconds)


@dataclass(frozen=True)
class Waits:
    """Seconds until new topics could be written to. `pending`: how many topics could not be written to at the end of the phase."""

    count: int
    median: float
    worst: float
    pending: int


@dataclass(frozen=True)
class Felt:
    """What the ordinary clients felt in a phase; None where nothing was measured."""

    produce: Latencies | None
    new_topics: Waits | None


@dataclass(frozen=True)
class StormFigures:
    """The partitions of one storm client, and the longest time without one while it wanted some, in seconds."""

    created: int
    refused: int
    failed: int
    longest_wait: float

    @property
    def asked(self) -> int:
        """Partitions that were asked for and answered; those that were refused count each time."""
        return self.created + self.refused + self.failed


@dataclass(frozen=True)
class HeldBack:
    """A tenant that wants to write more than it may. `wanted`, `written`: bytes within the phase. `refused`: batches, each
    time."""

    wanted: float
    written: float
    refused: int
    throttle_ms: int


@dataclass(frozen=True)
class Flood:
    """A broker that one tenant floods: the longest of the orders' records of a typical second, in ms, before the overload quota was
    on and after it had its time; None where no second had any. `throttle_ms`: what the tenant was told to wait, in sum."""

    before: float | None
    after: float | None
    throttle_ms: int


@dataclass(frozen=True)
class Delivery:
    """Records of all phases: acknowledged, refused (the producer was told), and acknowledged but not found."""

    acknowledged: int
    refused: int
    lost: int


def felt(phase: PhaseResult) -> Felt:
    """Figures of the measured part of a phase. If that begins in the middle of the phase, the bursts of the quota are over."""
    teams = next((one for one in phase.tenants if one.tenant == plan.NEW_TOPICS), None)
    return Felt(_latencies(_tenant(phase, plan.ORDERS)), _waits(teams, phase.duration_s) if teams else None)


def storm(phase: PhaseResult, storm: plan.Storm, client_id: str, throttling: Throttling) -> StormFigures:
    """Of the whole phase. Refusals are those of the proxy's log."""
    found = _tenant(phase, client_id)
    created, length = sum(found.series.acknowledged), phase.warmup_s + phase.duration_s
    return StormFigures(
        created,
        throttling.refused * storm.partitions,
        sum(found.series.failed),
        longest_wait(found.series, phase.started, length, ends=client_id == storm.unlimited),
    )


def held_back(phase: PhaseResult, tenant: str, throttling: Throttling) -> HeldBack:
    """Of a tenant that writes records of one size. What it wrote after the end of the phase is not in `written`."""
    found = _tenant(phase, tenant)
    series = found.series
    end = int(phase.started + phase.warmup_s + phase.duration_s)
    within = sum(size for second, size in enumerate(series.bytes, series.first) if second < end)
    of_each = sum(series.bytes) / max(sum(series.acknowledged), 1)
    return HeldBack(sum(series.intended) * of_each, within, throttling.refused, throttling.throttle_ms)


def flood(phase: PhaseResult, throttling: Throttling) -> Flood:
    """The first second, in which clients connect, counts in neither."""
    series, fair = _tenant(phase, plan.ORDERS).series, plan.FAIR_AFTER
    slowest = {
        second - int(phase.started): us / 1000
        for second, (us, count) in enumerate(zip(series.latency_max_us, series.acknowledged, strict=True), series.first)
        if count
    }
    before = [ms for second, ms in slowest.items() if 1 <= second < fair]
    after = [ms for second, ms in slowest.items() if fair + plan.SETTLED <= second < plan.FLOOD_SECONDS]
    return Flood(median(before) if before else None, median(after) if after else None, throttling.throttle_ms)


def longest_wait(series: Series, started: float, length: float, *, ends: bool) -> float:
    """The longest sequence of seconds without a success. `ends`: seconds after the last success do not count."""
    by_second = dict(enumerate(series.acknowledged, series.first))
    first = int(started)
    busy = [bool(by_second.get(second)) for second in range(first, first + round(length))]
    while ends and busy and not busy[-1]:
        busy.pop()
    return float(max((len(list(group)) for success, group in groupby(busy) if not success), default=0))


def delivery(run: RunResult) -> Delivery:
    """Of all records that the run wrote."""
    produced = [one for phase in run.phases for one in phase.tenants if one.operation == "produce"]
    return Delivery(
        sum(one.acknowledged for one in run.verification),
        sum(sum(one.failed.values()) for one in produced),
        sum(one.lost for one in run.verification),
    )


def _tenant(phase: PhaseResult, name: str) -> TenantResult:
    return next(one for one in phase.tenants if one.tenant == name)


def _latencies(orders: TenantResult) -> Latencies | None:
    found = orders.latency
    if not found.count:
        return None
    seconds = [us / 1000 for us, count in zip(orders.series.latency_max_us, orders.series.acknowledged, strict=True) if count]
    return Latencies(found.percentile_us(50) / 1000, found.percentile_us(99) / 1000, found.max_us / 1000, tuple(seconds))


def _waits(teams: TenantResult, length: float) -> Waits | None:
    """A topic that is pending has waited for some part of the phase: half of it, on average."""
    known = teams.latency
    pending = max(teams.intended - known.count - sum(teams.failed.values()), 0)
    count = known.count + pending
    if not count:
        return None
    middle = 50 * count / known.count if known.count else 101
    waited = known.percentile_us(middle) / 1e6 if middle <= 100 else max(length / 2, known.max_us / 1e6)
    return Waits(count, waited, max(known.max_us / 1e6, length if pending else 0.0), pending)
