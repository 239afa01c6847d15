"""What proxies tell each other at once, as it does not add up: new producer ids, refused batches that have to come first (fences),
long mutes. So a user does not escape by connecting to another proxy, and no id counts twice.

In: an engine. Out: events to tell, plain lists of texts and numbers; the other way round, events of others come to hold here.
It leaves to others: how they get there, in the order in which each proxy tells them. What comes twice changes nothing.

The events of each user wait in a queue of its own (`turns`), and each user may tell `BURST` at once and `PER_SECOND` on average:
so one user cannot push the events of others out of a queue or the stream. What a user cannot tell is lost for the other proxies:
they count fewer of its producer ids, and hear less of its mutes. Where it was a fence, they are told that the user is in overflow,
so that no record is lost (`fence`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, Final

from quota.engine import Engine
from quota.entity import Entity
from quota.fair_share import FairShare
from quota.fence import LIFE
from quota.turns import Turns

MOST: Final = 20_000
"""Events that wait to be told, of all users."""
PER_SECOND: Final = 5.0
"""Events that one user may tell on average: with `BURST` 38,000 within an hour, some 5 MB of the store."""
BURST: Final = 20_000.0
"""Events that one user may tell at once."""
MUTE: Final = 1.0
"""Seconds that a mute has to last to be told: what it lets pass elsewhere is a request of each connection."""
LOOK_EVERY: Final = 10.0
"""Seconds between two looks for mutes that are over."""
LONGER: Final = 1.25
"""How much longer it has to become to be told again."""
NOBODY: Final = ""
"""Of whom events of the proxy itself are, which are always told."""

Event = list[Any]
"""[what, ...]: `ids`, user, ids; `refused`, user, id, epoch, sequence, topic, partition, error code, quota, whether it is unsure;
`still`, the same, as it is refused still; `admitted`, user, id, epoch, sequence, topic, partition; `overflow`, user; `mute`, quota,
user, client id, topic, seconds left; `topic`, user, topic that a broker created or enlarged for it, partitions; `overload`, broker,
window, [user or [tenant and broker], bytes that it wants there]. Events that are none of quotas are for `others`. Fences without a
user, as older proxies tell them, are ignored."""

TimedEvent = tuple[float, Event]
"""When an event came, and what it is."""


class FleetEvents:
    """The events of one engine. `wake` is called when there is one to be told."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine, self._clock = engine, clock
        self._waiting: Turns[TimedEvent] = Turns(MOST)
        self._allowances: dict[str, Allowance] = {}
        self._muted: dict[tuple[str, Entity], float] = {}
        self._muted_shares = FairShare(MOST)
        self._overflowed: dict[str, float] = {}
        """users with a fence that could not be told, and when the others were told so"""
        self._mutes_looked_at = -inf
        self.wake: Callable[[], None] = lambda: None
        self.others: Callable[[str, Event, float, float], None] | None = None
        """who takes events that are none of quotas: who told it, what, its age, the time; ValueError for what is nothing"""
        self.told = self.heard = self.lost = 0
        engine.mutes.tell = self._mute
        engine.fence.tell = self._fence
        engine.producer_ids.tell = self._ids
        engine.owned.tell = self._topic
        engine.overload.tell = self.tell

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def life(self) -> float:
        """Seconds for which an event may be of interest."""
        return max(LIFE, self._engine.producer_ids.windows.seconds)

    def take(self, count: int) -> list[tuple[str, TimedEvent]]:
        """Events to tell now, each with its user and when it came, in turn; `put_back` what could not be told."""
        taken = self._waiting.take(count)
        self.told += len(taken)
        return taken

    def put_back(self, events: Sequence[tuple[str, TimedEvent]]) -> None:
        """These could not be told."""
        self.told -= len(events)
        self._waiting.put_back(events)

    def hear(self, who: str, events: Sequence[Event], age: float, now: float) -> None:
        """Events that another proxy sent `age` seconds ago. Unknown ones are left out: another version may have more kinds."""
        for event in events:
            try:
                self._hear(who, event, age, now)
            except (IndexError, TypeError, ValueError):
                continue
            self.heard += 1

    def _hear(self, who: str, event: Event, age: float, now: float) -> None:
        engine = self._engine
        match event:
            case ["ids", str(user), [*ids]] if all(type(id) is int and id >= 0 for id in ids):
                if age < engine.producer_ids.windows.seconds:
                    engine.producer_ids.learn(user, ids, now - age)
            case ["refused" | "still" as how, str(user), *rest]:
                if age < LIFE:
                    self._hear_refused(user, rest, now - age, still=how == "still")
            case ["admitted", str(user), int(id), int(epoch), int(sequence), str(topic), int(partition)]:
                engine.fence.learn_admitted(user, id, epoch, sequence, (topic, partition))
            case ["overflow", str(user)]:
                if age < LIFE:
                    engine.fence.learn_overflow(user, now - age)
            case ["mute", str(quota), user, client_id, topic, float(left) | int(left)]:
                if age < left:
                    until = now + min(left, engine.limits.max_throttle) - age
                    engine.mutes.learn(quota, Entity(_name(user), _name(client_id), _name(topic)), until)
            case ["topic", str(user), str(topic), int(partitions)] if partitions > 0:
                engine.owned.hear(user, topic, partitions, now)
            case ["overload", int(broker), int(window), [*wants]]:
                engine.overload.hear(who, broker, window, wants, now - age)
            case _ if self.others is not None:
                self.others(who, event, age, now)

    def _hear_refused(self, user: str, rest: Sequence[object], at: float, *, still: bool) -> None:
        match rest:
            case [int(id), int(epoch), int(sequence), str(topic), int(part), int(code), str(quota), bool(unsure)]:
                fence = self._engine.fence
                fence.learn_refused(user, id, epoch, sequence, (topic, part), code, quota, at, still=still, unsure=unsure)
            case _:
                raise ValueError(f"no refusal: {rest!r}")

    def tell(self, event: Event, user: str = NOBODY) -> bool:
        """Tell this as soon as that can be; False when it is lost, as its user has told too much."""
        now = self._clock()
        kept = (user == NOBODY or self._allowance(user, now).take(now)) and self._waiting.put(user, (now, event))
        self.lost += not kept
        self.wake()
        return kept

    def _ids(self, user: str, ids: list[int]) -> None:
        self.tell(["ids", user, ids], user)

    def _topic(self, user: str, topic: str, partitions: int) -> None:
        if self._engine.follows_owners:
            self.tell(["topic", user, topic, partitions], user)

    def _fence(self, what: str, user: str, *of: object) -> None:
        if not self.tell([what, user, *of], user) and what != "admitted":
            now = self._clock()
            if now >= self._overflowed.get(user, -inf) + LIFE / 3:
                if len(self._overflowed) >= MOST:
                    self._overflowed = {name: at for name, at in self._overflowed.items() if now < at + LIFE / 3}
                self._overflowed[user] = now
                self._waiting.put_back([(user, (now, ["overflow", user]))])

    def _mute(self, quota: str, entity: Entity, until: float) -> None:
        now, user = self._clock(), entity.user or NOBODY
        left = until - now
        told = self._muted.get((quota, entity), now) - now
        if left < MUTE or left < told * LONGER:
            return
        if not self._muted_shares.has_room(user):
            self._forget_mutes(now)
        if (quota, entity) in self._muted or self._muted_shares.take(user):
            self._muted[quota, entity] = until
        self.tell(["mute", quota, entity.user, entity.client_id, entity.topic, round(left, 3)], user)

    def _forget_mutes(self, now: float) -> None:
        """Those that are over; looks at all, so once in a while."""
        if now < self._mutes_looked_at + LOOK_EVERY:
            return
        self._mutes_looked_at = now
        for key in [key for key, end in self._muted.items() if end <= now]:
            del self._muted[key]
            self._muted_shares.give_back(key[1].user or NOBODY)

    def _allowance(self, user: str, now: float) -> Allowance:
        allowance = self._allowances.get(user)
        if allowance is None:
            if len(self._allowances) >= MOST:
                self._allowances = {name: one for name, one in self._allowances.items() if not one.full(now)}
            allowance = self._allowances[user] = Allowance(now)
        return allowance


class Allowance:
    """How many events a user may tell now: a token bucket."""

    __slots__ = ("_at", "_left")

    def __init__(self, now: float) -> None:
        self._left, self._at = BURST, now

    def take(self, now: float) -> bool:
        """May one more be told? Then it counts."""
        self._left, self._at = min(self._left + (now - self._at) * PER_SECOND, BURST), now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def full(self, now: float) -> bool:
        """Was nothing told for so long that it need not be remembered?"""
        return self._left + (now - self._at) * PER_SECOND >= BURST


def _name(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"a name is text, not {value!r}")
    return value
