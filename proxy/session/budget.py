"""The memory that all sessions of a proxy may hold together, and how many connections there may be. Pure bookkeeping.

Memory: what is held is charged as it arrives, not as a length claims it, to the principal of the connection. Each principal has
a share that others cannot use up (`quota/fair_share.py`). Beyond its share, connections of a principal that want to read more
wait, but for one, which goes on until it is done: so requests that are half there can never lock each other out. A connection
that holds memory and gets no further while others of its principal wait is closed, by its session. Connections that are not let
in yet share one account, and none of them goes on beyond its share."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol

from quota.fair_share import FairShare

ANONYMOUS = "ANONYMOUS"
STRANGERS: Final = ""
"""The account of connections that are not let in: no principal has this name."""
SMALL: Final = 1 << 16


class Waiter(Protocol):
    """Somebody who stopped reading."""

    def memory_free(self) -> None:
        """There is room again."""


class Budget:
    """`total` and `held` in bytes. Operators may change `total` at any time."""

    def __init__(self, total: int) -> None:
        self._share = FairShare(total)
        self._waiting: dict[str, dict[Waiter, None]] = {}
        self._ahead: dict[str, Waiter] = {}

    @property
    def total(self) -> int:
        return self._share.total

    @total.setter
    def total(self, total: int) -> None:
        self._share.total = total

    @property
    def held(self) -> int:
        return self._share.held

    @property
    def small(self) -> int:
        """Bytes that a session may hold however short memory is: less than it reads at once."""
        return min(SMALL, self.total // 1024)

    @property
    def waiting(self) -> int:
        """Sessions that read nothing more for want of memory."""
        return sum(map(len, self._waiting.values()))

    def others_wait(self, principal: str) -> bool:
        """True if connections of this principal wait for memory."""
        return principal in self._waiting

    def charge(self, principal: str, size: int) -> None:
        """This principal holds `size` bytes more, or fewer when negative."""
        self._share.charge(principal, size)
        if size < 0 and self._waiting:
            self._wake()

    def has_to_wait(self, who: Waiter, principal: str) -> bool:
        """True if this connection must not read on. It is told when it may."""
        if self._share.has_room(principal, 0) or self._ahead.get(principal) is who:
            return False
        if principal != STRANGERS and principal not in self._ahead:
            self._ahead[principal] = who
            return False
        self._waiting.setdefault(principal, {})[who] = None
        return True

    def finished(self, who: Waiter, principal: str) -> None:
        """This connection holds nothing any more, or ended, or belongs to another principal from now on."""
        if principal in self._waiting:
            self._waiting[principal].pop(who, None)
            self._drop_if_empty(principal)
        if self._ahead.get(principal) is who:
            del self._ahead[principal]
            self._wake()

    def _wake(self) -> None:
        for principal in list(self._waiting):
            while principal in self._waiting:
                room = self._share.has_room(principal, 0)
                if not room and (principal == STRANGERS or principal in self._ahead):
                    break
                who = next(iter(self._waiting[principal]))
                del self._waiting[principal][who]
                self._drop_if_empty(principal)
                if not room:
                    self._ahead[principal] = who
                who.memory_free()

    def _drop_if_empty(self, principal: str) -> None:
        if not self._waiting[principal]:
            del self._waiting[principal]


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
