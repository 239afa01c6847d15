"""A result as one self-contained HTML file with plots.

In: a run, a comparison or a sweep. Out: the text of the file, from the template `page.html`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count as numbers
from typing import Final

import yaml
from matplotlib.axes import Axes

from loadtest.results import tables
from loadtest.results.counts import Series
from loadtest.results.measures import named
from loadtest.results.model import Comparison, Measure, PhaseResult, RunResult, Sweep, TenantResult
from webpage.drawing import LEVEL, LINES, SERIES, TEXT, Drawing, dates, drawing, few_ticks, time_axis
from webpage.templates import render
from webpage.text import clean, count, size, unit_of

MAX_LINES: Final = len(SERIES) - 1
"""Most lines in one plot. The tables have all tenants."""
CURVE: Final = (0, 10, 25, 50, 75, 90, 95, 97.5, 99, 99.5, 99.9, 99.95, 99.99)
MIB: Final = 2**20
SHOWN: Final = ("rate", "p50", "p99", "cpu")
"""Figures of a comparison that have a plot."""

NOTHING: Final = "There are no values to draw."
Named = tuple[str, TenantResult]
Line = tuple[str, Sequence[float], Sequence[float]]
"""A name, x values, and y values."""


def page(result: RunResult | Comparison | Sweep) -> str:
    """The whole page."""
    if isinstance(result, RunResult):
        kind, sections = "run", _run(result)
    elif isinstance(result, Comparison):
        kind, sections = "comparison", _comparison(result)
    else:
        kind, sections = "sweep", _sweep(result)
    return render("loadtest.results", "page.html", kind=kind, result=result, title=tables.title(result), tables=tables, **sections)


# Runs


def _run(result: RunResult) -> dict[str, object]:
    tenants = [tenant for phase in result.phases for tenant in phase.tenants]
    ids = numbers()
    return {
        "holding": sum(assertion.passed for assertion in result.assertions),
        "succeeded": (count(sum(t.acknowledged for t in tenants)), f"operations, {size(sum(t.bytes for t in tenants))}"),
        "failed": sum(tenant.failures for tenant in tenants),
        "lost": sum(found.lost for found in result.verification),
        "phases": [(phase, list(_phase_plots(phase, ids))) for phase in result.phases],
        "examples": [example for verification in result.verification for example in verification.examples][:20],
        **_environment(result),
    }


def _environment(result: RunResult) -> dict[str, object]:
    """The machines and processes of a run, and its scenario line by line."""
    scenario = yaml.safe_dump(result.definition, sort_keys=False, allow_unicode=True).splitlines()
    return {"machines": _machines(result), "processes": _processes(result), "scenario": scenario}


def _phase_plots(phase: PhaseResult, ids: Iterator[int]) -> Iterator[Drawing]:
    tenants = named(phase)
    timed = [(name, tenant) for name, tenant in tenants if tenant.latency.count]

    def over_time(title: str, unit: str, values: Callable[[Series], Sequence[float]], some: Sequence[Named] = tenants) -> Drawing:
        return _over_time(ids, phase, title, unit, [(name, t.series.first, values(t.series)) for name, t in some])

    yield over_time("Operations that succeeded", "per second", lambda s: s.acknowledged)
    yield over_time("Latency, mean of each second", "ms", _means, timed)
    yield over_time("Longest latency of each second", "ms", lambda s: [us / 1000 for us in s.latency_max_us], timed)
    yield _percentiles(ids, timed)
    if any(t.bytes for _, t in tenants):
        unit, name = unit_of(max(max(t.series.bytes, default=0) for _, t in tenants))
        yield over_time("Bytes that succeeded", f"{name}/s", lambda s: [b / unit for b in s.bytes])
    if any(t.failures for _, t in tenants):
        yield over_time("Operations that failed", "per second", lambda s: s.failed)
    if phase.watched:
        yield _over_time(ids, phase, "CPU", "cores", [(w.name, w.first, w.cpu) for w in phase.watched])
        yield _over_time(ids, phase, "Memory", "MiB", [(w.name, w.first, [m / MIB for m in w.memory]) for w in phase.watched])


def _means(series: Series) -> list[float]:
    return [us / n / 1000 if n else 0 for us, n in zip(series.latency_sum_us, series.acknowledged, strict=True)]


def _over_time(
    ids: Iterator[int], phase: PhaseResult, title: str, unit: str, found: Sequence[tuple[str, int, Sequence[float]]]
) -> Drawing:
    """Lines of values by second over the time of a phase. Its warm-up is shaded, events are dashed lines."""
    lines = [(name, dates([first + i for i in range(len(values))]), values) for name, first, values in found if len(values) > 1]
    measured = phase.started + phase.warmup_s

    def finish(axes: Axes) -> None:
        if phase.warmup_s:
            axes.axvspan(*dates([phase.started, measured]), color=LINES, alpha=0.6, linewidth=0)
        for event in phase.events:
            axes.axvline(dates([event.at])[0], color=LEVEL, linewidth=1, linestyle="--")
        axes.set_xlim(*dates([phase.started, measured + phase.duration_s]))
        axes.set_ylim(bottom=0)
        time_axis(axes)

    notes = "".join(f"; dashed: {clean(event.text, 60)}" for event in phase.events[:3])
    shaded = "; shaded: warm-up" if phase.warmup_s else ""
    return _figure(ids, title, f"{unit}{shaded}{notes}", lines, finish)


def _percentiles(ids: Iterator[int], tenants: Sequence[Named]) -> Drawing:
    """Latency by percentile. The scale gives the tail more space, as that is what clients notice."""
    places = [1 / (1 - p / 100) for p in CURVE]
    lines = [(name, places, [max(us / 1000, 1e-3) for us in t.latency.curve(CURVE)]) for name, t in tenants]
    unit = "ms, logarithmic; from the time an operation was due"
    return _figure(ids, "Latency by percentile", unit, lines, _log_axes)


def _log_axes(axes: Axes) -> None:
    """Logarithmic axes, with labels such as 1, 10, 100 instead of powers."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks([1 / (1 - p / 100) for p in (0, 50, 90, 99, 99.9, 99.99)], ["min", "p50", "p90", "p99", "p99.9", "p99.99"])
    low, high = axes.get_ylim()
    ticks = [10.0**power for power in range(-3, 8) if low <= 10.0**power <= high]
    if len(ticks) < 2:
        ticks = sorted({*ticks, *(f * 10.0**power for power in range(-3, 8) for f in (1, 2, 5) if low <= f * 10.0**power <= high)})
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


