"""HTML: elements that escape what they hold, unless it is HTML already.

In: tag names of ours, texts of anybody. Out: `Html`. The only way to make `Html` from a text is `raw`, which is for texts of this
package alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Generic, TypeVar

T = TypeVar("T")


class Html(str):
    """A text that is HTML already."""

    __slots__ = ()


def raw(text: str) -> Html:
    """Take `text` for HTML. Never for anything that came from a log."""
    return Html(text)


def tag(name: str, *children: str, **attributes: str | None) -> Html:
    """An element; children that are not `Html` are escaped, attributes always. `class_` is class; one of None is left out."""
    given = "".join(f' {key.rstrip("_")}="{escape(value)}"' for key, value in attributes.items() if value is not None)
    return Html(f"<{name}{given}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Html:
    """Children one after the other, escaped where they are not `Html`."""
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


@dataclass(frozen=True, slots=True)
class Column(Generic[T]):
    """A column of a table: its head, and its cell for a row. Numbers align to the right."""

    head: str
    cell: Callable[[T], str]
    number: bool = False

    @property
    def look(self) -> str | None:
        """The class of its cells."""
        return "n" if self.number else None


def table(columns: Sequence[Column[T]], rows: Iterable[T], note: Callable[[T], str | None] = lambda _: None) -> Html:
    """A table of `rows`; what `note` has for a row goes below its cells, over the whole width."""
    head = join(tag("th", column.head, class_=column.look, scope="col") for column in columns)
    body = join(_row(columns, row, note(row)) for row in rows)
    return tag("div", tag("table", tag("thead", tag("tr", head)), tag("tbody", body)), class_="scroll")


def _row(columns: Sequence[Column[T]], row: T, note: str | None) -> Html:
    cells = join(tag("td", column.cell(row), class_=column.look) for column in columns)
    if note is None:
        return tag("tr", cells)
    below = tag("td", tag("span", note), colspan=str(len(columns)))
    return join((tag("tr", cells, class_="noted"), tag("tr", below, class_="note")))
