"""Plots as inline SVG that takes its colours from the page, so that one drawing suits light, dark and paper.

In: a function that draws on matplotlib's axes with the colours of this module. Out: a `Drawing` for the macro `figure` of
`parts.html`. The SVG is the only thing that a page shows without escaping; what it holds of texts from elsewhere, the values that a
pointer shows, is escaped here. Names are in the legend. Left to others: the colours of the page, as CSS variables (`page.css`).
"""

import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.ticker import FixedFormatter, FixedLocator, MaxNLocator

from webpage.text import printable

_POINTS_PER_INCH = 72
_GAP = 3  # points around axes and legend
_HEIGHT = 2.3  # inches, as the widths
_HALF, _WHOLE = 7.0, 14.3

# Colours that stand for a CSS variable each: matplotlib draws with them, and they are replaced in its output.
LINES = "#010203"
TEXT = "#010204"
_COLOURS = {LINES: "var(--line)", TEXT: "var(--muted)"}
SERIES = tuple(f"#0a0b{index:02x}" for index in range(7))
_COLOURS |= {colour: f"var(--s{index})" for index, colour in enumerate(SERIES)}
OTHERS = SERIES[0]
LEVEL = "#010205"
_COLOURS[LEVEL] = "var(--level)"


Value = tuple[float, float, str]
"""From where to where at the lower axis, in its values (`dates`), and the text for it."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure of a page. Without `svg` there is nothing to draw, and `caption` says so. `legend`: CSS colour and text of each."""

    title: str
    caption: str
    svg: Markup | None = None
    legend: tuple[tuple[str, str], ...] = ()
    wide: bool = False


def drawing(
    draw: Callable[[Axes], None],
    name: str,
    title: str,
    caption: str,
    legend: Iterable[tuple[str, str]] = (),
    *,
    wide: bool = False,
    label: str | None = None,
    values: Iterable[Value] = (),
) -> Drawing:
    """What `draw` draws. `name` is unique in the page; `legend` has a colour of this module and a text for each entry; `label`, or
    the title, is read to those who do not see; `values` are shown where a pointer rests."""
    svg = _own_ids(_svg(draw, _WHOLE if wide else _HALF, values), name, label or title)
    return Drawing(title, caption, svg, tuple((_COLOURS[colour], text) for colour, text in legend), wide)


def time_axis(axes: Axes) -> None:
    """Times of day below, UTC; `dates` are its values."""
    locator = AutoDateLocator(minticks=3, maxticks=8, tz=UTC)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    few_ticks(axes)


def few_ticks(axes: Axes) -> None:
    """Round values at the left side."""
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))


def dates(seconds: Sequence[float]) -> list[float]:
    """Seconds since 1970 as matplotlib has them."""
    return [float(date2num(datetime.fromtimestamp(at, tz=UTC))) for at in seconds]  # type: ignore[no-untyped-call]


def dress(axes: Axes) -> None:
    """Few lines, in the colours of the page."""
    axes.patch.set_alpha(0)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=LINES, linewidth=0.7)
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(LINES)
    axes.tick_params(colors=TEXT, length=0, pad=5)
    axes.xaxis.get_offset_text().set_color(TEXT)


def arrange(figure: Figure, axes: Axes, legend: Legend | None = None) -> None:
    """Give the axes all of the figure but what their texts take, and a legend at its right side. Ticks stay what they are now.

    The same as matplotlib's constrained layout for one pair of axes, which looks for ticks and measures their texts a dozen times:
    that took half of all the time of a drawing.
    """
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        places = [float(place) for place in axis.get_majorticklocs() if low <= place <= high]
        formatter = axis.get_major_formatter()
        fixed = FixedFormatter(formatter.format_ticks(places))
        fixed.set_offset_string(formatter.get_offset())
        axis.set_major_locator(FixedLocator(places))
        axis.set_major_formatter(fixed)
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    whole, inner = figure.bbox, axes.bbox
    outer = axes.get_tightbbox(renderer) or inner
    gap = _GAP * figure.dpi / _POINTS_PER_INCH
    right = whole.width - (legend.get_window_extent(renderer).width + gap if legend else 0) - gap - (outer.x1 - inner.x1)
    left, bottom, top = gap + inner.x0 - outer.x0, gap + inner.y0 - outer.y0, whole.height - gap - (outer.y1 - inner.y1)
    axes.set_position((left / whole.width, bottom / whole.height, (right - left) / whole.width, (top - bottom) / whole.height))


def _svg(draw: Callable[[Axes], None], width: float, values: Iterable[Value]) -> str:
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "report", "font.size": 9, "text.parse_math": False}):
        figure = Figure(figsize=(width, _HEIGHT), dpi=_POINTS_PER_INCH)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        draw(axes)
        dress(axes)
        out = io.StringIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from font")  # text stays text: the browser has the glyphs
            arrange(figure, axes)
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    return out.getvalue().replace("</svg>", "".join(_areas(axes, _HEIGHT * _POINTS_PER_INCH, values)) + "</svg>")


def _areas(axes: Axes, height: float, values: Iterable[Value]) -> Iterator[str]:
    """Areas over all of the axes that are not seen, each with a text that browsers show where a pointer rests."""
    box = axes.bbox
    for begin, end, text in values:
        left, right = (min(max(float(axes.transData.transform((at, 0))[0]), box.x0), box.x1) for at in (begin, end))
        place = f'x="{left:.1f}" y="{height - box.y1:.1f}" width="{right - left:.1f}" height="{box.height:.1f}"'
        lines = escape("\n".join(printable(line) for line in text.splitlines()))
        yield f'<rect class="value" {place} fill="none" pointer-events="all"><title>{lines}</title></rect>'


def _own_ids(svg: str, name: str, title: str) -> Markup:
    """The drawing alone, for use in a page with others: ids made its own, colours handed to the page, no size but its shape."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", body)
    body = re.sub(r' (?:width|height)="[^"]*pt"', "", body, count=2)
    for colour, variable in _COLOURS.items():
        body = body.replace(colour, variable)
    label = f"<title>{escape(printable(title))}</title>"
    return Markup(re.sub(r"<svg ([^>]*)>", lambda match: f'<svg role="img" {match[1]}>{label}', body, count=1))
