"""A live view of a run in the terminal, and tables at its end. In: what drivers counted each second; results. Out: rich.

If the output is not a terminal, a line is printed every ten seconds instead, so that logs of CI and of pods stay short.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from loadtest.results import tables
from loadtest.results.counts import Tick
from loadtest.results.model import Comparison, RunResult, Sweep, Warning
from loadtest.results.progress import RunObserver
from webpage.text import clean, count, duration, size

LINE_S: Final = 10.0
"""Seconds between two lines if the output is not a terminal."""
_BARS: Final = " ▁▂▃▄▅▆▇█"
_SECONDS: Final = 40


@dataclass(slots=True)
class _Driver:
    tick: Tick
    intended: float | None
    rates: deque[int] = field(default_factory=lambda: deque(maxlen=_SECONDS))
    """Of the last seconds, the newest one last."""


class View(RunObserver):
    """Shows what a run is doing."""

    def __init__(self, console: Console, scenario: str, endpoint: str) -> None:
        self._console, self._head = console, f"{clean(scenario, 60)} at {clean(endpoint, 60)}"
        self._phase, self._seconds, self._begun, self._told = "", 0.0, 0.0, 0.0
        self._drivers: dict[str, _Driver] = {}
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> View:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def phase(self, name: str, seconds: float, now: float) -> None:
        self._phase, self._seconds, self._begun, self._told = clean(name, 60), seconds, now, now
        self._drivers.clear()
        if self._live is None:
            self._console.print(Text(f"{self._head}: {self._phase}, {duration(seconds * 1000)}"))

    def note(self, text: str) -> None:
        self._console.print(Text(clean(text, 300), style="dim"), soft_wrap=True)

    def tick(self, driver: str, tick: Tick, rate: float | None) -> None:
        one = self._drivers.setdefault(driver, _Driver(Tick(), rate))
        one.rates.append(tick.acknowledged - one.tick.acknowledged)
        one.tick = tick

    def show(self, now: float) -> None:
        if self._live:
            self._live.update(self.drawn(now), refresh=True)
        elif now - self._told >= LINE_S:
            self._told = now
            parts = [
                f"{clean(name, 30)} {one.rates[-1]:,}/s, {count(one.tick.failed)} failed" for name, one in self._drivers.items()
            ]
            self._console.print(Text(f"{now - self._begun:4.0f} s  " + "; ".join(parts)), soft_wrap=True)

    def drawn(self, now: float) -> RenderableType:
        """The view."""
        gone = min(now - self._begun, self._seconds)
        head = Text.assemble((self._head, "bold"), f"  {self._phase}  {gone:.0f} of {self._seconds:.0f} s")
        table = Table(box=None, pad_edge=False, header_style="dim")
        for place, name in enumerate(("Tenant", "Rate/s", "Intended/s", "Bytes", "Longest", "Failed", "")):
            table.add_column(name, justify="left" if place in (0, 6) else "right", no_wrap=True)
        for name, one in self._drivers.items():
            table.add_row(
                Text(clean(name, 30)),
                f"{one.rates[-1]:,}",
                "most" if one.intended is None else f"{one.intended:,.0f}",
                size(one.tick.bytes),
                tables.ms(one.tick.latency_max_us),
                Text(count(one.tick.failed), style="red" if one.tick.failed else ""),
                _spark(one.rates),
            )
        return Group(head, ProgressBar(total=self._seconds or 1, completed=gone), table)


def print_result(console: Console, result: RunResult | Comparison | Sweep) -> None:
    """Print the tables and the verdict of a result, and its warnings, which say how far the figures can be trusted."""
    console.print(Text(tables.title(result), style="bold"))
    console.print(Text(tables.subtitle(result), style="dim"), soft_wrap=True)
    if isinstance(result, RunResult):
        for phase in result.phases:
            console.print(Text(f"\n{clean(phase.name, 60)}, {duration(phase.duration_s * 1000)}"))
            for rows in (tables.tenants(phase), tables.failures(phase), tables.watched(phase), tables.faults(phase)):
                print_rows(console, rows)
        print_rows(console, tables.verification(result.verification))
        print_rows(console, tables.deliveries(result.deliveries))
        print_rows(console, tables.assertions(result))
        for assertion in result.assertions:
            if not assertion.passed:
                console.print(Text(f"✗ {clean(assertion.text, 300)}", style="red"), soft_wrap=True)
    elif isinstance(result, Comparison):
        print_rows(console, tables.measures(result))
    else:
        print_rows(console, tables.steps(result))
        console.print(Text(tables.knee(result), style="bold"))
    print_warnings(console, result.warnings)
    if isinstance(result, RunResult):
        console.print(Text(tables.verdict(result), style="bold green" if result.passed else "bold red"))


def print_warnings(console: Console, warnings: list[Warning]) -> None:
    """One line each."""
    for warning in warnings:
        console.print(Text(f"⚠ {warning.code}: {clean(warning.text, 400)}", style="yellow"), soft_wrap=True)


def print_rows(console: Console, rows: tables.Rows) -> None:
    """Print a table unless it is empty."""
    if not rows.rows:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, head in enumerate(rows.heads):
        table.add_column(head, justify="left" if rows.text(place) else "right", overflow="fold")
    for place, row in enumerate(rows.rows):
        table.add_row(*map(Text, row), style="red" if place in rows.bad else "")
    console.print(table)


def _spark(rates: deque[int]) -> str:
    highest = max(rates, default=0) or 1
    return "".join(_BARS[round(rate / highest * (len(_BARS) - 1))] for rate in rates)
