"""A limit on Kafka's sampled rate (KIP-13, KIP-219; `Rate`, `SampledStat` and `ClientQuotaManager` of Apache Kafka).

What is recorded goes into samples: one starts with an amount, takes what comes within `seconds`, and counts until `number` x
`seconds` after the last of it. The rate is their sum S over the time E since the oldest of them began, as if there had been
`number` - 1 full ones at least: so a first burst of (`number` - 1) x `seconds` x rate passes. Within the limit is S <= rate x E;
over it, the throttle is S / rate - E, which equals (measured - rate) / rate x E.

One thing is not Kafka's. There, what stands above the limit is forgotten as soon as its sample passes, however much it was:
a client that records a minute's worth at once and is muted for less is free after 11 s. Here it is a debt, which is paid at the
rate as time passes and not otherwise. When it is paid, the window is that of somebody who has used exactly the rate for the whole
of it, up to that moment. So what is recorded by somebody who waits as told is the rate x time + the burst: exactly, if they
always have something to send, else that much at most. (Over a stretch that begins later, E may be nearly `number` + 1 samples,
as in Kafka, and the burst as long.) Under the limit, and for the first throttle, the figures are Kafka's.

In: amounts with monotonic seconds. Out: whether they are within the limit, and the seconds until they are."""

from __future__ import annotations

from math import inf
from typing import Final

MOST: Final = 1000
UNTIL_HEARD: Final = 0.02
"""Seconds to wait at most where the limit is passed only with what others are expected to charge: they are heard by then. Twice as
long after each further charge before they are heard, up to `LONGEST_UNHEARD`."""
LONGEST_UNHEARD: Final = 0.32
LENIENCY: Final = 2.0
"""What others are expected to charge is divided by this for the wait, so that what they leave can be used."""
_MOMENT: Final = 1e-6


