"""Who owns which topics: how many topics and partitions each tenant and each user has. In: sizes of topics as brokers tell them,
who created a topic as far as that is known, topics that are asked for. Out: numbers by owner.

A topic belongs to the user that created it, where that is known, and to the tenant with the longest matching prefix, else to the
tenant of that user. Who created a topic is known of topics that brokers created for a request that passed this proxy, or another
one of its fleet, since this process started.

What is asked for is reserved until brokers tell of it, so that requests that come at the same time do not all find the same room.
A reservation counts for the tenant of its user, or the user alone if it has none: a user whom the brokers do not let create a topic
cannot keep others from creating theirs.

Memory: an entry for each topic; `MAX_RESERVED` reservations, of which each user has a share. Topics beyond the share are not
reserved, and count when brokers tell of them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from quota.entity import Entity
from quota.fair_share import FairShare
from quota.steps import finish_at_once
from quota.tenants import NO_TENANTS, Tenants, owner_of

RESERVED_FOR: Final = 30.0
"""Seconds after which a topic that was asked for is not coming."""
HEARD_FOR: Final = 60.0
"""Seconds for which topics of which another proxy told count, until this proxy hears of them from a broker."""
MAX_RESERVED: Final = 20_000
AT_ONCE: Final = 500
"""Topics that are counted anew in one step."""
SWEPT: Final = 1000
"""Reservations that one sweep looks at."""


class Owned(NamedTuple):
    """Topics and partitions."""

    topics: int = 0
    partitions: int = 0


class WantedTopic(NamedTuple):
    """What a request asks for: `partitions` more than the topic has; `new` if it is to be created."""

    name: str
    partitions: int
    new: bool

    @property
    def amount(self) -> Owned:
        return Owned(int(self.new), self.partitions)


class Reservation(NamedTuple):
    """A topic that was asked for. `group`: for whom it counts; None for all."""

    user: str
    group: Entity | None
    wanted: WantedTopic
    owners: tuple[Entity, ...]
    until: float


Receipt = dict[int, Reservation]
"""What was reserved for one request, by item."""


@dataclass(slots=True)
class _Sum:
    topics: int = 0
    partitions: int = 0

    def add(self, amount: Owned, sign: int) -> None:
        self.topics += sign * amount.topics
        self.partitions += sign * amount.partitions


@dataclass(slots=True)
class _Reserved:
    """What is reserved of one owner: by group, and for all."""

    of: dict[Entity | None, _Sum] = field(default_factory=dict)

    def add(self, group: Entity | None, amount: Owned, sign: int) -> None:
        known = self.of.setdefault(group, _Sum())
        known.add(amount, sign)
        if not (known.topics or known.partitions):
            del self.of[group]


def _tell_nobody(_user: str, _topic: str, _partitions: int, /) -> None: ...


class OwnedTopics:
    """Topics by owner. `tell`: called with the user, the name and the partitions of a topic that a broker created or enlarged for a
    request."""

    def __init__(self) -> None:
        self.tell: Callable[[str, str, int], None] = _tell_nobody
        self._tenants: Tenants = NO_TENANTS
        self._sizes: dict[str, int] = {}
        self._creators: dict[str, str] = {}
        self._sums: dict[Entity, _Sum] = {}
        self._before: Tenants | None = None
        """the tenants that `_sums` are of while topics are counted anew; None when they are not"""
        self._anew: dict[Entity, _Sum] = {}
        self._uncounted: dict[str, None] = {}
        """sums of the present tenants as far as topics were counted for them, and the topics that were not"""
        self._reservations: dict[str, dict[str, Reservation]] = {}
        self._reserved: dict[Entity, _Reserved] = {}
        self._share = FairShare(MAX_RESERVED)

    def __len__(self) -> int:
        """Reservations."""
        return self._share.held

    def configure(self, tenants: Tenants) -> None:
        """These are the tenants from now on. Few topics are counted for them at once, many by `recount`; until that is done, what
        owners have is as it was."""
        if tenants is self._tenants or tenants.tenants == self._tenants.tenants:
            return
        self._before = self._tenants if self._before is None else self._before
        self._tenants, self._anew, self._uncounted = tenants, {}, dict.fromkeys(self._sizes)
        if len(self._sizes) <= AT_ONCE:
            finish_at_once(self.recount())

    @property
    def recounting(self) -> bool:
        """True while topics are to be counted anew (`recount`)."""
        return self._before is not None

    def recount(self) -> Generator[None, None, None]:
        """Count all topics for tenants that are others now, in steps."""
        while self._before is not None:
            for name in list(islice(self._uncounted, AT_ONCE)):
                del self._uncounted[name]
                if (size := self._sizes.get(name)) is not None:
                    self._count(self._anew, self.owners(name, self._creators.get(name)), Owned(1, size), 1)
            if not self._uncounted:
                self._sums, self._anew, self._before = self._anew, {}, None
                return
            yield

    @property
    def sizes(self) -> dict[str, int]:
        """Partitions of all topics that brokers told of. Not to be changed."""
        return self._sizes

    def owners(self, topic: str, creator: str | None) -> tuple[Entity, ...]:
        """Whose topic this is: the user that created it, and the tenant."""
        return self._owners(self._tenants, topic, creator)

    def _owners(self, tenants: Tenants, topic: str, creator: str | None) -> tuple[Entity, ...]:
        tenant = tenants.of_topic(topic)
        if creator is None:
            return () if tenant is None else (owner_of(tenant),)
        tenant = tenant or tenants.of_user(creator)
        user = Entity(creator, None)
        return (user,) if tenant is None else (user, owner_of(tenant))

    def creator(self, topic: str) -> str | None:
        """The user that created a topic, as far as that is known."""
        return self._creators.get(topic)

    def owned(self, owner: Entity) -> Owned:
        """What an owner has, as brokers told it."""
        known = self._sums.get(owner)
        return Owned() if known is None else Owned(known.topics, known.partitions)

    def used(self, owner: Entity, user: str) -> Owned:
        """The same with what was asked for and counts for this user."""
        topics, partitions = self.owned(owner)
        reserved = self._reserved.get(owner)
        for group in () if reserved is None else (None, self._group(user)):
            if reserved is not None and (more := reserved.of.get(group)) is not None:
                topics, partitions = topics + more.topics, partitions + more.partitions
        return Owned(topics, partitions)

    def reservation(self, topic: str, user: str) -> Reservation | None:
        """What this user has asked for of a topic."""
        return self._reservations.get(topic, {}).get(user)

    def owners_now(self) -> Iterator[tuple[Entity, Owned]]:
        """All owners with what they have."""
        return ((owner, Owned(known.topics, known.partitions)) for owner, known in self._sums.items())

    # ------------------------------------------------------------------ what brokers tell

    def topic_sized(self, topic: str, partitions: int) -> None:
        """A topic has this many partitions; 0 if it is gone."""
        before = self._sizes.get(topic, 0)
        reservations = tuple(self._reservations.get(topic, {}).values())
        if before and partitions == before and not reservations:
            return
        if before:
            self._add(topic, Owned(1, before), -1)
        if not partitions:
            self._sizes.pop(topic, None)
            self._creators.pop(topic, None)
            return
        for one in reservations:
            if not before and one.wanted.new:
                self._creators.setdefault(topic, one.user)
            if partitions > before:
                self._release(one)
        self._sizes[topic] = partitions
        self._add(topic, Owned(1, partitions), 1)

    def created(self, topic: str, user: str) -> None:
        """A broker has created this topic for a user."""
        size = self._sizes.get(topic)
        if size is not None:
            self._add(topic, Owned(1, size), -1)
        self._creators[topic] = user
        if size is not None:
            self._add(topic, Owned(1, size), 1)

    def hear(self, user: str, topic: str, partitions: int, now: float) -> None:
        """Another proxy told that a broker has created or enlarged this topic for a user."""
        size = self._sizes.get(topic)
        if size is None or partitions > size:
            wanted = WantedTopic(topic, partitions - (size or 0), size is None)
            owners = self.owners(topic, user if size is None else self._creators.get(topic))
            self._reserve(Reservation(user, None, wanted, owners, now + HEARD_FOR))
        elif topic not in self._creators:
            self.created(topic, user)

    # ------------------------------------------------------------------ what is asked for

    def reserve(self, user: str, wanted: WantedTopic, until: float) -> Reservation | None:
        """Count what is asked for, for this user; None where the user has no room for it."""
        owners = self.owners(wanted.name, user if wanted.new else self._creators.get(wanted.name))
        return self._reserve(Reservation(user, self._group(user), wanted, owners, until))

    def release(self, reservations: Iterable[Reservation]) -> None:
        """These topics are not coming, or are known by now."""
        for one in reservations:
            if self._reservations.get(one.wanted.name, {}).get(one.user) is one:
                self._release(one)

    def sweep(self, now: float) -> None:
        """Forget reservations that have passed; `SWEPT` are looked at."""
        looked = 0
        for of_topic in tuple(self._reservations.values())[:SWEPT]:
            for one in tuple(of_topic.values()):
                looked += 1
                if one.until <= now:
                    self._release(one)
                else:  # the next sweep looks at others first
                    self._reservations[one.wanted.name] = self._reservations.pop(one.wanted.name)
            if looked >= SWEPT:
                return

    def _reserve(self, made: Reservation) -> Reservation | None:
        before = self._reservations.get(made.wanted.name, {}).get(made.user)
        if before is not None:
            self._release(before)
        if not self._share.take(made.user):
            return None
        self._reservations.setdefault(made.wanted.name, {})[made.user] = made
        for owner in made.owners:
            self._reserved.setdefault(owner, _Reserved()).add(made.group, made.wanted.amount, 1)
        return made

    def _release(self, one: Reservation) -> None:
        of_topic = self._reservations[one.wanted.name]
        del of_topic[one.user]
        if not of_topic:
            del self._reservations[one.wanted.name]
        self._share.give_back(one.user)
        for owner in one.owners:
            reserved = self._reserved[owner]
            reserved.add(one.group, one.wanted.amount, -1)
            if not reserved.of:
                del self._reserved[owner]

    def _group(self, user: str) -> Entity:
        tenant = self._tenants.of_user(user)
        return Entity(user, None) if tenant is None else owner_of(tenant)

    def _add(self, topic: str, amount: Owned, sign: int) -> None:
        creator = self._creators.get(topic)
        owners = self.owners(topic, creator)
        if self._before is None:
            self._count(self._sums, owners, amount, sign)
            return
        self._count(self._sums, self._owners(self._before, topic, creator), amount, sign)
        if topic not in self._uncounted:
            self._count(self._anew, owners, amount, sign)

    @staticmethod
    def _count(sums: dict[Entity, _Sum], owners: Iterable[Entity], amount: Owned, sign: int) -> None:
        for owner in owners:
            known = sums.setdefault(owner, _Sum())
            known.add(amount, sign)
            if not (known.topics or known.partitions):
                del sums[owner]
