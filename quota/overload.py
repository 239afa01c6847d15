"""How much a broker that cannot keep up is given, and how that is divided among users. Pure: what was seen in a second in, the
admitted rate out.

A broker is overloaded when its answers to Produce requests take longer than the target for `SUSTAINED` seconds. The latency is what
most of an answer's time is queueing: of each user the tenth of its answers that came fastest, and of these the lower median over
users, so that neither one user's slow connection nor the bursts of one user decide.

The controller is AIMD, as in Breakwater (Cho et al., "Overload Control for us-scale RPCs with Breakwater", OSDI 2020): above the
target, what goes on is cut to a part of what the broker has just done, the smaller the further the latency is above; below it, it
grows. Near the rate at which the broker was overloaded last it grows slowly, and faster beyond (the plateau of CUBIC, RFC 9438), so
that the queue is seldom probed. A gradient on the latency (Vegas, TIMELY) was left: clients have few requests under way, so the
latency of a broker is a step at its capacity and tells nothing of how near that is.

What goes on is divided by weighted max-min fairness: there is one level, and a user may have `level` x its weight. Who asks for
less is never touched; the level is such that all of them together have what the broker can do.

Slowing users down does not help where the latency has other reasons. Where it stays high although everybody is at the floor, that
latency is taken for the quiet one of the broker, all are let go, and twice as much is the target from then on, until a lower
latency is seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, NamedTuple

SUSTAINED: Final = 3
"""Seconds for which the latency is too high before anybody is slowed down: longer than a pause of a broker's collector."""
AGAIN: Final = 2
"""The same for a further cut."""
QUIET: Final = 2.0
"""The target is this many times the quiet latency at least."""
HOLD: Final = 0.8
"""The part of the target above which the level stays."""
GENTLEST: Final = 0.95
HARDEST: Final = 0.6
"""What is left by a cut, of what the broker has done, until its queue is short again."""
REFILL: Final = 0.95
"""What of it goes on then."""
RISES: Final = 1.3
"""A cut is given the time that the queue takes to get short, unless the latency rises to this many times what it was."""
STEADY: Final = 1.15
"""The level grows fast only while the latency is at most this many times the usual one."""
DESPERATE: Final = 2
"""Cuts in a row after which each leaves a quarter: the latency does not follow."""
NEAR: Final = 0.97
BEYOND: Final = 1.03
"""Around the level at which the broker was overloaded last, the level grows slowly."""
SLOW: Final = 0.01
FAST: Final = 0.05
"""How much the level grows in a second there, and elsewhere; beyond, twice as much each second, up to `FASTER`, or `FASTEST` where
the broker is well again."""
FASTER: Final = 0.25
FASTEST: Final = 1.0
HELD: Final = 0.7
"""Who uses this part of the level or more is taken for held by it: what it asks for is not known."""
FREE: Final = 5
"""Seconds in which nobody is held, after which all are let go."""
STEEPEST: Final = 0.4
"""Seconds by which a queue gets longer or shorter in a second at most, as far as that is believed."""
AT_ONCE: Final = 1.2
"""Seconds that no queue gets shorter by in a second at the rate that the broker had: it is well again if its latency does."""
NOISE: Final = 0.1
"""The part of a latency by which it comes and goes without a reason."""
LONGEST_DRAIN: Final = 30.0
"""Seconds that a queue is given at most."""
WELL: Final = 3
"""Seconds with less than half of the latency that the broker had under this load, after which it is taken for well."""
SETTLES: Final = 5
"""Seconds after a cut until that is known."""
MOMENT: Final = 0.004
"""Seconds that latencies differ by at least, to tell anything."""


class Seen(NamedTuple):
    """What a user did in the last second: bytes per second, and how long the quickest tenth of its answers took at most, None
    without answers."""

    usage: float
    latency: float | None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Goal:
    """`target`: seconds that answers may take. `least`: bytes per second that a user of weight 1 always has. Both above 0."""

    target: float
    least: float


