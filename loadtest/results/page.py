"""A result as one self-contained HTML file with plots.

In: a run, a comparison or a sweep. Out: the text of the file, from the template `page.html`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count as numbers
from typing import Final

import yaml
from matplotlib.axes import Axes

from loadtest.results import say
from loadtest.results.measures import names
from loadtest.results.model import Comparison, Measure, PhaseResult, RunResult, Series, Sweep, TenantResult
from webpage.drawing import LEVEL, LINES, SERIES, TEXT, Drawing, dates, drawing, few_ticks, time_axis
from webpage.templates import render
from webpage.text import clean, count, size, unit_of

MAX_LINES: Final = len(SERIES) - 1
"""Most lines in one plot. The tables have all tenants."""
CURVE: Final = (0, 10, 25, 50, 75, 90, 95, 97.5, 99, 99.5, 99.9, 99.95, 99.99)
MIB: Final = 2**20
SHOWN: Final = ("rate", "p50", "p99", "cpu")
"""Figures of a comparison that have a plot."""

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
    return render("loadtest.results", "page.html", kind=kind, result=result, title=say.title(result), say=say, **sections)


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
    named = list(zip(names(phase), phase.tenants, strict=True))
    over_time = partial(_time_figure, ids, phase)
    yield over_time("Operations that succeeded", "per second", [_line(n, t.series, t.series.acknowledged) for n, t in named])
    means = [_line(n, t.series, [s / a / 1000 if a else 0 for s, a in _pairs(t.series)]) for n, t in named if t.latency.count]
    yield over_time("Latency, mean of each second", "ms", means)
    longest = [_line(n, t.series, [us / 1000 for us in t.series.latency_max_us]) for n, t in named if t.latency.count]
    yield over_time("Longest latency of each second", "ms", longest)
    yield _curves(ids, "Latency by percentile", [(n, t) for n, t in named if t.latency.count])
    if any(t.bytes for _, t in named):
        unit, name = unit_of(max(max(t.series.bytes, default=0) for _, t in named))
        yield over_time(
            "Bytes that succeeded", f"{name}/s", [_line(n, t.series, [b / unit for b in t.series.bytes]) for n, t in named]
        )
    if any(t.failures for _, t in named):
        yield over_time("Operations that failed", "per second", [_line(n, t.series, t.series.failed) for n, t in named])
    if phase.watched:
        seconds = {w.name: [w.first + i for i in range(len(w.cpu))] for w in phase.watched}
        yield over_time("CPU", "cores", [(w.name, seconds[w.name], w.cpu) for w in phase.watched])
        yield over_time("Memory", "MiB", [(w.name, seconds[w.name], [m / MIB for m in w.memory]) for w in phase.watched])


def _line(name: str, series: Series, values: Sequence[float]) -> Line:
    return name, [series.first + i for i in range(len(values))], values


def _pairs(series: Series) -> Iterable[tuple[int, int]]:
    return zip(series.latency_sum_us, series.acknowledged, strict=True)


def _time_figure(ids: Iterator[int], phase: PhaseResult, title: str, unit: str, lines: Sequence[Line]) -> Drawing:
    """Lines over the time of a phase. Its warm-up is shaded, events are dashed lines."""
    drawn = [line for line in lines if len(line[1]) > 1][:MAX_LINES]
    notes = "".join(f"; dashed: {clean(event.text, 60)}" for event in phase.events[:3])
    shaded = "; shaded: warm-up" if phase.warmup_s else ""
    return _figure(ids, title, f"{unit}{shaded}{notes}", drawn, partial(_draw_times, phase, drawn))


def _draw_times(phase: PhaseResult, lines: Sequence[Line], axes: Axes) -> None:
    for (_, seconds, values), colour in zip(lines, SERIES[1:], strict=False):
        axes.plot(dates(seconds), values, color=colour, linewidth=1.5)
    begun, measured, end = dates([phase.started, phase.started + phase.warmup_s, phase.started + phase.warmup_s + phase.duration_s])
    if phase.warmup_s:
        axes.axvspan(begun, measured, color=LINES, alpha=0.6, linewidth=0)
    for event in phase.events:
        axes.axvline(dates([event.at])[0], color=LEVEL, linewidth=1, linestyle="--")
    axes.set_xlim(begun, end)
    axes.set_ylim(bottom=0)
    time_axis(axes)


def _curves(ids: Iterator[int], title: str, tenants: Sequence[tuple[str, TenantResult]]) -> Drawing:
    """Latency by percentile. The scale gives the tail more space, as that is what clients notice."""
    places = [1 / (1 - p / 100) for p in CURVE]
    lines = [(name, places, [us / 1000 for us in t.latency.curve(CURVE)]) for name, t in tenants[:MAX_LINES]]
    return _figure(ids, title, "ms, logarithmic; from the time an operation was due", lines, partial(_draw_curves, lines))


def _draw_curves(lines: Sequence[Line], axes: Axes) -> None:
    for (_, places, values), colour in zip(lines, SERIES[1:], strict=False):
        axes.plot(places, [max(value, 1e-3) for value in values], color=colour, linewidth=1.5)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.set_xticks([1 / (1 - p / 100) for p in (0, 50, 90, 99, 99.9, 99.99)], ["min", "p50", "p90", "p99", "p99.9", "p99.99"])
    _plain_log(axes)


def _plain_log(axes: Axes) -> None:
    """Label the logarithmic axis with 1, 10, 100 instead of powers."""
    low, high = axes.get_ylim()
    ticks = [10.0**power for power in range(-3, 8) if low <= 10.0**power <= high]
    if len(ticks) < 2:
        ticks = sorted({*ticks, *(f * 10.0**power for power in range(-3, 8) for f in (1, 2, 5) if low <= f * 10.0**power <= high)})
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])


def _machines(result: RunResult) -> say.Rows:
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
    return say.Rows(heads, rows, texts=5)


def _processes(result: RunResult) -> say.Rows:
    processes = [(driver.index, process) for driver in result.drivers for process in driver.processes]
    heads = ("Driver", "Process", "CPU", "Busiest second", "Its busiest thread", "Late, p99", "at most")
    rows = [
        (
            str(index),
            clean(p.name, 60) + (" (lost)" if p.lost else ""),
            f"{p.cpu_s:.1f} s",
            f"{p.cpu_max:.2f} cores",
            f"{p.thread_max:.0%}",
            say.ms(p.lag_p99_ms * 1000),
            say.ms(p.lag_max_ms * 1000),
        )
        for index, p in processes
    ]
    bad = frozenset(place for place, (_, p) in enumerate(processes) if p.lost or p.saturated_s)
    return say.Rows(heads, rows, texts=2, bad=bad)


# Comparisons


def _comparison(result: Comparison) -> dict[str, object]:
    ids = numbers()
    return {
        "ratios": [_ratio_figure(ids, clean(endpoint.name, 40), result) for endpoint in result.endpoints[1:]],
        "rounds": [_rounds_figure(ids, measure) for measure in result.measures if measure.name in SHOWN],
        **(_environment(result.runs[0]) if result.runs else {}),
    }


def _ratio_figure(ids: Iterator[int], endpoint: str, result: Comparison) -> Drawing:
    """The ratio of each figure with its interval, and a line at 1."""
    found = [
        (f"{measure.tenant}, {measure.name}" if len({m.tenant for m in result.measures}) > 1 else measure.name, ratio, ratio.ratio)
        for measure in result.measures
        for ratio in measure.ratios
        if ratio.endpoint == endpoint and ratio.ratio is not None and measure.name in SHOWN
    ][:8]

    def draw(axes: Axes) -> None:
        for place, (_, ratio, times) in enumerate(reversed(found)):
            if ratio.low is not None and ratio.high is not None:
                axes.plot([ratio.low, ratio.high], [place, place], color=SERIES[1], linewidth=2)
            axes.plot([times], [place], color=SERIES[1], marker="o")
        axes.axvline(1, color=TEXT, linewidth=1)
        axes.set_yticks(range(len(found)), [clean(name, 30) for name, *_ in reversed(found)])
        axes.set_ylim(-0.6, max(len(found), 1) - 0.4)

    title = f"{endpoint}, as multiples"
    return _figure(ids, title, "ratio, with its 95% interval; the line is no difference", found, draw, named=False)


def _rounds_figure(ids: Iterator[int], measure: Measure) -> Drawing:
    lines = [(s.endpoint, list(range(1, len(s.values) + 1)), s.values) for s in measure.samples[:MAX_LINES]]

    def draw(axes: Axes) -> None:
        for (_, rounds, values), colour in zip(lines, SERIES[1:], strict=False):
            axes.plot(rounds, values, color=colour, linewidth=1.2, marker="o", markersize=4)
        axes.set_xticks(lines[0][1])
        axes.set_ylim(bottom=0)
        few_ticks(axes)

    title = f"{clean(measure.phase, 30)}: {measure.name} of {clean(measure.tenant, 40)}"
    return _figure(ids, title, f"{measure.unit}, by round", lines, draw)


# Sweeps


def _sweep(result: Sweep) -> dict[str, object]:
    ids = numbers()
    ordered = sorted(result.steps, key=lambda step: step.rate)
    rates = [step.rate for step in ordered]
    achieved = [("achieved", rates, [step.achieved for step in ordered]), ("intended", rates, rates)]
    latency = [("p99", rates, [step.p99_us / 1000 for step in ordered])]
    limit = None if result.p99_limit_us is None else result.p99_limit_us / 1000
    below = "by intended rate; the line is the knee"
    plots = [
        _figure(ids, "Achieved rate", f"per second, {below}", achieved, partial(_draw_sweep, result, achieved, None)),
        _figure(ids, "p99", f"ms, {below}", latency, partial(_draw_sweep, result, latency, limit)),
    ]
    return {"plots": plots, **(_environment(result.runs[0]) if result.runs else {})}


def _draw_sweep(result: Sweep, lines: Sequence[Line], limit: float | None, axes: Axes) -> None:
    for (_, rates, values), colour in zip(lines, SERIES[1:], strict=False):
        axes.plot(rates, values, color=colour, linewidth=1.5, marker="o", markersize=4)
    if limit is not None:
        axes.axhline(limit, color=LEVEL, linewidth=1, linestyle="--")
    if result.knee is not None:
        axes.axvline(result.knee, color=TEXT, linewidth=1)
    axes.set_ylim(bottom=0)
    few_ticks(axes)


# Parts


def _figure(
    ids: Iterator[int],
    title: str,
    unit: str,
    lines: Sequence[tuple[str, object, *tuple[object, ...]]] | Sequence[tuple[str, object]],
    draw: Callable[[Axes], None],
    *,
    named: bool = True,
) -> Drawing:
    if not lines:
        return Drawing(title, "There are no values to draw.")
    entries = [(colour, clean(line[0], 60)) for line, colour in zip(lines, SERIES[1:], strict=False)]
    return drawing(draw, f"f{next(ids)}", title, unit, entries if named and len(entries) > 1 else ())
