"""Tables of results as text, for the terminal and the page. In: a result. Out: heads and rows.

Names come from scenario files, which may have anything in them, so they go through `webpage.text.clean`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from loadtest.results.diff import Change
from loadtest.results.faults import by_kind
from loadtest.results.measures import cpu_per_100k, named, rate
from loadtest.results.model import Comparison, Delivery, PhaseResult, RunResult, Sweep, Verification, WarningCode
from loadtest.results.sweep import quota_of
from webpage.text import clean, count, decimal, duration, moment, size

NONE = "–"


@dataclass(frozen=True, slots=True)
class Rows:
    """A table. Columns are text or numbers; rows that show a problem are `bad`."""

    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    texts: int = 1
    """Number of columns from the left that are text. Columns without a head are text too."""
    bad: frozenset[int] = frozenset()

    def text(self, place: int) -> bool:
        """True if the column is text."""
        return place < self.texts or not self.heads[place]


def title(result: RunResult | Comparison | Sweep) -> str:
    kind = {"run": "Load test", "comparison": "Comparison", "sweep": "Saturation sweep"}[result.kind]
    return f"{kind}: {clean(result.scenario, 60)}"


def subtitle(result: RunResult | Comparison | Sweep) -> str:
    """Where, when, for how long."""
    if isinstance(result, RunResult):
        drivers = "" if result.driver_count == 1 else f", {len(result.drivers)} of {result.driver_count} drivers"
        return f"{place(result)}, {day(result.started)}, {duration(result.duration_s * 1000)}{drivers}"
    when = f", {day(result.runs[0].started)}" if result.runs else ""
    if isinstance(result, Comparison):
        return f"{' beside '.join(clean(endpoint.name, 40) for endpoint in result.endpoints)}, {result.rounds} rounds{when}"
    return f"{clean(result.endpoint.name, 60)}{when}"


def place(result: RunResult) -> str:
    """The name of the endpoint, and its address if that is different."""
    endpoint = result.endpoint
    address = "" if endpoint.name == endpoint.bootstrap else f" ({clean(endpoint.bootstrap, 60)})"
    return clean(endpoint.name, 60) + address


def day(at: float) -> str:
    return f"{moment(datetime.fromtimestamp(at, tz=UTC))} UTC"


def verdict(result: RunResult) -> str:
    """One sentence."""
    failed = [assertion for assertion in result.assertions if not assertion.passed]
    if failed:
        return f"Failed: {len(failed)} of {len(result.assertions)} assertions do not hold."
    if any(warning.code == WarningCode.NOTHING_LIMITED for warning in result.warnings):
        return "Nothing was limited: no quota held back whom it should have."
    if not result.passed:
        return "Failed: a driver is missing, or a rate was not reached; see the warnings."
    return f"Passed: all {len(result.assertions)} assertions hold." if result.assertions else "Passed: the rates were reached."


def tenants(phase: PhaseResult) -> Rows:
    """One row for each tenant: what it did."""
    heads = ("Tenant", "Operation", "Intended/s", "Rate/s", "Bytes/s", "p50", "p99", "p99.9", "Longest", "Failed", "Throttled")
    rows = []
    for name, tenant in named(phase):
        times = [ms(tenant.latency.percentile_us(p)) if tenant.latency.count else NONE for p in (50, 99, 99.9, 100)]
        rows.append(
            (
                clean(name, 50) + (f" ({clean(tenant.role, 20)})" if tenant.role and tenant.role != tenant.tenant else ""),
                clean(f"{tenant.operation}, {tenant.client}", 50),
                "most" if tenant.intended_rate is None else number(tenant.intended_rate),
                number(rate(phase, tenant)),
                size(tenant.bytes / phase.duration_s) if tenant.bytes else NONE,
                *times,
                count(tenant.failures),
                duration(tenant.throttle.sum_ms) if tenant.throttle.sum_ms else NONE,
            )
        )
    return Rows(heads, rows, texts=2, bad=frozenset(i for i, tenant in enumerate(phase.tenants) if tenant.failures))


def watched(phase: PhaseResult) -> Rows:
    """CPU and memory of what was watched."""
    rows = [
        (
            clean(one.name, 50),
            f"{one.cpu_s:.2f} s",
            f"{one.cpu_s / phase.duration_s:.2f}",
            f"{one.cpu_max:.2f}",
            NONE if (cpu := cpu_per_100k(phase, one)) is None else f"{cpu:.2f} s",
            size(one.memory_bytes),
            size(one.memory_max_bytes),
        )
        for one in phase.watched
    ]
    return Rows(("Watched", "CPU", "Cores, mean", "most", "CPU per 100k", "Memory", "most"), rows)


def failures(phase: PhaseResult) -> Rows:
    """The errors by tenant."""
    found = [(name, error, n) for name, t in named(phase) for error, n in t.failed.items() if n]
    return Rows(("Tenant", "Error", "Times"), [(clean(name, 50), clean(error, 80), count(n)) for name, error, n in found], texts=2)


def assertions(result: RunResult) -> Rows:
    rows = [(clean(a.name, 50), "holds" if a.passed else "FAILS", clean(a.wanted, 60), clean(a.got, 60)) for a in result.assertions]
    return Rows(
        ("Assertion", "", "Wanted", "Found"),
        rows,
        texts=4,
        bad=frozenset(i for i, a in enumerate(result.assertions) if not a.passed),
    )


def verification(found: Sequence[Verification]) -> Rows:
    """Acknowledged against consumed."""
    heads = ("Client", "Acknowledged", "Found", "Lost", "Duplicated", "Out of order", "Aborted", "Not acknowledged")
    rows = [
        (
            clean(f"{v.client}, {v.tenant}" if v.tenant else v.client, 50),
            *map(count, (v.acknowledged, v.consumed, v.lost, v.duplicated, v.out_of_order, v.aborted, v.unacknowledged)),
        )
        for v in found
    ]
    return Rows(heads, rows, bad=frozenset(i for i, v in enumerate(found) if v.lost or v.duplicated or v.out_of_order or v.aborted))


def deliveries(found: Sequence[Delivery]) -> Rows:
    """What groups were given of what is there."""
    rows = [(clean(f"{d.client}, {d.tenant}", 50), *map(count, (d.there, d.read, d.missed, d.again))) for d in found]
    heads = ("Group", "There", "Read", "Missed", "Again")
    return Rows(heads, rows, bad=frozenset(i for i, d in enumerate(found) if d.missed))


def faults(phase: PhaseResult) -> Rows:
    """How many there were of each kind, and the longest time in which a tenant had no success after one began."""
    heads = ("Fault", "Times", "Longest stall", "Whose", "Of those limited")
    return Rows(
        heads,
        [
            (clean(it.kind, 50), count(it.times), _stall(it.longest), clean(it.tenant, 30), _stall(it.of_limited))
            for it in by_kind(phase)
        ],
    )


def _stall(seconds: int) -> str:
    return f"{seconds} s" if seconds else NONE


def measures(comparison: Comparison) -> Rows:
    """Each figure at each endpoint, and its ratio to the first one's."""
    first = clean(comparison.endpoints[0].name, 30)
    heads = ("Phase", "Whose", "Figure", "Endpoint", first, "Here", "Ratio", "95% interval", "p", "")
    rows, bad = list[tuple[str, ...]](), set[int]()
    for measure in comparison.measures:
        for sample, ratio in zip(measure.samples[1:], measure.ratios, strict=True):
            if ratio.verdict == "worse":
                bad.add(len(rows))
            between = f"{ratio.low:.2f}–{ratio.high:.2f}" if ratio.low is not None and ratio.high is not None else NONE
            rows.append(
                (
                    clean(measure.phase, 30),
                    clean(measure.tenant, 30),
                    f"{measure.name}, {measure.unit}",
                    clean(sample.endpoint, 30),
                    number(measure.samples[0].median),
                    number(sample.median),
                    NONE if ratio.ratio is None else f"{ratio.ratio:.2f}",
                    between,
                    NONE if ratio.p_value is None else f"{ratio.p_value:.3f}",
                    ratio.verdict,
                )
            )
    return Rows(heads, rows, texts=4, bad=frozenset(bad))


