"""Plan: who there is in a generated log. In: sizes and a seed. Out: tenants, topics, volumes, as values.

Tenants follow Zipf's law: the first has most traffic and most topics. A volume's used bytes are a straight line with a weekly wave
on it, so that the day on which it is full is known (`Volume.full_on_day`).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

DAY = 86_400
GIB = 1 << 30
WEEKEND = 0.45
"""What a Saturday or Sunday has of a working day's traffic."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """One principal with its client ids and topics; `rate` is bytes per second that it produces on an average working day."""

    principal: str
    client_ids: tuple[str | None, ...]
    topics: tuple[str, ...]
    rate: float
    fan_out: float
    """bytes fetched for each byte produced"""
    growth: float
    """part by which the rate grows in a week"""


@dataclass(frozen=True, slots=True)
class Volume:
    """One log dir of a broker. Sizes in bytes, `per_day` > 0 bytes."""

    broker_id: int
    log_dir: str
    total: int
    start: int
    per_day: int
    limit: int
    soft_limit: int
    wave: float
    """height of the weekly wave, as part of a day's growth"""
    noise: float
    """standard deviation of the noise, as part of a day's growth"""

    def used(self, day: float, chance: random.Random) -> int:
        """Bytes used `day` days after the start."""
        wobble = self.wave * math.sin(2 * math.pi * day / 7) + self.noise * chance.gauss(0, 1)
        return max(0, min(self.total, round(self.start + self.per_day * (day + wobble))))

    def day_of(self, used: float) -> float:
        """Days after the start on which the line, without wave and noise, is at `used` bytes."""
        return (used - self.start) / self.per_day


@dataclass(frozen=True, slots=True)
class Plan:
    """Who there is."""

    tenants: tuple[Tenant, ...]
    volumes: tuple[Volume, ...]


def make_plan(tenants: int, brokers: int, seed: int, *, skew: float = 1.1, most_topics: int = 40) -> Plan:
    """`skew` is the exponent of Zipf's law; `most_topics` is what the first tenant has."""
    chance = random.Random(seed)
    return Plan(
        tuple(_tenant(rank, tenants, skew, most_topics, chance) for rank in range(1, tenants + 1)),
        tuple(_volume(broker, part, chance) for broker in range(1, brokers + 1) for part in (1, 2)),
    )


def _tenant(rank: int, count: int, skew: float, most_topics: int, chance: random.Random) -> Tenant:
    name = f"tenant-{rank:0{len(str(count))}d}"
    topics = max(1, round(most_topics / rank**skew))
    clients: tuple[str | None, ...] = (f"{name}-app", f"{name}-loader") if topics > 3 else (chance.choice((f"{name}-app", None)),)
    return Tenant(
        f"User:{name}",
        clients,
        tuple(f"{name}.events-{index}" for index in range(topics)),
        2e7 / rank**skew,
        chance.choice((0.5, 1.0, 1.0, 3.0)),
        chance.uniform(-0.01, 0.06),
    )


def _volume(broker: int, part: int, chance: random.Random) -> Volume:
    total = 2000 * GIB
    per_day = round(chance.uniform(6, 22) * GIB)
    return Volume(
        broker, f"/data/{part}", total, round(total * chance.uniform(0.45, 0.6)), per_day, total // 10, total // 5, 0.8, 0.15
    )
