"""The memory that all sessions of a proxy may hold together, and how many connections there may be. Pure bookkeeping.

Memory: what is held is charged as it arrives, not as a length claims it, to the principal of the connection. Each principal has
a share that others cannot use up (`quota/fair_share.py`). Beyond its share, connections of a principal that want to read more
wait, but for one, which goes on until it is done: so requests that are half there can never lock each other out. A connection
that holds memory and gets no further while others of its principal wait is closed, by its session. Connections that are not let
in yet share one account, and none of them goes on beyond its share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from quota.fair_share import FairShare

ANONYMOUS = "ANONYMOUS"
STRANGERS: Final = ""
"""The account of connections that are not let in: no principal has this name."""
UNLOCATED: Final = ""
"""The address of connections whose PROXY protocol header has not come yet."""
SMALL: Final = 1 << 16
ADDRESS, USER, USERS = "address", "user", "users"
"""What is counted at all workers: connections of an address, of a user, and of all users."""
MEMORY: Final = "memory"
"""What is held for a principal at all workers, in bytes."""
LOOK_AFTER: Final = 0.02
"""Seconds after which it is looked whether other workers gave memory back."""


class Waiter(Protocol):
    """Somebody who stopped reading."""

    def memory_free(self) -> None:
        """There is room again."""


class MemoryOfOthers(Protocol):
    """What the workers of one proxy know of the memory that each of them holds, in bytes."""

    @property
    def workers(self) -> int:
        """All of them, this one too."""

    def tell_held(self, held: int) -> None:
        """Write what this worker holds now."""

    def held_elsewhere(self) -> int:
        """What the others hold."""

    def tell(self, kind: str, name: str, count: int) -> None:
        """Write what this worker holds now for a principal (`MEMORY`)."""

    def elsewhere(self, kind: str, name: str) -> int:
        """What the others hold for it."""


class Budget:
    """`total` and `held` in bytes. Operators may change `total` at any time.

    With workers, `total` is for all of them together. Each tells the others what it holds before it looks whether there is room:
    all of it exactly, that of a principal in steps of a thousandth of `total`, rounded down, as it changes with every read. `later`
    calls a function after some seconds: what others give back is looked for while somebody waits. One of each principal goes on at
    each worker."""

    def __init__(
        self,
        total: int,
        others: MemoryOfOthers | None = None,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._share = FairShare(total)
        self._others, self._later = others, later
        self._step = max(total // 1024, 1)
        self._looks = False
        """It will be looked for what others gave back."""
        self._waiting: dict[str, dict[Waiter, None]] = {}
        self._ahead: dict[str, Waiter] = {}

    @property
    def workers(self) -> int:
        """Those that share it."""
        return 1 if self._others is None else self._others.workers

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
        if self._others is not None:
            self._tell(self._others, principal, size)
        if size < 0 and self._waiting:
            self._wake()

    def _tell(self, others: MemoryOfOthers, principal: str, size: int) -> None:
        """This principal holds `size` bytes more, or fewer, than others were told."""
        held, step = self._share.held_by(principal), self._step
        if (steps := held // step) != (held - size) // step:
            others.tell(MEMORY, principal, steps * step)
        others.tell_held(self._share.held)

    def _has_room(self, principal: str) -> bool:
        """True if this principal may hold more."""
        share, others = self._share, self._others
        if others is None:
            return share.has_room(principal, 0)
        elsewhere = others.held_elsewhere()
        if share.has_room_for_all(elsewhere):
            return True
        return share.has_room(principal, 0, elsewhere=others.elsewhere(MEMORY, principal), all_elsewhere=elsewhere)

    def has_to_wait(self, who: Waiter, principal: str) -> bool:
        """True if this connection must not read on. It is told when it may."""
        if self._has_room(principal) or self._ahead.get(principal) is who:
            return False
        if principal != STRANGERS and principal not in self._ahead:
            self._ahead[principal] = who
            return False
        self._waiting.setdefault(principal, {})[who] = None
        self._look_later()
        return True

    def _look_later(self) -> None:
        if self._later is not None and not self._looks:
            self._looks = True
            self._later(LOOK_AFTER, self._look)

    def _look(self) -> None:
        """Others may have given memory back."""
        self._looks = False
        self._wake()
        if self._waiting:
            self._look_later()

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
                room = self._has_room(principal)
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


class Guest:
    """One connection that is counted. `evict` closes it."""

    __slots__ = ("evict", "here", "host", "waits")

    def __init__(self, host: str, evict: Callable[[], None]) -> None:
        self.host, self.evict = host, evict
        self.here = True
        """Is it counted still?"""
        self.waits = True
        """It has not been let in yet."""


class OtherWorkers(Protocol):
    """What the workers of one proxy know of each other's connections: counts by kind (`ADDRESS`, `USER`, `USERS`) and name."""

    @property
    def workers(self) -> int:
        """All of them, this one too."""

    def tell(self, kind: str, name: str, count: int) -> None:
        """Write the present count of this worker."""

    def elsewhere(self, kind: str, name: str) -> int:
        """Those of the other workers."""


