"""What a kind of quota says of one request. Values only: the session applies them, observers log them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

from quota.entity import Entity

K = TypeVar("K")
S = TypeVar("S")


class Action(Enum):
    """What happened to the items of a decision."""

    REFUSE = "refuse"
    THROTTLE = "throttle"
    HOLD = "hold"


@dataclass(frozen=True, slots=True)
class Decision:
    """Somebody is over a limit: which quota, whose, by how much, and what follows.

    `items` are indices into the request (topics, in its order). `usage` and `limit` are in the quota's unit, `throttle` in seconds.
    """

    quota: str
    action: Action
    entity: Entity
    items: tuple[int, ...]
    usage: float
    limit: float
    throttle: float
    message: str
    left: float = 0.0
    """what may still be used until the limit is reached, in the quota's unit"""


class Standing(NamedTuple):
    """How an entity stands, in the unit of its quota: what it uses, what it may, and what is left of that."""

    usage: float
    limit: float
    left: float


class Busiest(NamedTuple, Generic[K, S]):
    """Those that are shown, the busiest first, and what the others use together, in the unit of their quota."""

    shown: list[tuple[K, S]]
    others: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for a whole request: `charged` units were recorded; `decision` is None when every item is within its limit."""

    charged: int
    decision: Decision | None = None
    receipt: object = None
    """for the kind to take back what did not happen"""


def figure(value: float) -> str:
    """For messages: three significant digits for small figures, whole ones for large, never an exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
