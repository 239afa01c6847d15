"""A limit that fits its owner. In: what was used, and how the limit in force held the owner back. Out: the limit, and what it
rests on in words.

What was used is demand only where nobody was held back: who is throttled, refused or made to wait uses no more than the limit,
whatever it wants. So what was held back counts as demand:

- the demand is that of the busy intervals, but the limit that was hit at least;
- and it is raised by the share of the intervals in which the limit was hit: an owner that ran into its limit all the time gets a
  demand of twice as much, one that did in a tenth of its time one of 1.1 times as much. How much more was wanted is not in the
  logs, so this is a step, not a measurement: with the limit raised, the next log tells whether it was enough.

So a limit that was hit is never suggested to be lower."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

from advice.use import PERCENTILE, Use

HEADROOM: Final = 1.5
"""What the demand is multiplied by."""


@dataclass(frozen=True, slots=True)
class HeldBack:
    """How an owner was held back by the limit in force: how often it was throttled, refused and made to wait, the seconds of the
    throttles that the log has, the intervals in which any of it happened, and the highest limit that was hit (None: one of another
    level). What was only observed held nobody back."""

    throttled: int = 0
    throttled_seconds: float = 0.0
    refused: int = 0
    held: int = 0
    intervals: int = 0
    limit: float | None = None

    def __bool__(self) -> bool:
        return bool(self.throttled or self.refused or self.held)


NOT_HELD_BACK: Final = HeldBack()


def demand(use: Use, held_back: HeldBack) -> float:
    """What the owner wants, per second."""
    if not held_back:
        return use.percentile
    share = min(held_back.intervals / max(use.intervals, held_back.intervals, 1), 1.0)
    return max(use.percentile, held_back.limit or 0.0) * (1 + share)


def suggested(use: Use, held_back: HeldBack, *, whole: bool, headroom: float = HEADROOM) -> float | None:
    """A limit that leaves headroom, in two figures; None where nothing was used or wanted. `whole`: no fractions."""
    wanted = demand(use, held_back) * headroom
    return rounded(wanted, whole=whole) if wanted > 0 else None


def reason(
    use: Use, held_back: HeldBack, amount: Callable[[float], str], percentile: float = PERCENTILE, *, level: bool = False
) -> str:
    """What a suggestion rests on: `p99 of 40 intervals 1.2 MiB/s; hit its limit of 1 MiB/s in 30: throttled 64 times, for at least
    32 s`, or, of a `level`, `up to 12 in 40 minutes`. `amount` writes a rate, or a level."""
    used = "nothing used"
    if use.intervals and level:
        used = f"up to {amount(use.largest)} in {_counted(use.intervals, 'minute')}"
    elif use.intervals:
        used = f"p{100 * percentile:g} of {_counted(use.intervals, 'interval')} {amount(use.percentile)}"
    if not held_back:
        return used
    limit = "a limit" if held_back.limit is None else f"its limit of {amount(held_back.limit)}"
    return f"{used}; hit {limit} in {held_back.intervals:,}: {hits(held_back)}"


def hits(held_back: HeldBack) -> str:
    """How somebody was held back: `throttled 64 times, for at least 32 s and refused 523 times`."""
    parts = []
    if held_back.throttled:
        parts.append(f"throttled {_counted(held_back.throttled, 'time')}, for at least {held_back.throttled_seconds:,.3g} s")
    if held_back.refused:
        parts.append(f"refused {_counted(held_back.refused, 'time')}")
    if held_back.held:
        parts.append(f"made to wait {_counted(held_back.held, 'time')}")
    return " and ".join(parts)


def rounded(value: float, *, whole: bool) -> float:
    """Up to two significant digits."""
    scale = 10.0 ** (floor(log10(value)) - 1)
    found = ceil(round(value / scale, 6)) * scale
    return float(ceil(found)) if whole else float(f"{found:.6g}")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("s" if count != 1 else "")
