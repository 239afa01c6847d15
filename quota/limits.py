"""All that operators limit. In: tables of limits by kind, who is exempt, what is observed only. Out: what each kind asks of it when
limits change (`quota.kind.Kind.configure`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from quota.decision import Action
from quota.limit_table import LimitTable

S = TypeVar("S")

NO_LIMITS: Final[LimitTable[Any]] = LimitTable({})


@dataclass(frozen=True, slots=True)
class Exempt:
    """Who and what is never limited. A client id is whatever a client claims: alone it exempts from limits of client ids only."""

    users: frozenset[str] = frozenset()
    client_ids: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    clients: frozenset[tuple[str, str]] = frozenset()
    """(user, client id)"""

    def everywhere(self, user: str, client_id: str) -> bool:
        """Is this client not limited by anything?"""
        return user in self.users or (user, client_id) in self.clients


@dataclass(frozen=True, slots=True)
class Limits:
    """`tables`: limits of users and client ids, by the name of the kind. `options`: what kinds have besides, at most one of each
    class. `max_throttle`: seconds that any throttle lasts at most; debt beyond it stays in its window."""

    tables: Mapping[str, LimitTable[Any]] = field(default_factory=dict)
    options: tuple[object, ...] = ()
    max_throttle: float = 30.0
    exempt: Exempt = Exempt()
    observed: Mapping[str, Action] = field(default_factory=dict)
    """Kinds that are computed and not enforced, by name, and what each would do. Where that is to refuse, limits have to be such
    that nothing is refused: what goes on all the same counts all the same."""

    def table(self, kind: str) -> LimitTable[Any]:
        """The limits of one kind."""
        return self.tables.get(kind, NO_LIMITS)

    def option(self, of: type[S]) -> S | None:
        """What a kind has besides; None where operators have set nothing."""
        return next((option for option in self.options if isinstance(option, of)), None)
