"""What proxies tell each other at once, as it does not add up: new producer ids, refused batches that have to come first (fences),
long mutes. So nobody escapes by coming to another proxy, and no id counts twice.

In: an engine. Out: events to tell, plain lists of texts and numbers; the other way round, events of others come to hold here.
It leaves to others: how they get there, in the order in which each proxy tells them. What comes twice changes nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from quota.engine import Engine
from quota.entity import Entity
from quota.fence import LIFE

MOST: Final = 20_000
"""Events that wait to be told; the oldest are lost beyond that."""
MUTE: Final = 1.0
"""Seconds that a mute has to last to be told: what it lets pass elsewhere is a request of each connection."""
ALIKE: Final = 0.1
"""Seconds within which events came that are told together, as of the same age."""
LONGER: Final = 1.25
"""How much longer it has to become to be told again."""

Event = list[Any]
"""[what, ...]: `ids`, user, ids; `refused`, id, epoch, sequence, topic, partition, error code, quota; `still`, the same, as it is
refused still; `admitted`, id, epoch, sequence, topic, partition; `mute`, quota, user, client id, topic, seconds left."""


class News:
    """The events of one engine. `wake` is called when there is one to be told."""

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine, self._clock = engine, clock
        self._waiting: deque[tuple[float, Event]] = deque(maxlen=MOST)
        """when each came, and what"""
        self._muted: dict[tuple[str, Entity], float] = {}
        self.wake: Callable[[], None] = lambda: None
        self.others: Callable[[str, Event, float, float], None] | None = None
        """who takes events that are none of quotas: who told it, what, its age, the time; ValueError for what is nothing"""
        self.told = self.heard = self.lost = 0
        engine.mutes.tell = self._mute
        engine.fence.tell = self._fence
        engine.producer_ids.tell = self._ids

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def life(self) -> float:
        """Seconds for which an event may be of interest."""
        return max(LIFE, self._engine.producer_ids.windows.seconds)

    def take(self, most: int) -> tuple[float, list[Event]]:
        """Events to tell now, the oldest first, and when they came; `put_back` what could not be told."""
        waiting = self._waiting
        since = waiting[0][0] if waiting else self._clock()
        taken: list[Event] = []
        while waiting and len(taken) < most and waiting[0][0] - since <= ALIKE:
            taken.append(waiting.popleft()[1])
        self.told += len(taken)
        return since, taken

    def put_back(self, since: float, events: Sequence[Event]) -> None:
        """These could not be told."""
        room = MOST - len(self._waiting)
        kept = events[-room:] if room else []
        self.lost += len(events) - len(kept)
        self.told -= len(events)
        self._waiting.extendleft((since, event) for event in reversed(kept))

    def hear(self, who: str, events: Sequence[Event], age: float, now: float) -> None:
        """What another proxy told `age` seconds ago. What nobody can read is left out: another version may tell more."""
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
            case [("refused" | "still") as how, int(id), int(epoch), int(sequence), str(topic), int(part), int(code), str(quota)]:
                if age < LIFE:
                    still = how == "still"
                    engine.fence.learn_refused(id, epoch, sequence, (topic, part), code, quota, now - age, still=still)
            case ["admitted", int(id), int(epoch), int(sequence), str(topic), int(partition)]:
                engine.fence.learn_admitted(id, epoch, sequence, (topic, partition))
            case ["mute", str(quota), user, client_id, topic, float(left) | int(left)]:
                if age < left:
                    until = now + min(left, engine.limits.max_throttle) - age
                    engine.mutes.learn(quota, Entity(_name(user), _name(client_id), _name(topic)), until)
            case _ if self.others is not None:
                self.others(who, event, age, now)

    def tell(self, event: Event) -> None:
        """Tell this as soon as that can be."""
        if len(self._waiting) == MOST:
            self.lost += 1
        self._waiting.append((self._clock(), event))
        self.wake()

    def _ids(self, user: str, ids: list[int]) -> None:
        self.tell(["ids", user, ids])

    def _fence(self, what: str, *of: object) -> None:
        self.tell([what, *of])

    def _mute(self, quota: str, entity: Entity, until: float) -> None:
        now = self._clock()
        left = until - now
        told = self._muted.get((quota, entity), now) - now
        if left < MUTE or left < told * LONGER:
            return
        if len(self._muted) >= MOST:
            self._muted = {key: end for key, end in self._muted.items() if end > now}
        if len(self._muted) < MOST:
            self._muted[quota, entity] = until
        self.tell(["mute", quota, entity.user, entity.client_id, entity.topic, round(left, 3)])


def _name(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"a name is text, not {value!r}")
    return value
