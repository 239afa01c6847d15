"""Brokers that are arithmetic, for the controller of the overload quota. In: users, a capacity, a latency without load. Out: what
the controller sees each second, and what follows.

A broker does `capacity` bytes per second. What is under way waits in one queue, so each answer takes the latency without load and
the time for the queue. A user has so many bytes under way at most, as clients have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Final

from quota.overload import Controller, Goal, Seen, latency_of

TICK: Final = 0.1
Sensor = Callable[[Random, float], float | None]


def right(_: Random, latency: float) -> float | None:
    return latency


@dataclass
class User:
    """`asks`: bytes per second, infinite for one that floods. `window`: bytes that it has under way at most."""

    asks: float
    window: float
    weight: float = 1.0
    waiting: float = 0.0


@dataclass(frozen=True)
class Second:
    """What went on in it, by user; the latency of the broker; the level then."""

    sent: tuple[float, ...]
    latency: float | None
    level: float

    @property
    def total(self) -> float:
        return sum(self.sent)


class Plant:
    """A broker with its controller. Whatever stands here may be changed between two seconds."""

    def __init__(self, rng: Random, goal: Goal, users: list[User], capacity: float, quiet: float, sensor: Sensor = right) -> None:
        self.rng, self.users, self.sensor = rng, users, sensor
        self.capacity, self.quiet = capacity, quiet
        self.jitter = 0.05
        self.controller = Controller(goal)

    def run(self, seconds: int) -> list[Second]:
        return [self._second() for _ in range(seconds)]

    def _second(self) -> Second:
        rng, users, level = self.rng, self.users, self.controller.level
        capacity = self.capacity * (1 + self.jitter * rng.uniform(-1, 1))
        sent = [0.0] * len(users)
        took: list[float] = []
        for _ in range(round(1 / TICK)):
            for i, user in enumerate(users):
                room = max(user.window - user.waiting, 0.0)
                going = min(user.asks * TICK, level * user.weight * TICK, room)
                user.waiting += going
                sent[i] += going
            queue = sum(user.waiting for user in users)
            left = max(1 - capacity * TICK / queue, 0.0) if queue else 0.0
            took.append(self.quiet * (1 + 0.2 * rng.random()) + left * queue / capacity)
            for user in users:
                user.waiting *= left
        quick = sorted(took)[len(took) // 10]
        seen = [
            Seen(amount, self.sensor(rng, quick * rng.uniform(0.95, 1.05)) if amount else None, user.weight)
            for amount, user in zip(sent, users, strict=True)
        ]
        self.controller.step(seen)
        return Second(tuple(sent), latency_of(seen), level)


def flooded(rng: Random, sensor: Sensor = right) -> Plant:
    """A broker that some flood and others ask for little, whatever its size."""
    target, capacity = rng.uniform(0.03, 1.0), 10 ** rng.uniform(6, 9)
    small = [
        User(capacity * rng.uniform(0.005, 0.025), capacity * target, rng.choice((1.0, 1.0, 2.0))) for _ in range(rng.randint(1, 4))
    ]
    floods = rng.randint(1, 5)
    window = capacity * target * rng.uniform(2.5, 10) / floods
    flooding = [User(inf, window, rng.choice((1.0, 1.0, 3.0))) for _ in range(floods)]
    return Plant(rng, Goal(target, capacity / 10_000), [*small, *flooding], capacity, target * rng.uniform(0.02, 0.35), sensor)
