"""Plots of the report: series, volumes and budgets of tenants, as inline SVG of the page (`webpage.drawing`).

In: a `Report`. Out: drawings with legend and caption, and the values that a pointer shows. `write_plots` makes files of the same
drawings for slides, in colours of their own, with their legend. Left to others: the colours of the page, as CSS variables
(`page.css`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from itertools import pairwise
from pathlib import Path as Folder

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.summary.model import Level, Path, Report, Series
from webpage.drawing import LEVEL, LINES, OTHERS, SERIES, TEXT, Drawing, Value, arrange, dates, drawing, dress, time_axis
from webpage.text import clean, count, duration, moment, rate, size, unit_of

_PRINT_COLOURS = {LINES: "#d5d5d5", TEXT: "#444444", LEVEL: "#c02b4a"}
_PRINT_COLOURS |= dict(zip(SERIES, ("#b3b6bb", "#2f6fd0", "#e07a1f", "#17977a", "#a84fb3", "#c9a012", "#5fa8d8"), strict=True))
"""The same colours on paper: light, as slides mostly are."""
_SLIDE = (9.0, 4.0)
MAX_VOLUMES = 24
"""Volumes with a plot, those that fill first."""
MAX_BUDGETS = 6
"""Budgets of tenants with a plot: those to act on, as a plot tells little of a thousand."""


class Measure(Enum):
    """What the values of a series are, and so how their axis reads."""

    BYTES = "bytes"  # shown as a rate
    COUNT = "count"  # shown for each bucket
    TIME = "time"  # in milliseconds; shown as seconds for each bucket


@dataclass(frozen=True, slots=True)
class PagePlots:
    """The plots of the page, by its sections."""

    volumes: list[Drawing]
    budgets: list[Drawing]
    limits: list[Drawing]
    principals: list[Drawing]
    topics: list[Drawing]


def page_plots(report: Report) -> PagePlots:
    """All of them; none without a valid line."""
    if report.first is None:
        return PagePlots([], [], [], [], [])
    traffic, limits = report.traffic, report.limits
    decided = limits.decisions_by_entity
    return PagePlots(
        volumes=[_filling_plot(one) for one in _volumes(report)],
        budgets=[_filling_plot(one) for one in _budgets(report)],
        limits=[
            _plot("refused", "Items refused, by quota", limits.refused_by_quota, Measure.COUNT, "Nothing was refused."),
            _plot("throttle", "Throttle time, by principal", limits.throttle_by_principal, Measure.TIME, "Nobody was throttled."),
            _plot("decisions", "Decisions, by quota and entity", decided, Measure.COUNT, "None was logged.", wide=True),
        ],
        principals=[
            _plot("in", "Produced, by principal", traffic.produced_by_principal, Measure.BYTES, "Nothing was produced."),
            _plot("out", "Fetched, by principal", traffic.fetched_by_principal, Measure.BYTES, "Nothing was fetched."),
        ],
        topics=[
            _plot("topic-in", "Produced, by topic", traffic.produced_by_topic, Measure.BYTES, "No topic was produced to."),
            _plot("topic-out", "Fetched, by topic", traffic.fetched_by_topic, Measure.BYTES, "No topic was fetched from."),
        ],
    )


def _plot(name: str, title: str, series: Series, measure: Measure, nothing: str, *, wide: bool = False) -> Drawing:
    """A figure with `title`, stacked by key; the sentence `nothing` where there is none to draw. `name` is unique in the page."""
    if series.empty:
        return Drawing(title, nothing, wide=wide)
    factor, unit = _scale(series, measure)
    legend = zip(_colours(series), _names(series, 60), strict=True)
    caption = f"{unit}, stacked; times are UTC"
    return drawing(
        lambda axes: _draw(axes, series, factor), name, title, caption, legend, wide=wide, values=_values(series, measure)
    )


def _values(series: Series, measure: Measure) -> Iterator[Value]:
    """What a pointer shows: of each bucket when it begins, and the keys that have something in it, those with most first."""
    names = _names(series, 40)
    for index, bucket in enumerate(zip(*series.values, strict=True)):
        at = series.first + index * series.seconds
        begin, end = dates([at, at + series.seconds])
        most_first = sorted(zip(bucket, names, strict=True), key=lambda pair: -pair[0])
        lines = [f"{name}: {_amount(value, series.seconds, measure)}" for value, name in most_first if value]
        yield begin, end, "\n".join([moment(datetime.fromtimestamp(at, tz=UTC)), *(lines or ["nothing"])])


def _amount(value: float, seconds: int, measure: Measure) -> str:
    match measure:
        case Measure.BYTES:
            return rate(value / seconds)
        case Measure.TIME:
            return duration(value)
        case Measure.COUNT:
            return count(int(value))


def _scale(series: Series, measure: Measure) -> tuple[float, str]:
    """What values are multiplied by, and the unit of the outcome."""
    step = duration(series.seconds * 1000)
    match measure:
        case Measure.BYTES:
            unit, name = unit_of(max(map(sum, zip(*series.values, strict=True))) / series.seconds)
            return 1 / unit / series.seconds, f"{name}/s, averaged over {step}"
        case Measure.TIME:
            return 0.001, f"Seconds in each {step}"
        case Measure.COUNT:
            return 1.0, f"Number in each {step}"


def _names(series: Series, max_length: int) -> list[str]:
    return ["all others" if key is None else clean(key, max_length) for key in series.keys]


def _colours(series: Series) -> list[str]:
    return [OTHERS if key is None else SERIES[1 + index % (len(SERIES) - 1)] for index, key in enumerate(series.keys)]


@dataclass(frozen=True, slots=True)
class _Filling:
    """What fills, as it is drawn: `file` is the name of its file, `top` the most bytes that there can be."""

    file: str
    title: str
    label: str
    path: Path
    levels: tuple[Level, ...]
    top: float


def _volumes(report: Report) -> list[_Filling]:
    rows = report.capacity.volumes[:MAX_VOLUMES]
    titles = [clean(row.name, 60) for row in rows]
    return [
        _Filling(f"volume-{number:02d}", title, f"Used bytes of {title}", row.path, row.levels, row.total)
        for number, (title, row) in enumerate(zip(titles, rows, strict=True), 1)
    ]


def _budgets(report: Report) -> list[_Filling]:
    """Those that will reach their limit first, of whose days there are enough for a line; then those that have reached it."""
    rows = [row for row in report.capacity.tenants.budgets if len(row.path.observed) > 1 and row.last]
    rows.sort(key=lambda row: row.last is not None and row.last.already)
    found = []
    for number, row in enumerate(rows[:MAX_BUDGETS], 1):
        title, limits = f"tenant {clean(row.tenant, 60)}", {level.at_bytes for level in row.levels}
        other = [replace(level, name=f"proposed {level.name}") for level in row.proposed if level.at_bytes not in limits]
        levels = (*row.levels, *other)
        top = max(row.used, *(level.at_bytes for level in levels))
        found.append(_Filling(f"budget-{number:02d}", title, f"Stored bytes of {title}", row.path, levels, top))
    return found


def _filling_plot(one: _Filling) -> Drawing:
    """Bytes as observed and as forecast, and the levels."""
    path = one.path
    if len(path.observed) < 2:
        return Drawing(one.title, "One observation is too few for a plot.")
    labels = [(SERIES[1], "used"), (SERIES[2], "forecast and its interval")] if path.ahead else [(SERIES[1], "used")]
    labels += [(SERIES[3], "with the proposed quotas")] if path.proposed else []
    labels += [(LEVEL, "levels: " + ", ".join(level.name for level in one.levels))]
    caption = f"{unit_of(one.top)[1]}; times are UTC"
    values = _filling_values(path)
    return drawing(lambda axes: _draw_filling(axes, one), one.file, one.title, caption, labels, label=one.label, values=values)


def _filling_values(path: Path) -> Iterator[Value]:
    """What a pointer shows: each observation and each forecast from half-way to the one before until half-way to the next."""
    texts = [(at, f"{size(used)} used") for at, used in path.observed]
    ahead = [(at, f"{size(used)} forecast\n{size(low)} to {size(high)}") for at, used, low, high in path.ahead]
    texts += [one for one in ahead if one[0] > texts[-1][0]]
    times = [at for at, _ in texts]
    between = [(one + other) / 2 for one, other in pairwise(times)]
    edges = dates([times[0], *between, times[-1]])
    for (begin, end), (at, text) in zip(pairwise(edges), texts, strict=True):
        yield begin, end, f"{moment(datetime.fromtimestamp(at, tz=UTC))}\n{text}"


def write_plots(report: Report, folder: Folder) -> None:
    """Every plot of the page as SVG and PNG, named by what it shows."""
    folder.mkdir()
    traffic, limits = report.traffic, report.limits
    stacked = {
        "produced-by-principal": ("Produced, by principal", traffic.produced_by_principal, Measure.BYTES),
        "fetched-by-principal": ("Fetched, by principal", traffic.fetched_by_principal, Measure.BYTES),
        "produced-by-topic": ("Produced, by topic", traffic.produced_by_topic, Measure.BYTES),
        "fetched-by-topic": ("Fetched, by topic", traffic.fetched_by_topic, Measure.BYTES),
        "refused-by-quota": ("Items refused, by quota", limits.refused_by_quota, Measure.COUNT),
        "throttle-by-principal": ("Throttle time asked for, by principal", limits.throttle_by_principal, Measure.TIME),
        "decisions-by-entity": ("Decisions, by quota and entity", limits.decisions_by_entity, Measure.COUNT),
    }
    for name, (title, series, measure) in stacked.items():
        if not series.empty:
            factor, unit = _scale(series, measure)
            draw = partial(_draw, series=series, factor=factor, labels=_names(series, 40))
            _slide(folder / name, f"{title} ({unit})", draw)
    for one in (*_volumes(report), *_budgets(report)):
        if len(one.path.observed) > 1:
            title = f"{one.title} ({unit_of(one.top)[1]} used)"
            _slide(folder / one.file, title, partial(_draw_filling, one=one, label="used"))


def _slide(stem: Folder, title: str, draw: Callable[[Axes], None]) -> None:
    with mpl.rc_context({"font.size": 11, "svg.hashsalt": "report", "svg.fonttype": "none", "text.parse_math": False}):
        figure = Figure(figsize=_SLIDE)
        axes = figure.add_subplot()
        draw(axes)
        dress(axes)
        axes.set_title(title, loc="left", fontsize=12)
        named = axes.get_legend_handles_labels()[1]
        legend = figure.legend(loc="upper right", frameon=False, fontsize=9) if named else None
        arrange(figure, axes, legend)
        for item in figure.findobj():
            _recolour(item)
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})
        figure.savefig(stem.with_suffix(".png"), dpi=160)


def _recolour(item: object) -> None:
    """A drawing's stand-ins for colours become those of paper."""
    for kind in ("color", "facecolor", "edgecolor"):
        getter, setter = getattr(item, f"get_{kind}", None), getattr(item, f"set_{kind}", None)
        if getter is None or setter is None:
            continue
        try:
            found = mpl.colors.to_hex(getter()[0] if getattr(getter(), "ndim", 0) == 2 else getter())
        except (ValueError, TypeError, IndexError):
            continue
        if found in _PRINT_COLOURS:
            setter(_PRINT_COLOURS[found])