def _machines(result: RunResult) -> tables.Rows:
    heads = ("Driver", "System", "Processor", "Python", "Clients", "CPUs", "Memory", "Clock")
    rows = [
        (
            str(driver.index),
            clean(driver.machine.system, 60),
            clean(driver.machine.processor, 60),
            clean(driver.machine.python, 20),
            clean(", ".join(f"{name} {version}" for name, version in driver.libraries.items()), 80),
            str(driver.machine.cpus),
            size(driver.machine.memory_bytes),
            f"{driver.machine.clock_resolution_ns:.0f} ns",
        )
        for driver in result.drivers
    ]
    return tables.Rows(heads, rows, texts=5)


def _processes(result: RunResult) -> tables.Rows:
    processes = [(driver.index, process) for driver in result.drivers for process in driver.processes]
    heads = ("Driver", "Process", "CPU", "Busiest second", "Its busiest thread", "Late, p99", "at most")
    rows = [
        (
            str(index),
            clean(p.name, 60) + (" (lost)" if p.lost else ""),
            f"{p.cpu_s:.1f} s",
            f"{p.cpu_max:.2f} cores",
            f"{p.thread_max:.0%}",
            tables.ms(p.lag_p99_ms * 1000),
            tables.ms(p.lag_max_ms * 1000),
        )
        for index, p in processes
    ]
    bad = frozenset(place for place, (_, p) in enumerate(processes) if p.lost or p.saturated_s)
    return tables.Rows(heads, rows, texts=2, bad=bad)


# Comparisons and sweeps