def steps(sweep: Sweep) -> Rows:
    rows = [(number(s.rate), number(s.achieved), ms(s.p99_us), "holds" if s.held else "fails", s.why) for s in sweep.steps]
    heads = ("Rate/s", "Achieved/s", "p99", "", "")
    return Rows(heads, rows, texts=0, bad=frozenset(i for i, step in enumerate(sweep.steps) if not step.held))


def knee(sweep: Sweep) -> str:
    """One sentence."""
    if sweep.knee is None:
        if limit := quota_of(sweep.steps, sweep.runs):
            return f"No rate held: a quota limits them ({limit})."
        return f"There is no knee: {number(min(step.rate for step in sweep.steps))} per second, the lowest rate, failed."
    if limit := quota_of(sweep.steps, sweep.runs):
        return f"{number(sweep.knee)} per second held: a quota limits it ({limit}), so this is not the knee of the endpoint."
    until = "this is the knee" if sweep.bounded else "this is the highest rate tried, the knee is above it"
    return f"{number(sweep.knee)} per second held: {until}."


def changes(found: Sequence[Change]) -> Rows:
    """Differences of two results."""
    rows = [
        (
            clean(change.what, 70),
            f"{change.name}, {change.unit}",
            number(change.before),
            number(change.after),
            NONE if change.share is None else f"{change.share:+.1%}",
            f"{change.threshold:.0%}",
            NONE if change.p_value is None else f"{change.p_value:.3f}",
            "REGRESSION" if change.regressed else "",
        )
        for change in found
    ]
    heads = ("What", "Figure", "Before", "After", "Change", "Allowed", "p", "")
    return Rows(heads, rows, texts=2, bad=frozenset(i for i, change in enumerate(found) if change.regressed))


def ms(us: float) -> str:
    """Microseconds as text with three digits."""
    return f"{us:.0f} µs" if us < 1000 else f"{us / 1000:.3g} ms" if us < 1_000_000 else f"{us / 1e6:,.3g} s"


def number(value: float) -> str:
    """A number as text with three digits, or with all digits before the decimal point."""
    return f"{value:,.0f}" if abs(value) >= 100 else decimal(float(f"{value:.3g}"))
