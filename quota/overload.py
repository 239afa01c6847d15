"""How much users may have under way at a broker that cannot keep up. Pure: what was seen in a second in, a window out.

A broker is overloaded when its answers to Produce requests take longer than the target for `SUSTAINED` seconds. The latency is what
most of an answer's time is queueing: of each user the tenth of its answers that came fastest, and of these the lower median over
users, so that neither one user's slow connection nor the bursts of one user decide.

The controller sets a window: bytes that a user of weight 1 may have under way at the broker. What waits in front of a broker is
what is under way, so with windows the latency follows from them at once, whatever the broker can do and however that changes; a
rate would have to be found, and each error of it would add up in the queue. The window follows the ratio of target and latency: as
FAST TCP does (Wei, Jin, Low, Hegde, "FAST TCP", IEEE/ACM ToN 2006), with a target delay as in Swift (Kumar et al., "Swift: Delay is
Simple and Effective for Congestion Control in the Datacenter", SIGCOMM 2020). A window below the size of a request is a pause
before it, also as in Swift, so that there is no least window but that of the least rate. It gets larger by how long half of the
answers took: where a broker pauses for a part of a second, the quickest tenth is of the other part, when its queue was short.

By Little's law what a user gets is its window by the latency, which is the same for all: equal windows are weighted max-min
fairness of rates. Who asks for less than a fair share has less under way than its window, and is not touched: on average, as
what it could not send while the broker was slow it asks for at once. So who asked for less than `LITTLE` of its share in a second,
and was not held, may send as much in the next whatever is under way.

Windows do not help where the latency has other reasons. Where it stays high although everybody is at the least rate, that latency
is taken for the quiet one of the broker, all are let go, and twice as much is the target from then on, until a lower latency is
seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, log
from typing import Final, NamedTuple

SUSTAINED: Final = 3
"""Seconds for which the latency is too high before anybody is slowed down: longer than a pause of a broker's collector."""
QUIET: Final = 2.0
"""The target is this many times the quiet latency at least."""
AIM: Final = 0.8
"""The part of the target that the latency is kept at, so that it comes and goes below the target."""
SMALLEST, LARGEST = 0.4, 2.0
"""What a window is multiplied with in a second, at least and at most."""
DAMPED: Final = 0.7
"""The power of the ratio that a window follows: what is measured in a second is partly of the window before."""
LITTLE: Final = 0.5
"""The part of a share that a user who asks for no more may always send."""
FREE: Final = 5
"""Seconds in which nobody is held, after which all are let go."""


class Seen(NamedTuple):
    """What a user did in the last second: bytes per second, and how long the quickest tenth of its answers took at most, None
    without answers. `held`: a request of it had to wait for its window. `half`: how long half of its answers took."""

    usage: float
    latency: float | None
    weight: float = 1.0
    held: bool = False
    half: float | None = None


@dataclass(frozen=True, slots=True)
class Goal:
    """`target`: seconds that answers may take. `least`: bytes per second that a user of weight 1 always has. Both above 0."""

    target: float
    least: float


class Controller:
    """Of one broker. `window`: bytes that a user of weight 1 may have under way; infinite while the broker is well."""

    __slots__ = ("_at_floor", "_free", "_high", "_old", "_quiet", "goal", "latency", "window")

    def __init__(self, goal: Goal) -> None:
        self.goal = goal
        self.window = inf
        self.latency = 0.0
        """in the last second with answers"""
        self._quiet = 0.0
        self._high = self._free = self._at_floor = 0
        self._old = 0.0
        """seconds for which answers are to requests that went on before the window was made smaller"""

    @property
    def target(self) -> float:
        """Seconds above which the broker is overloaded."""
        return max(self.goal.target, QUIET * self._quiet)

    @property
    def rate(self) -> float:
        """Bytes per second that a user of weight 1 gets by its window; infinite without one."""
        return self.window / self.latency if self.window < inf else inf

    @property
    def share(self) -> float:
        """Bytes per second that a user of weight 1 has at the latency that is aimed at; infinite without a window."""
        return self.window / min(max(self.latency, 1e-6), AIM * self.target)

    def step(self, users: Sequence[Seen], *, observed: bool = False) -> float:
        """A second has passed, in which users did this; the window for the next. `observed`: nobody is held, so what would be
        follows from what users do."""
        latency = latency_of(users)
        if latency is not None:
            self.latency = max(latency, 1e-6)
            self.window = max(self.window, self._least)
            self._quiet = min(self._quiet, latency)
        high = latency is not None and latency > self.target
        self._high = self._high + 1 if high else 0
        if self.window == inf or (observed and self._high >= SUSTAINED):
            if self._high >= SUSTAINED:
                self._begin(users)
            return self.window
        held = not observed and any(user.held for user in users)
        self._free = self._free + 1 if not high and not held else 0
        if self._free >= FREE:
            self._let_go()
        elif latency is not None and not observed and (high or held):
            self._follow(_median(user.half for user in users) or latency, high=high)
        return self.window

    def agree(self, windows: Iterable[float]) -> None:
        """Other proxies have these windows for the same broker: all take the mean (geometric)."""
        logs = [log(window) for window in windows if 0 < window < inf]
        if self.window < inf and logs:
            self.window = exp((log(self.window) + fsum(logs)) / (1 + len(logs)))

    def _begin(self, users: Sequence[Seen]) -> None:
        """What is under way is what goes on by the time that it takes; so much less of it as the latency has to get shorter."""
        under_way = [(user.usage * self.latency, user.weight) for user in users]
        total = fsum(amount for amount, _ in under_way)
        self.window = max(fair_share(under_way, total * AIM * self.target / self.latency), self._least)
        self._free = self._at_floor = 0
        self._old = self.latency

    @property
    def _least(self) -> float:
        return self.goal.least * self.latency

    def _follow(self, half: float, *, high: bool) -> None:
        self._old -= 1.0
        aim = AIM * self.target
        if self.latency <= aim:
            ratio = max(aim / max(half, self.latency), 1.0)
        elif self._old > 0.0:  # as TCP gets smaller once in a round trip
            return
        else:
            ratio, self._old = aim / self.latency, self.latency
        self.window *= min(max(ratio**DAMPED, SMALLEST), LARGEST)
        if self.window > self._least:
            self._at_floor = 0
            return
        self.window = self._least
        self._at_floor += high
        if self._at_floor >= SUSTAINED:  # it does not help
            self._quiet, self._high = self.latency, 0
            self._let_go()

    def _let_go(self) -> None:
        self.window = inf
        self._free = self._at_floor = 0


def latency_of(users: Sequence[Seen]) -> float | None:
    """Of the broker: the lower median over users; None where nobody was answered."""
    return _median(user.latency for user in users)


def _median(latencies: Iterable[float | None]) -> float | None:
    known = sorted(latency for latency in latencies if latency is not None)
    return known[(len(known) - 1) // 2] if known else None


def fair_share(wants: Sequence[tuple[float, float]], total: float) -> float:
    """What one of weight 1 may have so that all together have `total` (weighted max-min fairness): who wants less than its share
    has what it wants. `wants`: what each wants, and its weight. Infinite if they want no more than that."""
    left, weight = total, fsum(weight for _, weight in wants)
    for want, its in sorted((want / its, its) for want, its in wants):
        if want * weight >= left:
            return left / weight
        left -= want * its
        weight -= its
    return inf
