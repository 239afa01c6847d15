"""Which faults happen, and to whom. In: a seed, kinds, seconds. Out: faults, the same for the same seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

BROKERS: Final = 3
PROXIES: Final = 2
WORKERS: Final = 2


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to fail. `of`: how many it may happen to; `longest`: seconds that it lasts at most, beside what it takes
    to come back; `proxies`: it needs proxies; `back`: seconds to come back, about, on a busy machine."""

    name: str
    of: int
    longest: float = 0.0
    proxies: bool = True
    back: float = 0.0


KINDS: Final = (
    Kind("broker killed", BROKERS, 6.0, proxies=False, back=15.0),
    Kind("broker frozen", BROKERS, 10.0, proxies=False),
    Kind("brokers restarted one by one", 1, proxies=False, back=45.0),
    Kind("network of a broker cut", BROKERS, 8.0, proxies=False),
    Kind("network of a broker slow", BROKERS, 10.0, proxies=False),
    Kind("connections of a broker reset", BROKERS, proxies=False),
    Kind("disk filled up to its limit", BROKERS, 6.0),
    Kind("proxy killed", PROXIES, 4.0, back=10.0),
    Kind("proxy frozen", PROXIES, 8.0),
    Kind("worker killed", PROXIES * WORKERS),
    Kind("worker frozen", PROXIES * WORKERS, 8.0),
    Kind("proxies restarted one by one", 1, back=45.0),
    Kind("ledger killed", 1, 5.0),
    Kind("ledger frozen", 1, 5.0),
    Kind("certificate changed", 1),
)
SHORTEST: Final = 0.5
"""Seconds that a fault lasts at least, where it lasts."""
PAUSES: Final = (1.0, 6.0)
"""Seconds between two faults, at least and at most: sometimes clients have just come back, sometimes they have not."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault, `pause` seconds after the one before. `target` counts from 0."""

    kind: Kind
    pause: float
    target: int
    seconds: float


def schedule(seed: int, kinds: Sequence[Kind] = KINDS) -> Iterator[Planned]:
    """Without end. Each kind comes once before any comes again."""
    chance = random.Random(seed)
    while True:
        for kind in chance.sample(kinds, len(kinds)):
            seconds = chance.uniform(SHORTEST, kind.longest) if kind.longest else 0.0
            yield Planned(kind, chance.uniform(*PAUSES), chance.randrange(kind.of), seconds)