class RateWindow:
    """One window. `rate` > 0 in amounts per second, infinite if it is only to be measured; `number` in 2 to `MOST` samples of
    `seconds` > 0; ValueError for others.

    >>> window = RateWindow(rate=100)
    >>> window.take(1000, now=0.0), window.take(1, now=0.0)
    (True, False)
    >>> window.record(200, now=0.0)
    >>> window.wait(0.0), window.wait(1.5), window.take(100, now=2.5), window.take(100, now=3.0)
    (2.0, 0.5, False, True)
    """

    __slots__ = (
        "_at",
        "_before",
        "_number",
        "_owed",
        "_past",
        "_patience",
        "_seconds",
        "_start",
        "charged",
        "expected",
        "fresh",
        "heard_soon",
        "last",
        "limit",
        "room",
        "until",
        "weight",
    )

    def __init__(self, rate: float, number: int = 11, seconds: float = 1.0) -> None:
        if not (rate > 0 and 2 <= number <= MOST and 0 < seconds < inf):
            raise ValueError(f"need a rate above 0 and 2 to {MOST} samples of more than 0 s, got {rate}, {number} of {seconds} s")
        self.limit = rate
        self._number, self._seconds = number, seconds
        self.room = -1.0
        """what may be taken before `until` without a look at the samples"""
        self.until = -inf
        """the end of the running sample, or when E or S becomes less, whichever is first"""
        self.fresh = 0.0
        """what is in the running sample"""
        self.charged = 0.0
        """all that was recorded and taken back here, and not learned of others; a caller that passes it on may set it to 0"""
        self.weight = 1.0
        """what is charged here is judged as this many times as much, as others are expected to charge meanwhile"""
        self.heard_soon = True
        """False if nobody tells what others charge: what is expected of them then counts like what was charged"""
        self._patience = UNTIL_HEARD
        self.expected = 0.0
        """what others are expected to have charged until `learn` says what is right, without what `charged` adds; in no sample"""
        self.last = -inf
        """when something was last put there"""
        self._start = -inf
        """when it began; -inf if there is none"""
        self._past: list[tuple[float, float, float]] = []
        """(start, time of its last amount, sum) of the samples before, the oldest first"""
        self._before = 0.0
        """their sum"""
        self._owed = 0.0
        """the debt as of `_at`; while there is one, there are no samples"""
        self._at = -inf

    def take(self, amount: float, now: float) -> bool:
        """Record an amount >= 0 if the rate is within the limit with it; else nothing is recorded."""
        counted = amount * self.weight
        if counted <= self.room and now < self.until:
            self.room -= counted
            self.fresh += amount
            self.charged += amount
            self.last = now
            return True
        return self._take(amount, now)

    def has_room(self, amount: float, now: float) -> bool:
        """Would `take` surely succeed? It may also where this is False: nothing is looked at that takes time."""
        return amount * self.weight <= self.room and now < self.until

    def record(self, amount: float, now: float) -> None:
        """Record an amount >= 0, whatever the rate is then."""
        self.charged += amount
        if self.only_expected(now):
            self._patience = min(self._patience * 2.0, LONGEST_UNHEARD)
        self._record(amount, now)

    def refund(self, amount: float, now: float) -> None:
        """So much of what was recorded last did not happen."""
        self.charged -= amount
        self._refund(amount, now)

    def take_charged(self) -> float:
        """What was charged here since the last time."""
        charged, self.charged = self.charged, 0.0
        self.expected += charged * (self.weight - 1.0)
        self.void()
        return charged

    def expect(self, weight: float, *, heard_soon: bool = True) -> None:
        """From now on what is charged here is judged as `weight` times as much. What was charged keeps its weight."""
        self.heard_soon = heard_soon
        self.expected += self.charged * (self.weight - weight)
        self.weight = weight
        self.void()

    def _record(self, amount: float, now: float) -> None:
        self._settle(now)
        if self._owed > 0:
            self._owed += amount
            return
        self._put(amount, now)
        over = self._before + self.fresh - self.limit * self._elapsed(now)
        if over > 0:
            self._clear()
            self._owed, self._at = over, now
        else:
            self._look(now)

    def _refund(self, amount: float, now: float) -> None:
        self._settle(now)
        if self._owed > 0:
            self._owed -= amount
            if self._owed > 0:
                return
            amount, self._owed = -self._owed, 0.0
            self._spread(self.limit * self._seconds, now)
        taken = min(amount, self.fresh)
        self.fresh -= taken
        left = amount - taken
        for i in range(len(self._past) - 1, -1, -1):
            start, last, total = self._past[i]
            taken = min(left, total)
            self._past[i] = start, last, total - taken
            left -= taken
        self._sum()

    def change(self, rate: float, now: float) -> None:
        """Another limit from now on. What was used stays used: up to the new limit if it was no debt, as it was allowed when it
        happened; debt stays debt, but for what a higher limit allows."""
        if not rate > 0:
            raise ValueError(f"need a rate above 0, got {rate}")
        self._settle(now)
        least = (self._number - 1) * self._seconds
        if self._owed > 0:
            used = self._owed + least * self.limit
            if rate > self.limit:
                self._owed = max(used - least * rate, 0.0)
            if self._owed <= 0:
                self._spread(used / (self._number - 1), now)
        else:
            used, allowed = self._before + self.fresh, rate * self._elapsed(now)
            if used > allowed:
                part = allowed / used
                self._past = [(start, last, total * part) for start, last, total in self._past]
                self.fresh *= part
                self._sum()
        self.limit = rate
        self.void()

    def fill(self, rate: float, now: float) -> None:
        """Become the window of somebody who has used so much per second for the whole of it."""
        self._owed = 0.0
        self._spread(rate * self._seconds, now)

    def learn(self, amount: float, now: float, expected: float = 0.0) -> None:
        """Record what was charged elsewhere, or, below 0, taken back there; so much was expected."""
        self._patience = UNTIL_HEARD
        self.expected -= expected
        if amount >= 0:
            self._record(amount, now)
        else:
            self._refund(-amount, now)
        self.void()  # so that `touch` is called for the next one

    def level(self, now: float) -> float:
        """What is in it: used within its samples, or, with a debt, that and what they hold at the limit. While E is longer than
        `number` samples, what may be used for the rest is not in it: a window that resumes this level has no less left for that."""
        self._settle(now)
        if self._owed > 0:
            return self._owed + self._full()
        used, longer = self._before + self.fresh, self._elapsed(now) - self._number * self._seconds
        return max(used - self.limit * longer, 0.0) if longer > 0 and self.limit < inf else used

    def resume(self, level: float, now: float) -> None:
        """Become a window with this level, as if it had come evenly; nothing happens if there is as much in it."""
        if level > self.level(now):
            allowed = self._full()
            self._spread(min(level, allowed) / (self._number - 1), now)
            if level > allowed:
                self._clear()
                self._owed, self._at = level - allowed, now

    def average(self, now: float) -> float:
        """Amounts per second."""
        self._settle(now)
        if self._owed > 0:
            return self.limit + self._owed / ((self._number - 1) * self._seconds)
        return (self._before + self.fresh) / self._elapsed(now)

    def wait(self, now: float) -> float:
        """Seconds until the rate is within the limit; 0 if it is. What others are only expected to charge makes the wait no longer
        than until they are heard."""
        surely = self._over(now)
        over = surely + self._guess()
        if over <= 0:
            return 0.0
        if not self.heard_soon:
            return over / self.limit
        return max(surely / self.limit, min(over / self.limit / LENIENCY, self._patience))

    def only_expected(self, now: float) -> bool:
        """True if only what others are expected to charge is over the limit, and they are heard soon."""
        guess = self._guess()
        return guess > 0 and self.heard_soon and -guess < self._over(now) <= 0

    def _over(self, now: float) -> float:
        """What is over the limit; below 0 what is left."""
        self._settle(now)
        return self._owed if self._owed > 0 else self._before + self.fresh - self.limit * self._elapsed(now)

    def _guess(self) -> float:
        """What others are expected to have charged."""
        return self.expected + self.charged * (self.weight - 1.0)

    def wait_for(self, rate: float, now: float) -> float:
        """Seconds until the measured rate is not above `rate`, if nothing more is recorded: when a sample passes. For windows
        without a limit."""
        if self.average(now) <= rate:
            return 0.0
        samples = [*self._past, (self._start, self.last, self.fresh)] if self._start > -inf else self._past
        left, keep = self._before + self.fresh, self._number * self._seconds
        for i, (_, last, total) in enumerate(samples):
            left -= total
            passed = last + keep
            oldest = samples[i + 1][0] if i + 1 < len(samples) else passed
            if left <= rate * self._since(oldest, passed + _MOMENT):  # E falls at full seconds, which rounding may miss
                return max(passed - now, 0.0)
        return 0.0

    def left(self, now: float) -> float:
        """What may still be recorded within the limit."""
        self._settle(now)
        return 0.0 if self._owed > 0 else max(self.limit * self._elapsed(now) - self._before - self.fresh, 0.0)

    def idle(self, now: float) -> bool:
        """Is nothing in it?"""
        self._settle(now)
        return self._owed <= 0 and self._before + self.fresh <= 0

    def void(self) -> None:
        """Look at the samples the next time."""
        self.room, self.until = -1.0, -inf

    def _take(self, amount: float, now: float) -> bool:
        self._settle(now)
        counted = amount * self.weight + self._guess()
        if self._owed > 0 or self._before + self.fresh + counted > self.limit * self._elapsed(now):
            return False
        self.charged += amount
        self._put(amount, now)
        self._look(now)
        return True

    def _settle(self, now: float) -> None:
        """Pay what time has paid, and drop samples that have passed."""
        if self._owed > 0:
            paid = self.limit * max(now - self._at, 0.0)
            if paid < self._owed:
                self._owed -= paid
                self._at = max(now, self._at)
                return
            self._spread(self.limit * self._seconds, self._at + self._owed / self.limit)
            self._owed = 0.0
        keep = self._number * self._seconds
        past = self._past
        if past and now - past[0][1] >= keep:
            while past and now - past[0][1] >= keep:
                past.pop(0)
            self._sum()
        if self._start > -inf and now - self.last >= keep:
            self._clear()

    def _put(self, amount: float, now: float) -> None:
        """Into the running sample, or the next."""
        if self._start == -inf or now - self._start >= self._seconds:
            if self._start > -inf:
                self._past.append((self._start, self.last, self.fresh))
                self._before += self.fresh
            self._start, self.fresh = now, 0.0
        self.fresh += amount
        self.last = max(self.last, now)

    def _look(self, now: float) -> None:
        """What may be taken at once from now on, and until when: E grows until then, so there is that much room at least."""
        oldest = self._past[0][0] if self._past else self._start
        self.room = self.limit * self._since(oldest, now) - self._before - self.fresh - self._guess()
        until = self._start + self._seconds
        passed = now - oldest
        if passed < (self._number - 1) * self._seconds:
            until = min(until, oldest + (passed // self._seconds + 1) * self._seconds)
        if self._past:
            until = min(until, self._past[0][1] + self._number * self._seconds)
        self.until = until

    def _full(self) -> float:
        """What full samples hold at the limit."""
        return self.limit * (self._number - 1) * self._seconds

    def _elapsed(self, now: float) -> float:
        """E."""
        oldest = self._past[0][0] if self._past else self._start
        return self._since(oldest if oldest > -inf else now, now)

    def _since(self, oldest: float, now: float) -> float:
        """Seconds since the oldest sample began, and those that are missing to all but one full samples."""
        passed = max(now - oldest, 0.0)
        missing = self._number - 1 - passed // self._seconds
        return passed + missing * self._seconds if missing > 0 else passed

    def _spread(self, each: float, end: float) -> None:
        """`each` in every one of the full samples, which ended at `end`. Each was filled evenly, so its last amount came when it
        ended: if the newest passed sooner than `number` samples after `end`, more than the rate could follow."""
        self._clear()
        for ago in range(self._number - 1, 0, -1):
            self._past.append((end - ago * self._seconds, end - (ago - 1) * self._seconds, each))
        self._sum()

    def _sum(self) -> None:
        self._before = sum([total for _, _, total in self._past])
        self.void()

    def _clear(self) -> None:
        """No samples."""
        self._past, self._before, self.fresh = [], 0.0, 0.0
        self._start = self.last = -inf
        self.void()
