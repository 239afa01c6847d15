"""What the topics of each owner have stored, as the log dirs of the brokers tell: what the two kinds of stored bytes share.

In: limits, who owns which topic, what brokers told. Out: which topics to ask about, budgets as they are right. A look asks
about all topics, or about those of budgets near a limit. One that a broker did not answer changes nothing, as its topics would
seem to be gone, until what is known is too old.

Memory: the sizes of all partitions, as each broker told them; an entry for each topic that brokers let somebody write to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from math import inf
from operator import itemgetter
from typing import Final

from quota.catalogue import TOPIC_STORED
from quota.entity import Entity
from quota.kinds.stored_bytes import AT_ONCE, TENANT_STORED, Budget, Stands, StoredBytes, StoredBytesOptions, StoredTopic
from quota.limits import Limits
from quota.owned_topics import OwnedTopics
from quota.tenants import TenantEntity, tenant_among

BrokerSizes = Mapping[str, Mapping[int, int]]
"""What one broker has: bytes by topic and partition."""
LARGEST: Final = 1000
"""Topics whose sizes are kept from one look at all topics to the next."""


class Look:
    """One look at the log dirs. `wanted`: the topics that are asked for, with their numbers of partitions; None for all."""

    def __init__(self, at: float, wanted: Mapping[str, int] | None, budgets: Sequence[Budget]) -> None:
        self.at, self.wanted, self.budgets = at, wanted, budgets
        self.brokers: dict[int, BrokerSizes] = {}
        """what each broker told that answered"""
        self.topics: dict[str, int] = {}
        """bytes by topic"""
        self.tenants: dict[str, int] = {}
        """bytes by tenant"""
        self.copies: dict[str, int] = {}
        """replicas by topic"""
        self.largest: dict[str, int] = {}
        """bytes of the topics that have most"""

    def of(self, owner: Entity) -> int:
        """What an owner has."""
        return (self.tenants if isinstance(owner, TenantEntity) else self.topics).get(owner.topic or "", 0)


class StoredSizes:
    """`produced`: asked for users and the bytes per second that they produce, when some begin to be slowed down."""

    def __init__(self, owned: OwnedTopics) -> None:
        self.owned = owned
        self.options = StoredBytesOptions()
        self.produced: Callable[[], Mapping[str, float]] = dict
        self.of_tenants, self.of_topics = StoredBytes(TENANT_STORED, self), StoredBytes(TOPIC_STORED, self)
        self.kinds = (self.of_tenants, self.of_topics)
        self.tenants: Mapping[str, int] = {}
        """bytes of all tenants at the last look at all topics"""
        self.largest: Mapping[str, int] = {}
        """bytes of the topics that had most then, `LARGEST` at most"""
        self.looked = -inf
        """when the last look at all topics began that was not in vain"""
        self._brokers: dict[int, tuple[float, BrokerSizes]] = {}
        self._topics: dict[str, StoredTopic] = {}
        self._copies: Mapping[str, int] = {}
        self._most_copies = 1

    def __bool__(self) -> bool:
        """Has anybody a limit?"""
        return any(not kind.calm for kind in self.kinds)

    def __len__(self) -> int:
        """Topics that somebody writes to."""
        return len(self._topics)

    @property
    def budgets(self) -> Iterator[Budget]:
        """Of both kinds."""
        return chain.from_iterable(list(kind.budgets.values()) for kind in self.kinds)

    def configure(self, limits: Limits) -> None:
        """These limits hold from now on; to be called when it is known who owns what."""
        self.options = limits.option(StoredBytesOptions) or StoredBytesOptions()
        self._topics = {}

    def topic(self, name: str) -> StoredTopic:
        """A topic that a broker lets somebody write to."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = self._made(name)
        return found

    def find(self, name: str) -> StoredTopic:
        """A topic that somebody names: it is not remembered."""
        return self._topics.get(name) or self._made(name)

    def _made(self, name: str) -> StoredTopic:
        return StoredTopic(name, self._budgets(name), self._copies_of(name))

    def _budgets(self, topic: str) -> tuple[Budget, ...]:
        tenant = None if self.of_tenants.calm else self._tenant(topic)
        of_topic = None if self.of_topics.calm else self.of_topics.budget(Entity(None, None, topic))
        found = (None if tenant is None else self.of_tenants.budget(tenant), of_topic)
        return tuple(budget for budget in found if budget is not None)

    def _tenant(self, topic: str) -> TenantEntity | None:
        return tenant_among(self.owned.owners(topic, self.owned.creator(topic)))

    def _copies_of(self, topic: str) -> int:
        """Of a topic that was not seen yet, as many as any topic has."""
        return self._copies.get(topic, self._most_copies) if self.options.replicas else 1

    def of_all(self) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes of tenants and of topics, by name, as far as they are known: of all tenants, and of the largest topics; of those
        with a limit, with what was written since the last look."""
        seen = (self.tenants, self.largest)
        budgets = ({it.owner.topic or "": it.used for it in list(kind.budgets.values()) if it.known} for kind in self.kinds)
        of_tenants, of_topics = ({**before, **now} for before, now in zip(seen, budgets, strict=True))
        return of_tenants, of_topics

    # ------------------------------------------------------------------ looks

    def unknown(self) -> bool:
        """Has somebody a limit that was not looked at yet?"""
        return any(not (kind.settled and all(budget.known for budget in kind.budgets.values())) for kind in self.kinds)

    def begin(self, now: float, *, everything: bool) -> Generator[None, None, Look | None]:
        """A look begins, in steps: at all topics, or at those of budgets near a limit or not seen yet; None where there are no
        such budgets."""
        budgets = []
        for kind in self.kinds:
            yield from kind.settle()
        for i, budget in enumerate(self.budgets):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
            if everything or budget.near or not budget.known:
                budget.begin()
                budgets.append(budget)
        if not budgets:
            return None
        return Look(now, None if everything else (yield from self._wanted(budgets)), budgets)

    def _wanted(self, budgets: Sequence[Budget]) -> Generator[None, None, dict[str, int]]:
        """The topics of these budgets with their partitions, as far as brokers told of them, in steps."""
        names = {budget.owner.topic for budget in budgets if budget.kind is self.of_topics}
        tenants = {budget.owner.topic for budget in budgets if budget.kind is self.of_tenants}
        known = self.owned.sizes.copy()
        for _, told in self._brokers.values():
            for topic, partitions in told.items():
                known[topic] = max(known.get(topic, 0), max(partitions, default=-1) + 1)
        found = {}
        for i, (topic, count) in enumerate(known.items()):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
            tenant = self._tenant(topic) if tenants else None
            if topic in names or (tenant is not None and tenant.topic in tenants):
                found[topic] = count
        return found

    def understand(self, look: Look) -> None:
        """Add up what brokers told. It takes long where topics are many, and may run in a thread: it changes the look only."""
        known = [told for id, (at, told) in self._brokers.items() if id not in look.brokers and self._holds(at, look)]
        sizes: dict[str, dict[int, int]] = {}
        replicas: dict[str, dict[int, int]] = {}
        every_copy = self.options.replicas
        for told in (*known, *look.brokers.values()):
            for topic, partitions in told.items():
                of_topic, copies = sizes.setdefault(topic, {}), replicas.setdefault(topic, {})
                for partition, amount in partitions.items():
                    before = of_topic.get(partition, 0)
                    of_topic[partition] = before + amount if every_copy else max(before, amount)
                    copies[partition] = copies.get(partition, 0) + 1
        for topic, of_topic in sizes.items():
            if look.wanted is not None and topic not in look.wanted:
                continue
            look.topics[topic] = total = sum(of_topic.values())
            look.copies[topic] = max(replicas[topic].values(), default=1)
            if (tenant := self._tenant(topic)) is not None:
                name = tenant.topic or ""
                look.tenants[name] = look.tenants.get(name, 0) + total

        if look.wanted is None:
            look.largest = dict(nlargest(LARGEST, look.topics.items(), key=itemgetter(1)))

    def _holds(self, at: float, look: Look) -> bool:
        return look.at - at <= self.options.validity

    def finish(self, look: Look) -> Generator[None, None, None]:
        """What was understood holds, in steps."""
        for id, told in look.brokers.items():
            before = self._brokers.get(id, (0.0, {}))[1]
            kept = {} if look.wanted is None else {topic: it for topic, it in before.items() if topic not in look.wanted}
            self._brokers[id] = look.at, {**kept, **told}
        self._brokers = {id: (at, told) for id, (at, told) in self._brokers.items() if self._holds(at, look)}
        for i, budget in enumerate(look.budgets):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
            budget.finish(look.of(budget.owner))
        if look.wanted is not None:
            return
        self.looked, self.tenants, self.largest, self._copies = look.at, look.tenants, look.largest, look.copies
        self._most_copies = max(look.copies.values(), default=1)
        for i, topic in enumerate(list(self._topics.values())):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
            topic.budgets, topic.copies = self._budgets(topic.name), self._copies_of(topic.name)

    def changes(self) -> Generator[None, None, list[Budget]]:
        """Whose `told` is another than before; in steps."""
        found = []
        for kind in self.kinds:
            yield from kind.settle()
        for i, budget in enumerate(self.budgets):
            if i % AT_ONCE == AT_ONCE - 1:
                yield
            before, budget.told = budget.told, budget.stand()
            if budget.told is not before:
                found.append(budget)
        return found

    def none_slowed(self, kind: StoredBytes) -> bool:
        """True if all owners of a kind are within their soft limits, as last told."""
        return all(budget.told is Stands.WITHIN for budget in kind.budgets.values())
