"""Faults: what a schedule consists of. In: a seed's chance. Out: faults with their times, which `World` makes happen."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, NamedTuple

LAST: Final = 8.0
"""Seconds that a fault lasts at most."""


class Fault(NamedTuple):
    """`seconds` it lasts, where it lasts; `which` chooses its object; `number` is all else that it is about."""

    at: float
    kind: str
    seconds: float
    which: int
    number: int

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  {self.kind} {self.which} ({self.seconds:.3f} s, {self.number})"


KINDS: Final = {
    "cut a connection": 12,
    "cut half of all connections": 1,
    "kill a broker": 2,
    "move a leader": 4,
    "kill a proxy": 2,
    "restart a proxy": 2,
    "slow down a node": 3,
    "store away": 3,
    "store away for one": 2,
    "store loses answers": 2,
    "store empty": 1,
    "store rolled back": 1,
    "clock jumps": 2,
    "disk fills": 2,
    "settings change": 4,
    "topic deleted": 2,
    "producer begins anew": 8,
    "nonsense": 4,
    "half a request": 3,
    "many connections": 2,
    "many requests": 3,
}
"""Kinds, and how often each comes among the others."""


def some_kinds(chance: Random) -> list[str]:
    """A third of the kinds: what one of them hides, as a restart hides what is not forgotten, shows where that one is left out."""
    return chance.sample(list(KINDS), len(KINDS) // 3)


def schedule(chance: Random, start: float, stop: float, every: float, kinds: Sequence[str] = tuple(KINDS)) -> list[Fault]:
    """Faults of these kinds in this time. `every`: seconds from one to the next, on average."""
    found, now = [], start
    while (now := now + chance.expovariate(1 / every)) < stop:
        kind = chance.choices(kinds, [KINDS[kind] for kind in kinds])[0]
        found.append(Fault(now, kind, chance.uniform(0.05, LAST), chance.randrange(1 << 16), chance.randrange(1 << 30)))
    return found