def _draw_filling(axes: Axes, one: _Filling, label: str | None = None) -> None:
    unit = unit_of(one.top)[0]
    path = one.path
    labels = (label, "forecast", "proposed quotas") if label else (None, None, None)
    times = dates([at for at, _ in path.observed])
    axes.plot(times, [used / unit for _, used in path.observed], color=SERIES[1], linewidth=1.8, label=labels[0])
    end = times[-1]
    if path.ahead:
        later = dates([at for at, *_ in path.ahead])
        low, high = ([values[index] / unit for values in path.ahead] for index in (2, 3))
        axes.fill_between(later, low, high, color=SERIES[2], alpha=0.22, linewidth=0)
        axes.plot(later, [values[1] / unit for values in path.ahead], color=SERIES[2], linewidth=1.6, label=labels[1])
        end = later[-1]
    if path.proposed:
        later = dates([at for at, _ in path.proposed])
        axes.plot(later, [used / unit for _, used in path.proposed], color=SERIES[3], linewidth=1.6, label=labels[2])
    for level in one.levels:
        axes.axhline(level.at_bytes / unit, color=LEVEL, linewidth=1, linestyle="-" if level.name in ("full", "hard") else "--")
    axes.set_xlim(times[0], end)
    axes.set_ylim(0, one.top / unit * 1.05)
    time_axis(axes)


def _draw(axes: Axes, series: Series, factor: float, labels: Sequence[str] = ()) -> None:
    edges = [series.first + index * series.seconds for index in range(len(series.values[0]) + 1)]
    times = dates(edges)
    # A step goes on to the end of its bucket: the last value is drawn twice.
    rows = [[value * factor for value in (*row, row[-1])] for row in series.values]
    axes.stackplot(times, rows, step="post", colors=_colours(series), linewidth=0, labels=labels)
    axes.set_xlim(times[0], times[-1])
    axes.set_ylim(bottom=0)
    time_axis(axes)