class Controller:
    """Of one broker. `level`: bytes per second that a user of weight 1 may have; infinite while the broker is well."""

    __slots__ = (
        "_at_floor",
        "_cut_at",
        "_cuts",
        "_edge",
        "_free",
        "_growth",
        "_high",
        "_last",
        "_patience",
        "_quiet",
        "_rise",
        "_settled",
        "_since",
        "_usual",
        "_well",
        "goal",
        "level",
    )

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.level = inf
        self._quiet = 0.0
        self._high = 0
        self._last = 0.0
        """the latency a second ago"""
        self._rise = 0.0
        """how much longer it is now"""
        self._let_go()

    def _let_go(self) -> None:
        self.level = inf
        self._edge = 0.0
        """the level at which the broker was overloaded last"""
        self._settled = False
        """is that known?"""
        self._usual = 0.0
        """the latency that it has near that"""
        self._growth = 2 * SLOW
        self._cuts = self._free = self._well = self._at_floor = 0
        self._cut_at = 0.0
        """the latency at the last cut"""
        self._since = 0
        """seconds of growth since the last cut"""
        self._patience = 0
        """seconds in which the queue may get short"""

    @property
    def target(self) -> float:
        """Seconds above which the broker is overloaded."""
        return max(self.goal.target, QUIET * self._quiet)

    def is_high(self, users: Sequence[Seen]) -> bool:
        """The same second as of a broker that nobody is slowed down for: has the latency been too high for long enough?"""
        latency = latency_of(users)
        self._high = self._high + 1 if latency is not None and latency > self.goal.target else 0
        return self._high >= SUSTAINED

    def step(self, users: Sequence[Seen]) -> float:
        """A second has passed, in which users did this; the level for the next."""
        latency = latency_of(users)
        if latency is not None:
            self._quiet = min(self._quiet, latency)
            self._rise, self._last = latency - self._last, latency
        high = latency is not None and latency > self.target
        self._high = self._high + 1 if high else 0
        if self.level == inf:
            if latency is not None and self._high >= SUSTAINED:
                self._cuts = 0
                self._cut(users, latency)
            return self.level
        self._free = self._free + 1 if not high and not any(held(user, self.level) for user in users) else 0
        if self._free >= FREE:
            self._let_go()
        elif latency is not None and high:
            self._patience -= 1
            if self._high >= AGAIN and (self._patience < 0 or latency > RISES * self._cut_at):
                self._cut(users, latency)
        elif latency is not None:
            self._grow(users, latency)
        return self.level

    def _cut(self, users: Sequence[Seen], latency: float) -> None:
        self._cuts += 1
        self._growth, self._well = 2 * SLOW, 0
        self._since = 0
        if self.level <= self.goal.least:
            self._at_floor += 1
            if self._at_floor >= SUSTAINED:  # it does not help
                self._let_go()
                self._quiet, self._high = latency, 0
            return
        # A queue of Q bytes takes Q / rate to be done, so it gets longer by (what goes on - rate) / rate.
        rise = self._rise if abs(self._rise) > NOISE * latency else 0.0
        done = sum(user.usage for user in users) / (1.0 + max(min(rise, STEEPEST), -STEEPEST))
        desperate = self._cuts > DESPERATE
        part = 0.25 if desperate else max(HARDEST, GENTLEST - 0.1 * (latency / self.target - 1.0))
        drain = 0.0 if desperate else min((latency - self.target) / (1.0 - part), LONGEST_DRAIN)
        self._cut_at, self._patience = latency, 1 + ceil(drain)
        level = min(_settled_level(users, part * done, self.level), self.level * GENTLEST)
        if self._cuts == 1:  # what is seen at further ones follows from the first
            self._edge = fair_level(users, done, level)
        self.level = max(level, self.goal.least)

    def _grow(self, users: Sequence[Seen], latency: float) -> None:
        if self._cuts:  # the queue is short again
            self.level = max(self.level, REFILL * self._edge)
            if self._rise < -AT_ONCE:
                self._is_well(latency)
        self._cuts = self._at_floor = self._patience = 0
        if latency > HOLD * self.target or not any(held(user, self.level) for user in users):
            return
        self._look_whether_well(latency)
        if self._usual and latency > STEADY * self._usual + MOMENT:
            self._growth = 2 * SLOW
            if self._rise <= MOMENT:
                self.level *= 1.0 + SLOW
            return
        if self.level < NEAR * self._edge:
            self.level = min(self.level * (1.0 + FAST), NEAR * self._edge)
        elif self.level < BEYOND * self._edge:
            self.level *= 1.0 + SLOW
        else:
            self.level *= 1.0 + self._growth
            self._growth = min(2.0 * self._growth, FASTER if self._edge else FASTEST)

    def _look_whether_well(self, latency: float) -> None:
        """Where it does much better than it did under this load, what it could do before does not matter any more."""
        self._since += 1
        if not self._usual or (not self._settled and self._since <= SETTLES):
            self._usual = min(self._usual or latency, latency)
            return
        self._settled = True
        if latency >= 0.5 * self._usual or self._usual - latency < MOMENT:
            self._well = 0
            self._usual = min(self._usual * (1.0 + SLOW), latency)
        else:
            self._well += 1
            if self._well >= WELL and self._edge:
                self._is_well(latency)

    def _is_well(self, latency: float) -> None:
        self._edge, self._growth, self._usual = 0.0, 10 * FAST, latency


def latency_of(users: Sequence[Seen]) -> float | None:
    """Of the broker: the lower median over users; None where nobody was answered."""
    latencies = sorted(user.latency for user in users if user.latency is not None)
    return latencies[(len(latencies) - 1) // 2] if latencies else None


def held(user: Seen, level: float) -> bool:
    """Does the level hold this user back?"""
    return user.usage >= HELD * level * user.weight


def _settled_level(users: Sequence[Seen], total: float, level: float) -> float:
    """The same where those who are then held would take any more."""
    for _ in range(len(users)):
        lower = fair_level(users, total, level)
        if lower >= level:
            break
        level = lower
    return level


def fair_level(users: Sequence[Seen], total: float, level: float = inf) -> float:
    """The level at which users get `total` bytes per second together (weighted max-min fairness): who uses less than its share has
    what it uses, and who is held by the present `level` would take any more. Infinite if they use less than that."""
    asked = sorted((inf if held(user, level) else user.usage / user.weight, user.weight) for user in users)
    left, weight = total, sum(user.weight for user in users)
    for usage, its in asked:
        if weight <= 0 or usage * weight >= left:
            break
        left -= usage * its
        weight -= its
    else:
        return inf
    return left / weight if weight > 0 else inf
