"""Cells: what the tables of several sections have in common.

In: one value. Out: one cell, or one line of text.
"""

from webpage.html import Html, tag
from webpage.text import clean, counted, percent

LINE = 300
"""Characters of a message, or of a bad line, that are shown."""


def note(text: str) -> Html:
    """What has to be known to read a table or plot."""
    return tag("p", text, class_="note")


def shown(rows: int, of: int, noun: str) -> Html:
    """Says of how many rows a table shows the largest; nothing where it shows all."""
    return Html("") if rows == of else note(f"The {rows} largest of {counted(of, noun)}.")


def share(part: float, whole: float) -> Html:
    """A share, as a bar and in percent."""
    width = 0 if whole <= 0 else min(100, round(100 * part / whole))
    return tag("span", tag("span", tag("b", style=f"width:{width}%")), tag("i", percent(part, whole)), class_="share")


def said(message: str | None) -> str | None:
    """A message as the note of its row; none where there was none."""
    return clean(message, LINE) if message else None


def or_dash(text: str | None) -> str:
    """A text from a log, or a dash for none."""
    return clean(text) if text else "–"
