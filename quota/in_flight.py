"""What a user has under way at one broker, within a window. In: sizes of requests, answers, the time. Out: which request may go on.

A request within the window goes on at once; others wait in the order in which they came, whatever connection they came on, and go
on as answers come. One may always be under way, however small the window; what is larger than the window is owed, and there is a
pause before the next (`pause`), so that on average as much is under way as the window says. So one large request of a user who
asks for little goes on at once.

Of a user who asks for little, `allowance` bytes of a second go on at once whatever is under way: it may ask for some of it late."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf

from quota.entity import Entity

Wake = Callable[[float], None]


class Passage:
    """One request on its way through a window. `going`: it may go on, or has; else `wake` is called with the time when it may."""

    __slots__ = ("_over", "_wake", "_window", "going", "size")

    def __init__(self, window: Window, size: float, wake: Wake) -> None:
        self._window, self.size, self._wake = window, size, wake
        self.going = self._over = False

    @property
    def over(self) -> bool:
        return self._over

    def go(self, now: float) -> None:
        """It may go on; the window calls this."""
        self.going = True
        self._wake(now)

    def end(self, now: float) -> None:
        """It was answered, or never will be. Safe to call again."""
        if not self._over:
            self._over = True
            self._window.ended(self, now)


class Window:
    """Of one user at one broker. `size`: bytes that may be under way, infinite where nothing is limited. `latency`: seconds that
    its broker takes now. `observed`: nothing waits, though more than `size` is under way."""

    __slots__ = (
        "__weakref__",
        "_owed",
        "_paid_at",
        "_queue",
        "allowance",
        "held",
        "latency",
        "limited",
        "observed",
        "owner",
        "sent",
        "size",
        "under_way",
        "waiting",
        "weight",
    )

    def __init__(self, owner: Entity, weight: float = 1.0) -> None:
        self.owner, self.weight = owner, weight
        self.size = inf
        self.limited = False
        self.latency = 0.0
        self.observed = False
        self.sent = 0.0
        """bytes that went on since the owner of this object set it back"""
        self.allowance = 0.0
        """bytes that go on at once since then, though there is no room"""
        self.held = False
        """did a request wait since then? Who lets one pause says so, too"""
        self.under_way = 0.0
        """bytes; known only of requests that went on while there was a limit"""
        self.waiting = 0.0
        self._owed = self._paid_at = 0.0
        self._queue: deque[Passage] = deque()

    def resize(self, size: float, latency: float, now: float) -> None:
        """So many bytes may be under way from now on."""
        self._pay(now)
        self.size, self.limited, self.latency = size, size < inf, latency
        self.advance(now)

    @property
    def wants(self) -> float:
        """Bytes that are under way, or wait."""
        return self.under_way + self.waiting

    def enter(self, size: float, wake: Wake) -> Passage:
        """A request of so many bytes came. `wake` may be called once, if it has to wait."""
        passage = Passage(self, size, wake)
        room = self.has_room(size)
        self.held |= not room
        if room or self.observed:
            self._admit(passage)
        else:
            self._queue.append(passage)
            self.waiting += size
        return passage

    def has_room(self, size: float) -> bool:
        """May a request of so many bytes go on?"""
        return not self.waiting and (self._fits(size) or self.is_little(size))

    def is_little(self, size: float = 0.0) -> bool:
        """May so many bytes more be sent at once, by the allowance?"""
        return 0.0 < self.allowance >= self.sent + size

    def wait(self, size: float) -> float:
        """Seconds that one will wait for room, at the present rate."""
        return 0.0 if self.has_room(size) else max(self.waiting + self.under_way + size - self.size, 0.0) * self.latency / self.size

    def pause(self, now: float, size: float = 0.0) -> float:
        """Seconds that a request waits because of what is owed. `size`: its bytes, 0 for one that has entered."""
        if self.is_little(size):
            return 0.0
        self._pay(now)
        return self._owed * self.latency / self.size if self.limited else 0.0

    def owe(self, size: float, now: float, *, answered: bool = True) -> None:
        """A request goes on. What is larger than the window is owed for as long as all of it has at the present rate, and what is
        not `answered`, too, as nobody knows for how long it is under way."""
        if self.limited and not self.is_little() and (size > self.size or not answered):
            self._pay(now)
            self._owed += size

    def _pay(self, now: float) -> None:
        """By now, at the rate of this window."""
        if self._owed:
            paid = (now - self._paid_at) * self.size / self.latency if self.limited and self.latency > 0 else inf
            self._owed = self._owed - paid if self._owed - paid >= 1.0 else 0.0
        self._paid_at = now

    def ended(self, passage: Passage, now: float) -> None:
        """A passage is over."""
        if passage.going:
            self.under_way -= passage.size
            self.advance(now)
        else:
            self.waiting -= passage.size

    def advance(self, now: float) -> None:
        """Let those go on that have room now."""
        queue = self._queue
        while queue and (queue[0].over or self._fits(queue[0].size) or self.is_little(queue[0].size)):
            self._next(now)

    def let_go(self, least: float, now: float) -> None:
        """So many bytes go on at least that wait, whatever was answered."""
        while self._queue and (least > 0 or self._queue[0].over):
            least -= self._next(now)

    def _next(self, now: float) -> float:
        passage = self._queue.popleft()
        if passage.over:
            return 0.0
        self.waiting -= passage.size
        self._admit(passage)
        passage.go(now)
        return passage.size

    def _admit(self, passage: Passage) -> None:
        passage.going = True
        self.under_way += passage.size
        self.sent += passage.size

    def _fits(self, size: float) -> bool:
        return self.under_way <= 0 or self.under_way + size <= self.size
