"""The one-minute rate of the classic meter (seed s4: `Meter.OneMinuteRate` of Yammer's, now Dropwizard's, metrics).

An exponentially weighted moving average that moves every 5 s only: 0 until the first tick, then the rate of what was recorded
before it, then a step of 1 - exp(-5 s / 1 min) towards that of each tick. Ticks of all meters with the same epoch stand on one
grid, epoch + 5k s, so that a total and its parts move at the same instants. A meter begins with what is first recorded: its
first interval may be a part of 5 s, and is divided by 5 s all the same.

In: amounts with monotonic seconds. Out: their rate per second, and when it will have fallen. Ticks that are due are caught up
when somebody looks, many idle ones in one step."""

from __future__ import annotations

from math import ceil, exp, floor, inf, log
from typing import Final

TICK: Final = 5.0
"""seconds between two ticks"""
MINUTE: Final = 60.0
ALPHA: Final = 1 - exp(-TICK / MINUTE)
"""the weight of the newest interval"""
NEVER: Final = -(1 << 60)
"""a tick that never was"""


class Meter:
    """Amounts per second.

    >>> meter = Meter()
    >>> meter.record(600, now=1.0)
    >>> meter.rate(4.9), meter.rate(5.0), round(meter.rate(65.0), 3)
    (0.0, 120.0, 44.146)
    """

    __slots__ = ("_counted", "_epoch", "_first", "_moved", "_rate", "_tick", "fresh", "turn")

    def __init__(self, epoch: float = 0.0) -> None:
        self._epoch = epoch
        self._tick = 0
        """number of the tick that the running interval began with"""
        self._first = NEVER
        """the tick before the first interval, which weighs all; `NEVER` if none did"""
        self._moved = False
        self._rate = 0.0
        self._counted = 0.0
        self.fresh = 0.0
        """recorded since the last tick. A caller that knows that the time is before `turn` may add to it instead of `record`"""
        self.turn = -inf
        """the next tick; -inf before anything was recorded"""

    def record(self, amount: float, now: float) -> None:
        """Count an amount as of now."""
        if now >= self.turn:
            self._move(now)
        self.fresh += amount

    def take_back(self, amount: float, when: float, now: float) -> None:
        """What was recorded at `when` did not happen: the rate is as if it had never been recorded."""
        if now >= self.turn > -inf:
            self._move(now)
        then = _last_tick(self._epoch, when)
        if then >= self._tick or self.turn == -inf:
            self.fresh -= amount
        elif then >= self._first:
            weight = 1.0 if then == self._first else ALPHA
            self._rate = max(self._rate - _after(weight * amount / TICK, self._tick - then - 1), 0.0)
            self._counted -= amount

    def rate(self, now: float) -> float:
        """Amounts per second as of the last tick."""
        if now >= self.turn and self.turn > -inf:
            self._move(now)
        return self._rate

    def coming(self, now: float) -> float:
        """The rate as of the next tick, if nothing more is recorded."""
        rate, instant = self.rate(now), self.fresh / TICK
        return rate + ALPHA * (instant - rate) if self._moved else instant

    @property
    def count(self) -> float:
        """All that was ever recorded."""
        return self._counted + self.fresh

    def wait(self, limit: float, now: float) -> float:
        """Seconds until the rate is not above `limit`, if nothing more is recorded: that is a tick. 0 if it is not above it now;
        infinite for a limit of 0, as a rate never falls to that."""
        rate = self.rate(now)
        if rate <= limit:
            return 0.0
        if limit <= 0:
            return inf
        rate += ALPHA * (self.fresh / TICK - rate)
        ticks = 0
        if rate > limit:
            ticks = ceil(log(rate / limit) * MINUTE / TICK)
            ticks += _after(rate, ticks) > limit  # where rounding says otherwise
        return self.turn + ticks * TICK - now

    def idle(self, now: float, below: float) -> bool:
        """Is the rate under `below`, and nothing recorded since the last tick?"""
        return self.rate(now) < below and self.fresh == 0

    def _resume(self, rate: float, now: float) -> None:
        """Have this rate from now on."""
        if now >= self.turn:
            self._move(now)
        if not self._moved:
            self._moved, self._first = True, NEVER
        self._rate = rate

    def _move(self, now: float) -> None:
        """Tick as often as is due."""
        tick = _last_tick(self._epoch, now)
        if self.turn > -inf:
            instant = self.fresh / TICK
            self._rate = _after(self._rate + ALPHA * (instant - self._rate) if self._moved else instant, tick - self._tick - 1)
            self._moved = True
            self._counted += self.fresh
            self.fresh = 0.0
        else:
            self._first = tick
        self._tick = tick
        self.turn = self._epoch + (tick + 1) * TICK


def _after(rate: float, ticks: int) -> float:
    """A rate after this number of ticks with nothing recorded."""
    return rate * exp(-ticks * TICK / MINUTE)


def _last_tick(epoch: float, now: float) -> int:
    """The number of the last tick that is not after now. Meters agree on it: they compare the instants, whatever rounding does."""
    tick = floor((now - epoch) / TICK)
    while epoch + (tick + 1) * TICK <= now:
        tick += 1
    while epoch + tick * TICK > now:
        tick -= 1
    return tick
