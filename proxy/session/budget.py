"""The memory that all sessions of a proxy may hold together, and how many connections there may be. Pure bookkeeping.

Memory: what is held is charged as it arrives, not as a length claims it. Beyond the total, whoever wants to read more
waits, but for one, who goes on until it is done: so requests that are half there can never lock each other out. Who holds
memory and gets no further while others wait is closed, by its session. What is held at most is the total, one request, and
two reads for each connection, of which the first is not charged."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

ANONYMOUS = "ANONYMOUS"
SMALL: Final = 1 << 16


class Waiter(Protocol):
    """Somebody who stopped reading."""

    def memory_free(self) -> None:
        """There is room again."""


class Budget:
    """`total` and `held` in bytes. Operators may change `total` at any time."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.held = 0
        self._waiting: dict[Waiter, None] = {}
        self._ahead: Waiter | None = None

    @property
    def small(self) -> int:
        """Up to so many bytes a session may hold however short memory is: less than it reads at once."""
        return min(SMALL, self.total // 1024)

    @property
    def waiting(self) -> int:
        """Sessions that read nothing more for want of memory."""
        return len(self._waiting)

    def charge(self, size: int) -> None:
        """So many bytes more are held, or fewer when negative."""
        self.held += size
        if size < 0 and self._waiting:
            self._wake()

    def has_to_wait(self, who: Waiter) -> bool:
        """May this one not read on? Then it is told when it may."""
        if self.held <= self.total or self._ahead is who:
            return False
        if self._ahead is None:
            self._ahead = who
            return False
        self._waiting[who] = None
        return True

    def finished(self, who: Waiter) -> None:
        """This one holds nothing any more, or ended."""
        self._waiting.pop(who, None)
        if self._ahead is who:
            self._ahead = None
            self._wake()

    def _wake(self) -> None:
        while self._waiting and (self.held <= self.total or self._ahead is None):
            who = next(iter(self._waiting))
            del self._waiting[who]
            if self.held > self.total:
                self._ahead = who
            who.memory_free()


class Census:
    """How many connections there are: in total, by address of the client, by user. A limit of None is none."""

    def __init__(self, most: int, per_address: int | None = None, per_principal: int | None = None) -> None:
        self.most, self.per_address, self.per_principal = most, per_address, per_principal
        self._by_address: Counter[str] = Counter()
        self._by_user: Counter[str] = Counter()
        self.elsewhere: Counter[str] = Counter()
        """connections of users at other proxies, as far as they have told"""
        self.count = 0

    def arrive(self, host: str | None) -> str | None:
        """A connection came from there: the limit that it is over, by its setting's name, else None, and it is counted. None: where
        it is from is not known yet; it takes a place of all, and `locate` tells later."""
        if self.count >= self.most:
            return "max_connections"
        limit = None if host is None else self.locate(host)
        if limit is None:
            self.count += 1
        return limit

    def locate(self, host: str) -> str | None:
        """One that has arrived from nowhere is from there: the same for limits of an address."""
        if self.per_address is not None and self._by_address[host] >= self.per_address:
            return "max_connections_per_address"
        self._by_address[host] += 1
        return None

    def leave(self, host: str | None) -> None:
        """A connection that was counted ended."""
        self.count -= 1
        if host is not None:
            _less(self._by_address, host)

    def identify(self, before: str, user: str) -> bool:
        """A connection turned out to be this user's; whether there may be one more of them. It is counted either way."""
        self.forget(before)
        if user == ANONYMOUS:
            return True
        self._by_user[user] += 1
        return self.per_principal is None or self._by_user[user] + self.elsewhere[user] <= self.per_principal

    def by_user(self) -> dict[str, int]:
        """Connections by user."""
        return dict(self._by_user)

    def forget(self, user: str) -> None:
        """A connection of this user ended."""
        if user != ANONYMOUS:
            _less(self._by_user, user)


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
