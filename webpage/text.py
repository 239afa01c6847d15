"""Names from logs made printable, and numbers for people.

In: any text, any number. Out: one line of visible text. Left to others: escaping for HTML (`webpage.templates`) or the terminal.
"""

import unicodedata
from datetime import datetime

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # control, format (writing direction, zero width), surrogates, separators of lines
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_LENGTHS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def printable(text: str) -> str:
    """`text` in one line: what cannot be seen is written as an escape, so that it can neither steer a terminal nor reorder a
    page."""
    return "".join(c if unicodedata.category(c) not in _INVISIBLE else c.encode("unicode_escape").decode() for c in text)


def clean(text: str, max_length: int = 80) -> str:
    """`text` in one line of at most `max_length` characters, see `printable`."""
    return printable(text if len(text) <= max_length else text[: max_length - 1] + "…")


def or_dash(text: str | None, max_length: int = 80) -> str:
    """The same, and a dash for none."""
    return clean(text, max_length) if text else "–"


def client(client_id: str | None) -> str:
    """A client id, or what stands for none."""
    return "(no client id)" if client_id is None else clean(client_id)


def count(number: int) -> str:
    """1234567 as 1,234,567."""
    return f"{number:,}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: 1 line, 2 lines."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def decimal(number: float) -> str:
    """A number with at most two decimals, and none that say nothing."""
    return f"{number:,.2f}".rstrip("0").rstrip(".") if abs(number) < 1e15 else f"{number:.3g}"


def unit_of(largest: float) -> tuple[float, str]:
    """The unit in which a size of `largest` bytes is best written: its bytes and its name."""
    step = 0
    while largest >= 1024 and step < len(_SIZES) - 1:
        largest /= 1024
        step += 1
    return 1024.0**step, _SIZES[step]


def size(number: float) -> str:
    """Bytes: 1.5 MiB."""
    unit, name = unit_of(number)
    return f"{number:,.0f} B" if name == "B" else f"{number / unit:,.1f} {name}"


def size_signed(number: float) -> str:
    """Bytes that came or went: +1.5 MiB, -3 B."""
    return f"{'+' if number > 0 else '-' if number < 0 else ''}{size(abs(number))}"


def signed_percent(part: float | None) -> str:
    """A growth: +12%, -3%; a dash for none."""
    return "–" if part is None else f"{100 * part:+.0f}%"


def rate(number: float) -> str:
    """Bytes per second: 1.5 MiB/s."""
    return f"{size(number)}/s"


def duration(milliseconds: float) -> str:
    """A length of time in its two largest units: 850 ms, 12.5 s, 3 min 20 s, 2 d 4 h."""
    if milliseconds == 0:
        return "0 s"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{decimal(round(milliseconds / 1000, 1))} s"
    seconds = round(milliseconds / 1000)
    for large, name, small, small_name in _LENGTHS:
        if seconds >= large:
            rest = seconds % large // small
            return f"{count(seconds // large)} {name}" + (f" {rest} {small_name}" if rest else "")
    raise AssertionError("more than a minute is at least a minute")


def percent(part: float, whole: float) -> str:
    """A share: 12%, <1%, 0%; above 100% for what is more than it may be."""
    if part <= 0 or whole <= 0:
        return "0%"
    share = 100 * part / whole
    return "<1%" if share < 1 else f"{share:,.0f}%"


def moment(time: datetime) -> str:
    """A time, to the second; UTC goes without saying, as the page says it once."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def day(time: datetime) -> str:
    """A day."""
    return time.strftime("%Y-%m-%d")


def period(first: datetime, last: datetime) -> str:
    """From when to when, and how long that is."""
    end = last.strftime("%H:%M:%S") if first.date() == last.date() else moment(last)
    return f"{moment(first)} to {end} UTC, {duration((last - first).total_seconds() * 1000)}"
