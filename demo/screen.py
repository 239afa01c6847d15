"""Progress and lines on the terminal: bars and spinners where there is a terminal, one line per step where there is none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn

_TITLE_WIDTH = 32

Tick = Callable[[float], None]
"""Called from time to time with the seconds that have passed in a phase."""


class Screen:
    """One terminal. All texts are plain."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: str = "", *, wrap: bool = True) -> None:
        """A line. If it is too long it is wrapped, unless `wrap` is false."""
        self.console.print(escape(text), highlight=False, soft_wrap=not wrap)

    def step(self, title: str, text: str) -> None:
        """A step that was done and its result. The line is not wrapped, so that addresses and paths can be copied."""
        mark = f"[green]✓[/] {escape(_padded(title))} [dim]{escape(text)}[/]"
        self.console.print(mark, highlight=False, soft_wrap=True)

    def failure(self, text: str) -> None:
        """Something that is wrong."""
        self.console.print(f"[red]✗ {escape(text)}[/]", highlight=False, soft_wrap=True)

    @contextmanager
    def working(self, title: str) -> Iterator[None]:
        """A spinner."""
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(escape(title), spinner="dots", refresh_per_second=5):
            yield

    @contextmanager
    def bar(self, title: str, seconds: float) -> Iterator[Tick]:
        """A bar that shows how many seconds have passed."""
        columns = (TextColumn("  {task.description}"), BarColumn(30), TextColumn("{task.completed:.0f} of {task.total:.0f} s"))
        enabled = self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, refresh_per_second=5, disable=not enabled) as progress:
            task = progress.add_task(escape(_padded(title)), total=seconds)
            yield lambda passed: progress.update(task, completed=passed)


def _padded(title: str) -> str:
    """Titles have the same width: some characters take two columns of a terminal."""
    return title + " " * (_TITLE_WIDTH - cell_len(title))
