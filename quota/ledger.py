"""The ledger: what many proxies have charged together, so that each enforces the quota of the fleet. Pure, as all of `quota`.

Decisions stay local: every proxy has its own windows. What it charges there goes to a store that all share, as the difference
since the last time; the store adds it up and answers with the fleet's total, of which what is new was charged elsewhere, and is
recorded here as if it had been charged here now. So every window is that of the fleet, late by an interval and a round trip.

In: kinds of quotas (`Sums`), the time, answers. Out: numbered batches for the store, one under way for each shard; the owner of
this object carries them. What the store has to do is in `Answer`; it keeps the number of the last batch of each proxy, so a batch
that is sent again, as its answer was lost, counts once. What is not known to have been stored when the store lost all it knew is
dropped: nothing counts twice.

While the store is away, what others charge is estimated: of each owner, they go on as they did (`Away.SHARE`: a part of the fleet's
use was mine), or all alike (`Away.SPLIT`). What was estimated is not counted again when their figures come.

Memory: an owner is looked at as long as what was charged here weighs. There are as many as kinds have windows, of which each user
has a share; `MOST` is for the case that a kind has more, then the longest unused is forgotten. Batches take from users in turn
(`turns`), so that owners of one user do not wait for those of others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from math import exp, inf
from typing import Final, NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote
from zlib import crc32

from quota.entity import Entity
from quota.round_robin import RoundRobin
from quota.turns import TurnsOnce

MOST: Final = 700_000
"""Owners of a shard that are looked at: as many as all kinds together have windows."""
BATCH: Final = 200
"""Owners of one batch: the store does nothing else meanwhile, and neither does the proxy when it comes back."""
READ_EVERY: Final = 1.0
"""Seconds between two looks at an owner that is not charged here and is far from its limit; others are looked at in every batch.
Looks would else be most of what the store does: it would read all of every proxy's owners at every interval."""
READS: Final = 100
"""Such owners in one batch."""
MAX_WEIGHT: Final = 8.0
"""What is charged counts at most this many times until others are heard: with more, a client that comes to another proxy could do
next to nothing there at first."""
AHEAD: Final = 5.0
"""An owner is urgent that would be near its limit if all proxies charged this many times what was charged here just now."""
RECENT: Final = 1.0
"""Seconds after its last charge here for which an owner near its limit is urgent."""
TELL_LEVEL: Final = 1.0
"""Seconds between two times that a proxy tells how the window of an owner stands."""
KEEP: Final = 60.0
"""Seconds that the store keeps an entry that is not charged any more, beyond the time for which it is of interest."""
PRUNED: Final = 200
"""Owners that are looked at in one go for whether they are still of interest."""
NAMED: Final = 120
"""Characters of a name that stand in a key; longer ones are hashed."""


class Sums(Protocol):
    """A kind of quota that adds up. Owners are those of its windows; amounts may be negative, as what did not happen."""

    @property
    def name(self) -> str: ...
    def take_charged(self) -> Iterable[tuple[Entity, float]]:
        """What was charged here since the last time; 0 of an owner that came here and of whom others may know."""

    def learn(self, owner: Entity, amount: float, now: float) -> None:
        """So much was charged elsewhere: record it, whatever the limit."""

    def level(self, owner: Entity, now: float) -> float:
        """How the window stands: what is in it."""

    def resume(self, owner: Entity, level: float, age: float, charged: float, now: float) -> None:
        """The first word of an owner for a while: `age` seconds ago its window had this level elsewhere, without what was charged
        here just now. Its window here may know a part of that."""

    def weighs_for(self, owner: Entity, now: float) -> float:
        """Seconds for which what was charged now weighs."""

    def capacity(self, owner: Entity) -> float:
        """The most that may be learned at once after a while without word: what a window holds."""


@runtime_checkable
class Expecting(Sums, Protocol):
    """A kind that judges as if others charged as well, until they are heard: so each proxy takes its share of what is left."""

    first_weight: float
    """`expect` for owners of whom nothing was heard yet"""

    def expect(self, owner: Entity, weight: float, *, heard_soon: bool) -> None:
        """What is charged here is judged as `weight` times as much from now on, until others are heard, be it soon or not."""

    def expected(self, owner: Entity) -> float:
        """What others are expected to have charged, up to `take_charged`, and was not corrected yet."""

    def accept(self, owner: Entity, charged: float, now: float) -> float:
        """Record what is expected with what was `charged` last, as nobody can be heard: so much."""

    def correct(self, owner: Entity, amount: float, expected: float, now: float) -> None:
        """So much was charged elsewhere, where so much was expected."""


