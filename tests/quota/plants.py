"""Brokers that are arithmetic, for the controller of the overload quota. In: users, a capacity, a latency without load. Out: what
the controller sees each second, and what follows.

A broker does `capacity` bytes per second. What is under way waits in one queue, so each answer takes the latency without load and
the time for the queue. A user has so many bytes under way at most, as clients have, and no more than its window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf
from random import Random
from typing import Final

from quota.overload import Controller, Goal, Seen, latency_of

TICKS: Final = 5
"""Looks at the queue within the time of the target."""
Sensor = Callable[[Random, float], float | None]


def right(_: Random, latency: float) -> float | None:
    return latency


@dataclass
class User:
    """`asks`: bytes per second, infinite for one that floods. `most`: bytes that it has under way at most."""

    asks: float
    most: float
    weight: float = 1.0
    waiting: float = 0.0
    answering: float = 0.0


@dataclass(frozen=True)
class Second:
    """What was done in it, by user; the latency of the broker; the window then; who was held."""

    done: tuple[float, ...]
    latency: float | None
    window: float
    held: tuple[bool, ...]

    @property
    def total(self) -> float:
        return sum(self.done)


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
        rng, users, window = self.rng, self.users, self.controller.window
        capacity = self.capacity * (1 + self.jitter * rng.uniform(-1, 1))
        sent, done, held = [0.0] * len(users), [0.0] * len(users), [False] * len(users)
        took: list[float] = []
        ticks = ceil(TICKS / min(self.controller.goal.target, 0.5))
        for _ in range(ticks):
            for i, user in enumerate(users):
                under_way = user.waiting + user.answering
                wanted = min(user.asks / ticks, max(user.most - under_way, 0.0))
                going = min(wanted, max(window * user.weight - under_way, 0.0))
                held[i] |= going < wanted
                user.waiting += going
                sent[i] += going
            queue = sum(user.waiting for user in users)
            left = max(1 - capacity / ticks / queue, 0.0) if queue else 0.0
            took.append(self.quiet * (1 + 0.2 * rng.random()) + left * queue / capacity)
            for i, user in enumerate(users):
                done[i] += user.waiting * (1 - left)
                user.answering = user.waiting * (1 - left) * ticks * self.quiet
                user.waiting *= left
        took.sort()
        quick, half = took[len(took) // 10], took[len(took) // 2]
        told = [self.sensor(rng, quick * rng.uniform(0.95, 1.05)) if done[i] else None for i in range(len(users))]
        halves = [None if latency is None else latency * half / quick for latency in told]
        seen = [Seen(sent[i], told[i], user.weight, held[i], halves[i]) for i, user in enumerate(users)]
        self.controller.step(seen)
        return Second(tuple(done), latency_of(seen), window, tuple(held))


def flooded(rng: Random, sensor: Sensor = right) -> Plant:
    """A broker that some flood and others ask for little, whatever its size."""
    target, capacity = rng.uniform(0.03, 1.0), 10 ** rng.uniform(6, 9)
    small = [
        User(capacity * rng.uniform(0.005, 0.025), capacity * target, rng.choice((1.0, 1.0, 2.0))) for _ in range(rng.randint(1, 4))
    ]
    floods = rng.randint(1, 5)
    most = capacity * target * rng.uniform(2.5, 10) / floods
    flooding = [User(inf, most, rng.choice((1.0, 1.0, 3.0))) for _ in range(floods)]
    return Plant(rng, Goal(target, capacity / 10_000), [*small, *flooding], capacity, target * rng.uniform(0.02, 0.35), sensor)