class NoOtherWorkers:
    """A proxy that is one process."""

    workers = 1

    def tell(self, kind: str, name: str, count: int) -> None: ...

    def elsewhere(self, kind: str, name: str) -> int:  # noqa: ARG002
        return 0


class Census:
    """How many connections there are: in total, by address of the client, by user. A limit of None is none.

    A connection that has not been let in, as it has not logged in, does not keep others out: at the limit, a new connection
    replaces the oldest of these, of the address that has most of them. Those that were let in stay. Each user may have a share
    of all connections (`quota.fair_share`), except `ANONYMOUS`, which is every client of a cluster without logins.

    With workers, `capacity` is the part of this one; addresses and users are counted at all of them. Each tells the others of a
    connection before it looks whether there is room, so no limit is exceeded; where two workers take one at the same time and one
    would fit, neither may be let in."""

    def __init__(
        self,
        capacity: int,
        per_address: int | None = None,
        per_principal: int | None = None,
        others: OtherWorkers | None = None,
    ) -> None:
        self.capacity, self.per_address, self.per_principal = capacity, per_address, per_principal
        self._others: OtherWorkers = NoOtherWorkers() if others is None else others
        self._by_address: Counter[str] = Counter()
        self._waiting: dict[str, dict[Guest, None]] = {}
        """by address, the oldest first: those that were not let in"""
        self._by_number: dict[int, dict[str, None]] = {}
        """addresses by how many of these they have"""
        self._largest = 0
        """the largest of these numbers"""
        self._shares = FairShare(capacity)
        self.elsewhere: Counter[str] = Counter()
        """connections of users at other proxies, with their workers and those of this one, as far as they have told"""
        self.count = 0

    def arrive(self, host: str, evict: Callable[[], None]) -> Guest | str:
        """A connection came from there: counted, or the limit that it is over, by its setting's name. `evict` is called at most
        once, within a later `arrive` or `move`, when it has to close at once and is counted no more."""
        limit = self._full(host)
        if limit is not None:
            return limit
        guest = Guest(host, evict)
        self._count(guest)
        return guest

    def move(self, guest: Guest, host: str) -> str | None:
        """A connection that was not let in turns out to be from another address (PROXY protocol): None, or the limit that it is
        over; then it is counted no more."""
        if not guest.here:
            return "max_connections"
        self.leave(guest)
        limit = self._full(host)
        if limit is None:
            guest.host, guest.here = host, True
            self._count(guest)
        return limit

    def let_in(self, guest: Guest) -> None:
        """Its login was accepted, or there is none to be: it stays for as long as it wants. Again is nothing."""
        if guest.here and guest.waits:
            guest.waits = False
            self._wait_no_more(guest)

    def leave(self, guest: Guest) -> None:
        """A connection ended. Of one that is not counted any more that is nothing."""
        if guest.here:
            self._remove(guest)
            self._tell_address(guest.host, self._by_address[guest.host])

    def _remove(self, guest: Guest) -> None:
        guest.here = False
        self.count -= 1
        _less(self._by_address, guest.host)
        if guest.waits:
            self._wait_no_more(guest)

    def identify(self, before: str, user: str) -> bool:
        """A connection turned out to be this user's; whether there may be one more of them. It is counted either way."""
        self.forget(before)
        if user == ANONYMOUS:
            return True
        others, shares = self._others, self._shares
        shares.total = self.capacity * others.workers
        self._charge(user, 1)
        here, there = shares.held_by(user), others.elsewhere(USER, user)
        room = shares.has_room(user, 0, elsewhere=there, all_elsewhere=others.elsewhere(USERS, ""))
        return room and (self.per_principal is None or here + max(there, self.elsewhere[user]) <= self.per_principal)

    def by_user(self) -> dict[str, int]:
        """Connections by user."""
        return self._shares.by_principal()

    def forget(self, user: str) -> None:
        """A connection of this user ended."""
        if user != ANONYMOUS:
            self._charge(user, -1)

    def _charge(self, user: str, connections: int) -> None:
        """A user has so many connections more."""
        self._shares.charge(user, connections)
        self._others.tell(USER, user, self._shares.held_by(user))
        self._others.tell(USERS, "", self._shares.held)

    def _tell_address(self, host: str, connections: int) -> None:
        if host != UNLOCATED:
            self._others.tell(ADDRESS, host, connections)

    def _full(self, host: str) -> str | None:
        """The limit that one more connection from there would be over, by its setting's name, once others have made room."""
        self._tell_address(host, self._by_address[host] + 1)
        limit = None
        if self._crowded(host) and not self._make_room(host, host):
            limit = "max_connections_per_address"
        elif self.count >= self.capacity and not (
            self._largest and self._make_room(next(iter(self._by_number[self._largest])), host)
        ):
            limit = "max_connections"
        if limit is not None:
            self._tell_address(host, self._by_address[host])
        return limit

    def _crowded(self, host: str) -> bool:
        """True if there may be no further connection from there."""
        if self.per_address is None or host == UNLOCATED:
            return False
        return self._by_address[host] + self._others.elsewhere(ADDRESS, host) >= self.per_address

    def _make_room(self, host: str, coming: str) -> bool:
        """Close the oldest connection from there that was not let in, for one that comes from `coming`."""
        waiting = self._waiting.get(host)
        if not waiting:
            return False
        oldest = next(iter(waiting))
        self._remove(oldest)
        if host != coming:  # else its place is taken: others must not see it free meanwhile
            self._tell_address(host, self._by_address[host])
        oldest.evict()
        return True

    def _count(self, guest: Guest) -> None:
        self.count += 1
        self._by_address[guest.host] += 1
        self._tell_address(guest.host, self._by_address[guest.host])
        waiting = self._waiting.setdefault(guest.host, {})
        waiting[guest] = None
        self._number(guest.host, len(waiting) - 1, len(waiting))

    def _wait_no_more(self, guest: Guest) -> None:
        waiting = self._waiting[guest.host]
        del waiting[guest]
        self._number(guest.host, len(waiting) + 1, len(waiting))
        if not waiting:
            del self._waiting[guest.host]

    def _number(self, host: str, before: int, now: int) -> None:
        """An address has one more or one less that was not let in."""
        if before:
            del self._by_number[before][host]
            if not self._by_number[before]:
                del self._by_number[before]
        if now:
            self._by_number.setdefault(now, {})[host] = None
        if now > self._largest or (before == self._largest and before not in self._by_number):
            self._largest = now


def _less(counter: Counter[str], key: str) -> None:
    counter[key] -= 1
    if counter[key] <= 0:
        del counter[key]
