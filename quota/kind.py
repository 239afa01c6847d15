"""What a kind of quota is to the engine. A kind is one file in `quota/kinds/` that fulfils `Kind`; one with limits of users and
client ids fulfils `EntityKind` too. docs/adding-a-quota.md adds one, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from quota.decision import Standing, Verdict
from quota.ledger import Sums
from quota.limit_table import ResolvedLimit
from quota.limits import Limits

L = TypeVar("L")


class Kind(Protocol):
    """`name` as decisions, `quotas.observe` and metrics have it; `title` for messages."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...

    def configure(self, limits: Limits, /) -> None:
        """These limits hold from now on. What was used stays used."""

    def sweep(self, now: float) -> None:
        """Forget what has passed. A call takes a bounded time."""

    def publish(self) -> Sequence[Sums]:
        """The proxies of a fleet share this quota from now on. Returns what they add up (`quota.ledger`); nothing where they tell
        each other of events instead, or where each of them sees the same by itself."""


class LimitedKind(Kind, Protocol[L]):
    """A kind with limits of users, client ids or tenants."""

    def find(self, user: str, client_id: str, *, client_ids: bool = True) -> ResolvedLimit[L] | None:
        """The limit that holds for a client; None without one. `client_ids` False: limits of client ids alone do not hold."""

    def stands(self, found: ResolvedLimit[L], now: float) -> Standing:
        """How the owner of a limit stands. A look records nothing."""


class EntityKind(LimitedKind[L], Protocol[L]):
    """One that requests are charged to."""

    def charge(self, found: ResolvedLimit[L], items: Sequence[int], now: float) -> Verdict:
        """Charge one request. `items`: for each of its items the amount, or the producer id. The throttle is not capped."""