class Away(Enum):
    """What is assumed of others while the store is away."""

    SHARE = "share"
    """they go on as they did"""
    SPLIT = "split"
    """everybody uses as much as this proxy"""


class Entry:
    """One owner of one kind, as this proxy and the store know it."""

    __slots__ = (
        "all",
        "answers",
        "estimated",
        "expecting",
        "heard",
        "key",
        "kind",
        "mine",
        "older",
        "owner",
        "pending",
        "shard",
        "since",
        "told",
        "total",
        "used",
        "user",
    )

    def __init__(self, kind: Sums, owner: Entity, key: str, shard: Shard, now: float) -> None:
        self.kind, self.owner, self.key, self.shard = kind, owner, key, shard
        self.expecting = kind if isinstance(kind, Expecting) else None
        self.user = owner.user or ""
        self.pending = 0.0
        """charged here and not in any batch yet; `older` too, while the store is away for longer than it weighs"""
        self.older = 0.0
        self.since = self.used = now
        """when `pending` began, and when something was last charged here"""
        self.total: int | None = None
        """the fleet's, as last told"""
        self.heard = self.told = -inf
        """when that was, and when this proxy last told the level"""
        self.estimated = 0.0
        """of others, while the store was away"""
        self.mine = self.all = 0.0
        """charged here and in all, what is long past weighing less"""
        self.answers = 0
        """how often it was heard of without a long pause"""

    def fresh(self) -> bool:
        """Has nothing been heard of it?"""
        return self.total is None

    def hear(self, delta: float, others: float, weighs_for: float, now: float) -> None:
        """So much was charged here and by others since the last time."""
        left = exp(-max(now - self.heard, 0.0) / weighs_for) if self.heard > -inf else 0.0
        self.answers = self.answers + 1 if now - self.heard < weighs_for else 1
        self.mine = max(self.mine * left + delta, 0.0)
        self.all = max(self.all * left + delta + others, 0.0)
        self.heard = now

    def weight(self, proxies: int) -> float:
        """How many times what is charged here is likely to be charged by all. The first answers may be older than what others
        charge just now, so they are not relied upon."""
        likely = max(1.0 / self.share(proxies, Away.SHARE), proxies / max(self.answers, 1))
        return min(likely, MAX_WEIGHT)

    def share(self, proxies: int, away: Away) -> float:
        """The part of the fleet's use that is this proxy's, 1 / `proxies` at least."""
        least = 1 / max(proxies, 2 if self.all > self.mine else 1)
        if away is Away.SPLIT or self.all <= 0:
            return least
        return min(max(self.mine / self.all, least), 1.0)


class Item(NamedTuple):
    """What a batch says of one owner."""

    entry: Entry
    delta: int
    """to be added to the total"""
    level: float | None
    """how the window stands, where that is to be told"""
    fresh: bool
    """is the answer to tell the level?"""
    keep: float
    """seconds that the store keeps it"""
    expected: float = 0.0
    """of others: the answer tells what is right"""


class Change(NamedTuple):
    """An item as the store sees it; `key` stands for kind and owner."""

    key: str
    delta: int
    level: float | None
    fresh: bool
    keep: float


class Update(NamedTuple):
    """A batch as it goes to the store."""

    shard: int
    number: int
    generation: str
    changes: Sequence[Change]


@dataclass(slots=True, eq=False)
class Batch:
    """One batch of a shard; the same again until it is answered."""

    shard: int
    number: int
    generation: str
    """of the store, as this proxy knows it; empty at first"""
    items: Sequence[Item]
    tries: int = 0

    def update(self) -> Update:
        """What the store is to be told."""
        changes = [Change(item.entry.key, *item[1:5]) for item in self.items]
        return Update(self.shard, self.number, self.generation, changes)