def _comparison(result: Comparison) -> dict[str, object]:
    ids = numbers()
    return {
        "ratios": [_ratios(ids, endpoint.name, result) for endpoint in result.endpoints[1:]],
        "rounds": [_rounds(ids, measure) for measure in result.measures if measure.name in SHOWN],
        **(_environment(result.runs[0]) if result.runs else {}),
    }


def _ratios(ids: Iterator[int], endpoint: str, result: Comparison) -> Drawing:
    """The ratio of each figure with its interval, and a line at 1."""
    several = len({measure.tenant for measure in result.measures}) > 1
    found = [
        (f"{measure.tenant}, {measure.name}" if several else measure.name, ratio)
        for measure in result.measures
        for ratio in measure.ratios
        if ratio.endpoint == endpoint and ratio.ratio is not None and measure.name in SHOWN
    ][:8]
    found.reverse()

    def draw(axes: Axes) -> None:
        for place, (_, ratio) in enumerate(found):
            if ratio.low is not None and ratio.high is not None:
                axes.plot([ratio.low, ratio.high], [place, place], color=SERIES[1], linewidth=2)
            axes.plot([ratio.ratio or 0.0], [place], color=SERIES[1], marker="o")
        axes.axvline(1, color=TEXT, linewidth=1)
        axes.set_yticks(range(len(found)), [clean(name, 30) for name, _ in found])
        axes.set_ylim(-0.6, len(found) - 0.4)

    title, unit = f"{clean(endpoint, 40)}, as multiples", "ratio, with its 95% interval; the line is no difference"
    return drawing(draw, f"f{next(ids)}", title, unit) if found else Drawing(title, NOTHING)


def _rounds(ids: Iterator[int], measure: Measure) -> Drawing:
    rounds = list(range(1, len(measure.samples[0].values) + 1))
    lines = [(sample.endpoint, rounds, sample.values) for sample in measure.samples]

    def finish(axes: Axes) -> None:
        axes.set_xticks(rounds)
        _from_zero(axes)

    title = f"{clean(measure.phase, 30)}: {measure.name} of {clean(measure.tenant, 40)}"
    return _figure(ids, title, f"{measure.unit}, by round", lines, finish, marker="o")


def _sweep(result: Sweep) -> dict[str, object]:
    ids = numbers()
    ordered = sorted(result.steps, key=lambda step: step.rate)
    rates = [step.rate for step in ordered]
    achieved = [("achieved", rates, [step.achieved for step in ordered]), ("intended", rates, rates)]
    latency = [("p99", rates, [step.p99_us / 1000 for step in ordered])]

    def finish(axes: Axes, limit_us: int | None = None) -> None:
        if limit_us is not None:
            axes.axhline(limit_us / 1000, color=LEVEL, linewidth=1, linestyle="--")
        if result.knee is not None:
            axes.axvline(result.knee, color=TEXT, linewidth=1)
        _from_zero(axes)

    below = "by intended rate; the line is the knee"
    plots = [
        _figure(ids, "Achieved rate", f"per second, {below}", achieved, finish, marker="o"),
        _figure(ids, "p99", f"ms, {below}", latency, partial(finish, limit_us=result.p99_limit_us), marker="o"),
    ]
    return {"plots": plots, **(_environment(result.runs[0]) if result.runs else {})}


# Parts


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    few_ticks(axes)


def _figure(
    ids: Iterator[int], title: str, unit: str, lines: Sequence[Line], finish: Callable[[Axes], None], *, marker: str | None = None
) -> Drawing:
    """The first lines, and a legend if there are several. `finish` sets up the axes."""
    coloured = list(zip(lines[:MAX_LINES], SERIES[1:], strict=False))
    if not coloured:
        return Drawing(title, NOTHING)

    def draw(axes: Axes) -> None:
        for (_, xs, ys), colour in coloured:
            axes.plot(xs, ys, color=colour, linewidth=1.5, marker=marker, markersize=4)
        finish(axes)

    legend = [(colour, clean(name, 60)) for (name, *_), colour in coloured] if len(coloured) > 1 else ()
    return drawing(draw, f"f{next(ids)}", title, unit, legend)
