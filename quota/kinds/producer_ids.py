"""Producer ids (seed s2, KIP-936): how many new producer ids a user may bring within a window. Brokers keep state for each.

In: the user, the producer id of each batch of a Produce request in its order, the time. Out: a verdict. It leaves to others:
reading batches, caps and mutes, how an answer looks, where saved state is kept. Per user only, never per client id, which
is whatever a client claims.

An id is new when no live filter of its user knows it (`quota/windows/timed.py`); those that the live filters remember are what
counts, over the limit from N + 1 on. Ids below 0 are none; an epoch bump is the same id; a batch that the broker then refuses
stays counted. A false positive counts too little, nothing ever counts too much.

- `throttle`: new ids are counted and pass; over the limit every Produce of the user is throttled, until enough is past (the seed);
- `reject`: batches with an id that is new are refused while there is no room, and are new the next time. Known ids go on
  untouched, and stay known as long as they are seen every half window: an active producer never loses its place.

Users without a limit are counted too, for metrics, unless that is turned off. Memory: `MAX_USERS` users, the least recently
charged forgotten first; bits of `MAX_BYTES` in total and one small filter of each user beyond. No user's filters may be larger
than what is left free: where they cannot grow they take more than they are for, and count too little (`Usage.overfull`), so that
no user is throttled for what others use, and small users always find room."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from quota.decision import Action, Busiest, Decision, Standing, Verdict
from quota.entity import DEFAULT, Entity
from quota.ledger import Sums
from quota.limit_table import LimitTable, ResolvedLimit
from quota.limits import Limits
from quota.state import BadState, Reader, Writer
from quota.steps import STEP, Steps, largest
from quota.windows.bloom import Hash
from quota.windows.samples import Samples
from quota.windows.timed import Novelty, TimedFilter

NAME: Final = "producer_ids"
MAX_USERS: Final = 10_000
MAX_BYTES: Final = 64 << 20
"""Bytes of all filters, beyond which they do not grow."""
MAX_RECENT: Final = 1 << 16
"""Ids that were seen last, of all users, which need not be looked up in a filter."""
MAX_STATE: Final = 2 * MAX_BYTES
"""Bytes of a saved state that are read at most."""
MAGIC: Final = b"producer_ids 1\n"
"""What a saved state begins with: kind and version. Whatever changes filters or their layers is another version."""
NOTHING: Final = Verdict(0)
NO_ID: Final = -1
"""The producer id of a batch that has none."""
ANY_ID: Final = (1 << 63) - 1
"""The largest producer id."""
NO_SHORT_CUT: Final = -(1 << 63) - 1
"""Below every number that may stand in the place of an id."""


class Mode(Enum):
    """What being over the limit means."""

    THROTTLE = "throttle"
    """seed s2: every Produce of the user is throttled"""
    REJECT = "reject"
    """only batches with new ids are refused"""


@dataclass(frozen=True, slots=True)
class ProducerIdLimit:
    """`rate` > 0 is new producer ids per window (producer_ids_rate); ValueError for others."""

    rate: float
    mode: Mode = Mode.THROTTLE

    def __post_init__(self) -> None:
        if not 0 < self.rate < inf:
            raise ValueError(f"need a limit above 0, got {self.rate}")


@dataclass(frozen=True, slots=True)
class ProducerIdOptions:
    """`count_unlimited`: users without a limit are counted too, for metrics. `sweep_interval`: seconds between two looks at all
    users whose ids may be past. `hold_new`: InitProducerId waits while its user is over the limit."""

    count_unlimited: bool = True
    sweep_interval: float = 60.0
    hold_new: bool = False


@dataclass(frozen=True, slots=True)
class Windows:
    """How long and how exactly ids are remembered. The names of the seed: producer.id.quota.window.size.seconds and .num."""

    seconds: float = 3600.0
    samples: int = 11
    """the number of samples, of `seconds` each, over which the metric `rate` is computed"""
    false_positives: float = 0.01
    """how often an id that is new may be taken for known"""


class Usage(NamedTuple):
    """How a user stands. The metrics of the seed are `rate`, `tokens` and `throttle`."""

    counted: int
    """new ids within a window, what is compared with the limit"""
    limit: float | None
    tokens: float
    """what is left of the limit, below 0 when the user is throttled; infinite without a limit"""
    rate: float
    """new ids per second over all samples"""
    throttle: float
    """seconds that a throttled request was told on average"""
    active: float
    """estimate of the ids within a window, those included that were taken for known"""
    overfull: bool
    """do its filters hold more than they are for, as there is no memory left? Then more ids are taken for known than asked"""


class _User:
    """What is known of one user."""

    __slots__ = ("calm_until", "limit", "samples", "seen", "throttles")

    def __init__(self, limit: ProducerIdLimit | None, windows: Windows, hash128: Hash) -> None:
        self.limit = limit
        self.seen = TimedFilter(windows.seconds, windows.false_positives, hash128)
        self.samples = Samples(windows.samples, windows.seconds)
        self.throttles: Samples | None = None
        self.calm_until = -inf
        """until then, ids that were seen lately change nothing"""

    def weight(self) -> tuple[float, int]:
        """(which part of its limit is used, new ids within a window)."""
        count = self.seen.count()
        return 0.0 if self.limit is None else count / self.limit.rate, count

    def idle(self, now: float) -> bool:
        """Is nothing left of it?"""
        return self.seen.idle and not self.samples.kept(now) and not (self.throttles and self.throttles.kept(now))


class ProducerIds:
    """The quota of all users: a pair of filters each, made when first charged, dropped when all in it has passed."""

    name: Final = NAME
    title: Final = "producer id"

    def __init__(
        self,
        limits: LimitTable[ProducerIdLimit],
        hash128: Hash,
        windows: Windows = Windows(),
        *,
        exempt: frozenset[str] = frozenset(),
        count_unlimited: bool = True,
    ) -> None:
        """`limits` has users only, see `user_limit_table`; `exempt` are users without a limit whatever it says. ValueError for
        windows that are none."""
        self.windows = windows
        self._limits, self._hash = limits, hash128
        self._exempt, self._count_unlimited = exempt, count_unlimited
        self._options = ProducerIdOptions(count_unlimited, sweep_interval=0.0)
        self._next_sweep = 0.0
        self.hold_new = False
        """does InitProducerId wait while its user is over the limit?"""
        self._uncounted: set[str] = set()
        """users who are known to have no limit, where such are not counted"""
        self._users: OrderedDict[str, _User] = OrderedDict()
        self._bytes = 0
        self._recent: dict[int, object] = {}
        """id to the epoch of the filters that knew it. An entry of another epoch is void, so old entries need not be removed"""
        self.unchecked = NO_ID
        """Ids up to this one need not be looked at: those that are none; all of them where no user is counted; no id at all while
        somebody is over the limit, as everything of such a user is throttled."""
        self.tell: Callable[[str, list[int]], None] | None = None
        """who else wants to know which ids of a user were counted, or are to be remembered for longer"""
        self._settle()
        _User(None, windows, hash128)

    def __len__(self) -> int:
        """Users that are known."""
        return len(self._users)

    @property
    def size_bytes(self) -> int:
        """Bytes of all filters."""
        return self._bytes

    @property
    def limits(self) -> LimitTable[ProducerIdLimit]:
        """Operators may put another in its place, which holds at once; what was counted stays counted."""
        return self._limits

    @limits.setter
    def limits(self, limits: LimitTable[ProducerIdLimit]) -> None:
        self.change(limits, self._exempt, self._count_unlimited)

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on, see `change`."""
        options = self._options = limits.option(ProducerIdOptions) or ProducerIdOptions()
        self.hold_new = options.hold_new and NAME not in limits.observed
        self._next_sweep = 0.0
        self.change(limits.table(NAME), limits.exempt.users, options.count_unlimited)

    def publish(self) -> Sequence[Sums]:
        """Nothing adds up: proxies tell each other of the ids themselves (`tell`, `learn`)."""
        return ()

    def change(self, limits: LimitTable[ProducerIdLimit], exempt: frozenset[str], count_unlimited: bool) -> None:
        """These limits hold from now on; what was counted stays counted, but of users who are counted no more. Looks at those
        only whose limit may be another."""
        touched = limits.touched(self._limits)
        alike = (exempt, count_unlimited) == (self._exempt, self._count_unlimited)
        self._limits, self._exempt, self._count_unlimited = limits, exempt, count_unlimited
        if alike and not touched:
            return
        self._uncounted.clear()
        everybody = not alike or any(entity.user == DEFAULT for entity in touched)
        for name in list(self._users) if everybody else [entity.user for entity in touched]:
            user = None if name is None else self._users.get(name)
            if name is None or user is None:
                continue
            user.limit, user.calm_until = self._limit(name), -inf
            if user.limit is None and not count_unlimited:
                self._drop(name)
        self._recent.clear()  # `reject` has to write to the newest filters what `throttle` only read
        self._settle()

    def find(self, user: str, _client_id: str = "", *, client_ids: bool = True) -> ResolvedLimit[ProducerIdLimit] | None:  # noqa: ARG002
        """The limit that holds for a user, if any, whatever its client id."""
        return None if user in self._exempt else self._limits.find(user, "")

    def is_calm(self, user: str, id: int, now: float) -> bool:
        """Does a batch with this id change nothing? The short cut for ids above `unchecked`: no need to `count` it then."""
        known = self._users.get(user)
        if known is None:
            return id < 0 or user in self._uncounted
        if now < known.calm_until and (id < 0 or self._recent.get(id) is known.seen.epoch):
            self._users.move_to_end(user)
            return True
        return False

    def over(self, user: str, now: float, *, one_more: bool = False) -> bool:
        """Is a user over its limit, or would it be with `one_more`?"""
        known = self._users.get(user)
        if known is None or known.limit is None:
            return False
        self._dispose(known, now)
        return known.seen.count() + one_more > known.limit.rate

    def new(self, user: str, ids: Sequence[int], now: float) -> list[int]:
        """The batches whose ids are new to a user. Nothing is counted."""
        known = self._users.get(user)
        return [i for i, id in enumerate(ids) if id >= 0 and (known is None or not known.seen.holds(id, now))]

    def stands(self, found: ResolvedLimit[ProducerIdLimit], now: float) -> Standing:
        """How a user with a limit stands, for a decision."""
        usage = self.standing(found.owner.user or "", now)
        count = 0 if usage is None else usage.counted
        return Standing(count, found.limit.rate, max(found.limit.rate - count, 0.0))

    def charge(self, found: ResolvedLimit[ProducerIdLimit], items: Sequence[int], now: float) -> Verdict:
        """Count the new ids of one request of a user with a limit, see `count`."""
        return self.count(found.owner.user or "", items, now)

    def count(self, user: str, ids: Sequence[int], now: float, *, exempt: bool = False) -> Verdict:
        """Count the new ids of one request; `ids[i]` is that of batch i, below 0 where it has none. `exempt`: it is counted, and
        nothing follows.

        The decision throttles all batches, or refuses those with new ids; (count - N) / N windows, not capped.
        """
        known = self._users.get(user)
        if known is not None and now < known.calm_until:
            recent, epoch = self._recent, known.seen.epoch
            for id in ids:
                if recent.get(id) is not epoch and id >= 0:
                    break
            else:
                self._users.move_to_end(user)
                return NOTHING
        elif known is None and (max(ids, default=-1) < 0 or self._ignores(user)):
            return NOTHING
        return self._charge(user, ids, now, exempt)

    def learn(self, user: str, ids: Sequence[int], at: float) -> None:
        """Another proxy has counted these ids then."""
        if user not in self._users and self._ignores(user):
            return
        known = self._known(user)
        self._dispose(known, at)
        charged, _, _ = self._see(known, ids, at, exempt=True)
        if charged:
            known.samples.record(charged, at)
            known.calm_until = -inf  # `count` looks whether that is more than the limit
            self._settle_one(known)

    def told(self, user: str, throttle: float, now: float) -> None:
        """A client of this user was told this throttle time in the end, in seconds: for the average of throttle times."""
        known = self._users.get(user)
        if known is not None:
            if known.throttles is None:
                known.throttles = Samples(self.windows.samples, self.windows.seconds)
            known.throttles.record(throttle, now)

    def standing(self, user: str, now: float) -> Usage | None:
        """How a user stands; None when it is not known."""
        known = self._users.get(user)
        return None if known is None else self._usage(known, now)

    def usage(self, now: float) -> dict[str, Usage]:
        """How every user stands that is known."""
        return {name: self._usage(known, now) for name, known in self._users.items()}

    def busiest(self, count: int, now: float) -> Steps[Busiest[str, Usage]]:
        """How those stand that use most of their limit, then those without one that have most ids: `count` of them. The others
        together have had this number of new ids within a window. In steps."""
        others, users = 0, list(self._users.items())
        for i, (_, known) in enumerate(users):
            self._dispose(known, now)
            others += known.seen.count()
            if i % STEP == STEP - 1:
                yield
        chosen = yield from largest(count, users, lambda it: it[1].weight())
        others -= sum(known.seen.count() for _, known in chosen)
        return Busiest([(name, self._usage(known, now)) for name, known in chosen], others)

    def wait_for_room(self, user: str, current: int, wait: float, now: float) -> Decision | None:
        """A client that wants a producer id of a user over its limit waits for this many seconds; None when it need not. `current`:
        the id that it has, -1 for none; one that is known gets another epoch and is not new (KIP-360)."""
        found = self.find(user)
        if found is None or not self.over(user, now, one_more=True):
            return None
        if current >= 0 and not self.new(user, (current,), now):
            return None
        usage, limit, room = self.stands(found, now)
        message = f"{found.owner} has used up its producer id quota: a new id waits for {wait:g} s."
        return Decision(NAME, Action.HOLD, found.owner, (0,), usage, limit, wait, message, room)

    def sweep(self, now: float) -> None:
        """`clean_up`, at most once in `ProducerIdOptions.sweep_interval`: it looks at all users."""
        if now >= self._next_sweep:
            self._next_sweep = now + self._options.sweep_interval
            self.clean_up(now)

    def clean_up(self, now: float) -> None:
        """Drop filters that are past, and users of whom nothing is left."""
        for name, known in list(self._users.items()):
            self._dispose(known, now)
            if known.idle(now):
                self._drop(name)
        self._settle()

    def dump(self, now: float, wall: float) -> bytes:
        """What `load` needs, the most recently charged users first. `wall` is the wall clock's time now, in seconds. Throttle
        times are not saved, as mutes are not."""
        out = Writer()
        for _ in self.save(out, now, wall):
            pass
        return out.sealed(MAGIC)

    def save(self, out: Writer, now: float, wall: float) -> Iterator[None]:
        """The same in steps of one user each, so that others may be charged in between: who comes meanwhile is not saved."""
        self.clean_up(now)
        _save_kind(out, self.windows, self._hash)
        for name in list(reversed(self._users)):
            if (known := self._users.get(name)) is not None:
                out.number(1)
                out.text(name)
                known.seen.save(out, wall - now)
                known.samples.save(out, now, wall - now)
            yield
        out.number(0)

    def load(self, data: bytes, now: float, wall: float) -> int:
        """Remember what was saved and has not passed meanwhile; of how many users. Those that were charged since the start keep
        what they have now. BadState, and nothing is changed, for anything but a state of the same windows and hash."""
        saved = self._read(data, now, wall)
        loaded = 0
        for name, known in saved.items():
            size = known.seen.size_bytes
            if known.limit is None and not self._count_unlimited:
                continue
            if name in self._users or known.idle(now) or len(self._users) >= MAX_USERS or self._bytes + size > MAX_BYTES:
                continue
            self._users[name] = known
            self._users.move_to_end(name, last=False)  # in the order of the file: who comes later was charged earlier
            self._bytes += size
            loaded += 1
        self._settle()
        return loaded

    def _settle(self) -> None:
        """Which ids have to be looked at."""
        counts = bool(self._limits) or self._count_unlimited
        over = any(known.limit is not None and known.seen.count() > known.limit.rate for known in self._users.values())
        self.unchecked = ANY_ID if not counts else NO_SHORT_CUT if over else NO_ID

    def _ignores(self, user: str) -> bool:
        """Is a user who is not known not to be counted?"""
        if self._count_unlimited or self.find(user) is not None:
            return False
        if len(self._uncounted) >= MAX_USERS:
            self._uncounted.clear()
        self._uncounted.add(user)
        return True

    def _drop(self, user: str) -> None:
        self._bytes -= self._users.pop(user).seen.size_bytes

    def _charge(self, user: str, ids: Sequence[int], now: float, exempt: bool) -> Verdict:
        """What an id that was not seen lately takes, and every request of whom is over the limit."""
        known = self._known(user)
        self._dispose(known, now)
        limit = known.limit
        charged, refused, told = self._see(known, ids, now, exempt)
        if told and self.tell is not None:
            self.tell(user, told)
        if charged:
            known.samples.record(charged, now)
        over = limit is not None and limit.mode is Mode.THROTTLE and known.seen.count() > limit.rate
        known.calm_until = -inf if over else known.seen.turn
        if over:
            self.unchecked = NO_SHORT_CUT
        if limit is None or exempt or not (over or refused):
            return Verdict(charged) if charged else NOTHING
        return Verdict(charged, self._decision(user, known, limit, ids, refused))

    def _settle_one(self, known: _User) -> None:
        """Is this user over its limit?"""
        if known.limit is not None and known.seen.count() > known.limit.rate:
            self.unchecked = NO_SHORT_CUT

    def _see(self, known: _User, ids: Sequence[int], now: float, exempt: bool) -> tuple[int, list[int], list[int]]:
        """(how many ids are new, the batches of those that find no room, the ids that others have to know of)."""
        seen, limit, charged = known.seen, known.limit, 0
        refused: list[int] = []
        told: list[int] = []
        keep = limit is not None and limit.mode is Mode.REJECT
        room_for = limit.rate if limit is not None and keep and not exempt else inf
        for i, id in enumerate(ids):
            if id < 0 or self._recent.get(id) is seen.epoch:
                continue
            before = seen.size_bytes
            what = seen.see(id, now, limit=room_for, keep=keep, room=(MAX_BYTES - self._bytes - before) // 2)
            self._bytes += seen.size_bytes - before
            if what is Novelty.NO_ROOM:
                refused.append(i)
                continue
            charged += what is Novelty.NEW
            if keep or what is Novelty.NEW:
                told.append(id)
            self._remember(id, seen.epoch)
        return charged, refused, told

    def _remember(self, id: int, epoch: object) -> None:
        if len(self._recent) >= MAX_RECENT:
            self._recent.clear()  # in one go: cheaper than to know which are the oldest
        self._recent[id] = epoch

    def _known(self, user: str) -> _User:
        known = self._users.get(user)
        if known is None:
            known = self._users[user] = _User(self._limit(user), self.windows, self._hash)
            if len(self._users) > MAX_USERS:
                self._bytes -= self._users.popitem(last=False)[1].seen.size_bytes
        self._users.move_to_end(user)
        return known

    def _limit(self, user: str) -> ProducerIdLimit | None:
        found = self.find(user)
        return None if found is None else found.limit

    def _dispose(self, known: _User, now: float) -> None:
        if now >= known.seen.turn:
            before = known.seen.size_bytes
            known.seen.dispose(now)
            self._bytes += known.seen.size_bytes - before

    def _usage(self, known: _User, now: float) -> Usage:
        self._dispose(known, now)
        count, limit = known.seen.count(), known.limit
        return Usage(
            count,
            None if limit is None else limit.rate,
            inf if limit is None else limit.rate - count,
            known.samples.rate(now),
            0.0 if known.throttles is None else known.throttles.average(now),
            known.seen.estimate(),
            known.seen.overfull,
        )

    def _decision(self, user: str, known: _User, limit: ProducerIdLimit, ids: Sequence[int], refused: list[int]) -> Decision:
        count, window = known.seen.count(), self.windows.seconds
        over = count + len({ids[i] for i in refused}) - limit.rate
        wait, figures = over / limit.rate * window, f"within {window:g} s, limit {limit.rate:g}"
        if limit.mode is Mode.REJECT:
            action, items = Action.REFUSE, tuple(refused)
            message = f"The producer id quota of user {user} is used up: {count} producer ids {figures}; a new one was refused."
        else:
            action, items = Action.THROTTLE, tuple(range(len(ids)))
            message = (
                f"The producer id quota of user {user} is exceeded: {count} new producer ids {figures}; this user is slowed down."
            )
        return Decision(NAME, action, Entity(user, None), items, count, limit.rate, wait, message, max(limit.rate - count, 0.0))

    def _read(self, data: bytes, now: float, wall: float) -> dict[str, _User]:
        """The users of a saved state, the most recently charged first."""
        source = Reader(data, MAGIC, MAX_STATE)
        _check_kind(source, self.windows, self._hash)
        users = {}
        while source.number(1):
            name = source.text()
            known = users[name] = _User(self._limit(name), self.windows, self._hash)
            known.seen.restore(source, now, wall - now)
            known.samples.restore(source, now, wall - now)
            if len(users) > MAX_USERS:
                raise BadState(f"it has more users than fit; {MAX_USERS} is the most")
        source.end()
        return users


def user_limit_table(limits: Mapping[Entity, ProducerIdLimit]) -> LimitTable[ProducerIdLimit]:
    """Limits of users, the default user included. ValueError for one that looks at client ids, which the seed rules out."""
    for entity in limits:
        if entity.client_id is not None:
            raise ValueError(f"a producer id quota is for users only, not for {entity}")
    return LimitTable(limits)


def _save_kind(out: Writer, windows: Windows, hash128: Hash) -> None:
    """What filters have to agree on to be of any use."""
    for value in (windows.seconds, windows.samples, windows.false_positives):
        out.real(value)
    for half in hash128(936):
        out.number(half)


def _check_kind(source: Reader, windows: Windows, hash128: Hash) -> None:
    saved = Windows(source.real(), int(source.real()), source.real())
    if saved != windows:
        raise BadState(f"it is of {saved}, and now it is {windows}")
    if (source.number(), source.number()) != hash128(936):
        raise BadState("its ids are hashed in another way")