class Level(NamedTuple):
    """How a window stood `age` seconds ago, and what the total has grown by since, this batch left out."""

    level: float
    age: float
    since: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What the store says of a batch.

    It makes up a `generation` where it has none. It accepts a batch of this generation whose number is at most one more than the
    `last` of that proxy (0 where it knows none); adds the differences if it is one more; and answers with the totals as they are
    then. What it does not accept changes nothing, and has no totals."""

    generation: str
    accepted: bool
    last: int
    totals: Sequence[int] = ()
    levels: dict[int, Level] = field(default_factory=dict)
    """by item, where there is one and it was asked for"""


@dataclass(slots=True)
class Counts:
    """For metrics, since the start."""

    learned: float = 0.0
    """charged by others, in the units of all kinds"""
    estimated: float = 0.0
    synced: int = 0
    """owners in answered batches"""
    restarts: int = 0
    """times that the store had lost all it knew"""
    dropped: int = 0
    """batches of which it is not known whether they were stored"""


class Shard:
    """The owners of one shard, and its batch that is under way."""

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.entries: OrderedDict[Entry, None] = OrderedDict()  # in the order of their last charge
        self.changed: TurnsOnce[Entry] = TurnsOnce()
        self.batch: Batch | None = None
        self.generation, self.last = "", 0
        self.heard = self.since = now
        """when the store last answered, and since when it does so without a pause"""
        self.close: TurnsOnce[Entry] = TurnsOnce()
        """that have used half of what they may or more, the longest not looked at first"""
        self.urgent: TurnsOnce[Entry] = TurnsOnce()
        """those of them that are used here, others that were charged when near their limits, and those that just came"""
        self.reads: RoundRobin[Entry] = RoundRobin(READ_EVERY, READS)


class Ledger:
    """The ledger of one proxy. `stale_after` seconds without an answer, the store is away; `grace` seconds after it is back, what
    others charged is taken for what was estimated; `proxies` are thought to be there until `proxies` is set."""

    def __init__(
        self,
        kinds: Iterable[Sums],
        now: float,
        *,
        shards: int = 1,
        stale_after: float = 1.0,
        grace: float = 0.2,
        when_away: Away = Away.SHARE,
        proxies: int = 1,
    ) -> None:
        self.kinds = list(kinds)
        self.shards = [Shard(number, now) for number in range(shards)]
        self.stale_after, self.grace, self.when_away = stale_after, grace, when_away
        self.proxies = proxies
        self.counts = Counts()
        self._entries: dict[tuple[str, Entity], Entry] = {}

    @property
    def proxies(self) -> int:
        """Proxies that share the store."""
        return self._proxies

    @proxies.setter
    def proxies(self, proxies: int) -> None:
        self._proxies = proxies
        for kind in self.kinds:
            if isinstance(kind, Expecting):
                kind.first_weight = min(max(proxies, 1.0), MAX_WEIGHT)

    def __len__(self) -> int:
        """Owners that are looked at."""
        return len(self._entries)

    def away(self, now: float) -> int:
        """Shards that have not answered for too long."""
        return sum(self._away(shard, now) for shard in self.shards)

    def age(self, now: float) -> float:
        """Seconds since the shard that has been silent for longest has answered."""
        return max(now - shard.heard for shard in self.shards)

    def collect(self, now: float) -> None:
        """Take what was charged since the last time; where the store is away, record what others are likely to have charged."""
        for kind in self.kinds:
            for owner, amount in kind.take_charged():
                entry = self._entry(kind, owner, now)
                if now - entry.since >= kind.weighs_for(owner, now):
                    entry.older, entry.pending, entry.since = entry.pending, 0.0, now
                entry.pending += amount
                entry.used = now
                entry.shard.changed.put(entry.user, entry)
                self._expect(entry, amount, now)
                if entry.fresh() or _is_close(entry, now, amount * self.proxies * AHEAD):
                    entry.shard.urgent.put(entry.user, entry)

    def batches(self, now: float) -> list[Batch]:
        """What the store is to be told and asked, one batch a shard: that which is under way again, else another one."""
        return [self.batch(shard, now) for shard in self.shards]

    def batch(self, shard: Shard, now: float, *, urgent: bool = False) -> Batch:
        """The same of one shard. `urgent`: only of owners that are near their limits, or of whom nothing was heard."""
        if shard.batch is None:
            self._prune(shard, now)
            chosen = self._urgent(shard) if urgent else self._chosen(shard, now)
            items = [self._item(entry, now) for entry in chosen]
            shard.batch = Batch(shard.number, shard.last + 1, shard.generation, items)
        shard.batch.tries += 1
        return shard.batch

    def quiet(self, shard: Shard, now: float) -> bool:
        """Is there nothing to say, and has the store answered not long ago?"""
        return shard.batch is None and not shard.entries and now - shard.heard < self.stale_after / 3

    def behind(self) -> int:
        """Owners whose changes are in no batch yet."""
        return sum(len(shard.changed) for shard in self.shards)

    def answered(self, batch: Batch, answer: Answer, now: float) -> None:
        """The store has answered. Answers to a batch that is not under way any more are none."""
        shard = self.shards[batch.shard]
        if shard.batch is not batch:
            return
        if not answer.accepted:
            self._refused(shard, batch, answer)
            return
        if self._away(shard, now):
            shard.since = now
        shard.heard, shard.last, shard.batch = now, batch.number, None
        for i, (item, total) in enumerate(zip(batch.items, answer.totals, strict=True)):
            self._hear(shard, item, total, answer.levels.get(i), now)
            self._come_back(shard, item.entry, now)
        self.counts.synced += len(batch.items)

    def _come_back(self, shard: Shard, entry: Entry, now: float) -> None:
        """An owner near its limit is asked of again soon, at once if it is used here."""
        if entry in shard.entries and _is_close(entry, now):
            shard.close.put(entry.user, entry)
            if now - entry.used < RECENT:
                shard.urgent.put(entry.user, entry)

    def _refused(self, shard: Shard, batch: Batch, answer: Answer) -> None:
        """The store does not know this proxy, or not what it last said. A batch that was sent once only was not stored."""
        renewed = answer.generation != shard.generation
        if renewed and shard.generation:
            self.counts.restarts += 1
            for entry in shard.entries:
                entry.total = None if entry.total is None else 0  # all that is in it by then is new
        surely_not = batch.tries == 1 or (not renewed and 0 < answer.last < batch.number)
        shard.generation, shard.last = answer.generation, answer.last
        shard.batch = None
        if surely_not:
            shard.batch = Batch(batch.shard, shard.last + 1, shard.generation, batch.items)
        else:
            self.counts.dropped += 1
            for item in batch.items:
                if item.entry in shard.entries:
                    shard.close.put(item.entry.user, item.entry)  # to be asked of soon

    def _hear(self, shard: Shard, item: Item, total: int, level: Level | None, now: float) -> None:
        entry = item.entry
        kind, owner = entry.kind, entry.owner
        weighs_for = kind.weighs_for(owner, now)
        before, entry.total = entry.total, total
        heard = entry.heard
        expected = item.expected
        if before is None:
            if level is not None:
                kind.resume(owner, level.level, level.age, item.delta, now)
            others = float(total - item.delta if level is None else level.since)
            entry.hear(item.delta, others + (0.0 if level is None else level.level), weighs_for, now)
            self._learn(entry, others, expected, now)
            return
        others = float(total - before - item.delta)
        if others < 0 and -others > entry.all - entry.mine + 1:
            others = 0.0  # the store has forgotten something: other proxies cannot have taken back that much
        if others > 0 and now - entry.heard > self.stale_after + READ_EVERY:
            others = min(others, kind.capacity(owner))
        entry.hear(item.delta, others, weighs_for, now)
        if entry.estimated > 0:
            if now - shard.since > self.grace and heard >= shard.since:
                entry.estimated = 0.0
            elif others > 0:
                known = min(others, entry.estimated)
                entry.estimated -= known
                others -= known
        self.counts.learned += max(others, 0.0)
        if others or entry.expecting is not None:
            self._learn(entry, others, expected, now)

    def _learn(self, entry: Entry, others: float, expected: float, now: float) -> None:
        """Others have charged so much, for which this was expected."""
        if entry.expecting is None:
            entry.kind.learn(entry.owner, others, now)
        else:
            entry.expecting.correct(entry.owner, others, expected, now)
            entry.expecting.expect(entry.owner, entry.weight(self.proxies), heard_soon=True)

    def _expect(self, entry: Entry, amount: float, now: float) -> None:
        """Others are expected to charge in proportion to what was charged here: with each charge where the kind does that, else
        only while the store is away."""
        away, kind = self._away(entry.shard, now), entry.expecting
        weight = 1.0 / entry.share(self.proxies, self.when_away) if away else entry.weight(self.proxies)
        others = 0.0
        if kind is not None:
            others = kind.accept(entry.owner, amount, now) if away else 0.0
            kind.expect(entry.owner, weight, heard_soon=not away)
        elif away and amount > 0 and weight > 1:
            others = amount * (weight - 1.0)
            entry.kind.learn(entry.owner, others, now)
        entry.estimated += others
        self.counts.estimated += others

    def _away(self, shard: Shard, now: float) -> bool:
        return now - shard.heard > self.stale_after

    def _entry(self, kind: Sums, owner: Entity, now: float) -> Entry:
        entry = self._entries.get((kind.name, owner))
        if entry is None:
            key = key_of(kind.name, owner)
            shard = self.shards[crc32(key.encode()) % len(self.shards)]
            entry = self._entries[kind.name, owner] = Entry(kind, owner, key, shard, now)
            if len(shard.entries) >= MOST:
                self._forget(next(iter(shard.entries)))
        entry.shard.entries[entry] = None
        entry.shard.entries.move_to_end(entry)
        return entry

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.kind.name, entry.owner]
        del entry.shard.entries[entry]
        entry.shard.changed.discard(entry.user, entry)
        entry.shard.close.discard(entry.user, entry)
        entry.shard.urgent.discard(entry.user, entry)

    def _chosen(self, shard: Shard, now: float) -> Iterator[Entry]:
        """Those that changed, of users in turn, the longest waiting of each first; then what may have changed elsewhere, near its
        limit first."""
        chosen = dict.fromkeys(shard.changed.take(BATCH))
        reads = shard.close.take(max(BATCH - READS - len(chosen), 0))  # an owner that is still close comes back with the answer
        if len(chosen) + READS <= BATCH:
            reads += shard.reads.turn(shard.entries, now)
        chosen |= dict.fromkeys(it for it in reads if it in shard.entries and not shard.changed.has(it.user, it))
        return iter(chosen)

    def _urgent(self, shard: Shard) -> list[Entry]:
        """Those that cannot wait for the next batch of all, of users in turn."""
        chosen = shard.urgent.take(BATCH)
        for entry in chosen:
            shard.changed.discard(entry.user, entry)
        return chosen

    def _item(self, entry: Entry, now: float) -> Item:
        kind, owner = entry.kind, entry.owner
        weighs_for = kind.weighs_for(owner, now)
        if now - entry.since > 2 * weighs_for:
            entry.older = entry.pending = 0.0  # charged while the store was away, and long past
        charged = entry.older + entry.pending
        delta = int(charged)
        entry.older, entry.pending, entry.since = 0.0, charged - delta, now
        level = None
        if (delta or entry.told == -inf) and not entry.fresh() and now - entry.told >= TELL_LEVEL:
            entry.told, level = now, kind.level(owner, now)
        expected = 0.0 if entry.expecting is None else entry.expecting.expected(owner)
        return Item(entry, delta, level, entry.fresh(), weighs_for + KEEP, expected)

    def _prune(self, shard: Shard, now: float) -> None:
        """Forget owners whose last charge here does not weigh any more."""
        for _ in range(min(PRUNED, len(shard.entries))):
            entry = next(iter(shard.entries))
            if now - entry.used <= entry.kind.weighs_for(entry.owner, now) or shard.changed.has(entry.user, entry):
                return
            self._forget(entry)


def _is_close(entry: Entry, now: float, soon: float = 0.0) -> bool:
    """Has it used half of what it may, or more, or will it soon?"""
    capacity = entry.kind.capacity(entry.owner)
    return capacity == inf or (entry.kind.level(entry.owner, now) + soon) * 2 >= capacity


def key_of(kind: str, owner: Entity) -> str:
    """How an owner is called in the store: `kind/user/client id/topic`, quoted as in a URL, `-` for none."""
    return "/".join([kind, *(_part(part) for part in owner)])


def _part(name: str | None) -> str:
    if name is None:
        return "-"
    if len(name) > NAMED:
        return f"~{blake2b(name.encode(errors='surrogatepass'), digest_size=16).hexdigest()}"
    return quote(name, safe="", errors="surrogatepass").replace("-", "%2D").replace("~", "%7E")
