"""Plots: a series as inline SVG that takes its colours from the page, so that one drawing suits light, dark and paper.

In: a `Series`. Out: a figure with legend and caption. The SVG holds no text from a log: names are in the legend, which is HTML.
Left to others: the colours, as CSS variables (`page.css`).
"""

import io
import re
from datetime import UTC, datetime
from enum import Enum

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from reports.render.html import Html, join, raw, tag
from reports.render.text import clean, duration, unit_of
from reports.summary.model import Series

_POINTS_PER_INCH = 72
_HEIGHT = 2.3  # inches, as the widths
_HALF, _WHOLE = 7.0, 14.3

# Colours that stand for a CSS variable each: matplotlib draws with them, and they are replaced in its output.
_LINES = "#010203"
_TEXT = "#010204"
_COLOURS = {_LINES: "var(--line)", _TEXT: "var(--muted)"}
_SERIES = tuple(f"#0a0b{index:02x}" for index in range(7))
_COLOURS |= {colour: f"var(--s{index})" for index, colour in enumerate(_SERIES)}
_OTHERS = _SERIES[0]


class Measure(Enum):
    """What the values of a series are, and so how their axis reads."""

    BYTES = "bytes"  # shown as a rate
    COUNT = "count"  # shown for each bucket
    TIME = "time"  # in milliseconds; shown as seconds for each bucket


def plot(name: str, title: str, series: Series, measure: Measure, *, nothing: str, wide: bool = False) -> Html:
    """A figure with `title`, stacked by key; the sentence `nothing` where there is none to draw. `name` is unique in the page."""
    head = tag("h3", title)
    if series.empty:
        return tag("figure", head, tag("p", nothing, class_="nothing"), class_="wide" if wide else None)
    factor, unit = _scale(series, measure)
    drawing = _own_ids(_svg(series, factor, _WHOLE if wide else _HALF), name, title)
    caption = tag("figcaption", f"{unit}, stacked; times are UTC")
    return tag("figure", head, _legend(series), drawing, caption, class_="wide" if wide else None)


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


def _legend(series: Series) -> Html:
    items = (
        tag("li", tag("i", style=f"background:{_COLOURS[colour]}"), "all others" if key is None else clean(key, 60))
        for key, colour in zip(series.keys, _colours(series), strict=True)
    )
    return tag("ul", join(items), class_="legend")


def _colours(series: Series) -> list[str]:
    return [_OTHERS if key is None else _SERIES[1 + index % (len(_SERIES) - 1)] for index, key in enumerate(series.keys)]


def _svg(series: Series, factor: float, width: float) -> str:
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 9}):
        figure = Figure(figsize=(width, _HEIGHT), dpi=_POINTS_PER_INCH, layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        _draw(axes, series, factor)
        _dress(axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return out.getvalue()


def _draw(axes: Axes, series: Series, factor: float) -> None:
    edges = [series.first + index * series.seconds for index in range(len(series.values[0]) + 1)]
    times = date2num([datetime.fromtimestamp(edge, tz=UTC) for edge in edges])  # type: ignore[no-untyped-call]
    # A step goes on to the end of its bucket: the last value is drawn twice.
    rows = [[value * factor for value in (*row, row[-1])] for row in series.values]
    axes.stackplot(times, rows, step="post", colors=_colours(series), linewidth=0)
    axes.set_xlim(times[0], times[-1])
    axes.set_ylim(bottom=0)
    locator = AutoDateLocator(minticks=3, maxticks=8, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))


def _dress(axes: Axes) -> None:
    axes.patch.set_alpha(0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=_LINES, linewidth=0.7)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_LINES)
    axes.tick_params(colors=_TEXT, length=0, pad=5)
    axes.xaxis.get_offset_text().set_color(_TEXT)


def _own_ids(svg: str, name: str, title: str) -> Html:
    """The drawing alone, for use in a page with others: ids made its own, colours handed to the page, no size but its shape."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r' (?:width|height)="[^"]*pt"', "", body, count=2)
    for colour, variable in _COLOURS.items():
        body = body.replace(colour, variable)
    label = tag("title", title)
    return raw(re.sub(r"<svg ([^>]*)>", lambda match: f'<svg role="img" {match[1]}>{label}', body, count=1))
