"""Where quotas are described and altered, as sessions see it. `upstream.dynamic_quotas` implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from proxy.session.pending import Pending
from proxy.session.requester import Requester
from quota.entity import Entity
from quota.keys import Values
from quota.overrides import NOTHING, Change, Table


class Refusal(NamedTuple):
    """Why something is not done: Kafka's error code, and a message for people."""

    error: int
    message: str


class Alteration(Pending):
    """Quotas that are being altered. `refusal` is None when it is done and all proxies will follow."""

    __slots__ = ("refusal",)

    def __init__(self) -> None:
        super().__init__()
        self.refusal: Refusal | None = None


class DynamicQuotas(Protocol):
    """The proxy's own quotas."""

    @property
    def table(self) -> Table:
        """The limits in force."""

    def may_alter(self, user: str) -> bool:
        """Is this user one of `quotas.admins`?"""

    def closed(self) -> Refusal | None:
        """Why nothing can be altered now; None when it can."""

    def outlook(self, changes: Sequence[Change]) -> Mapping[Entity, Values]:
        """What entities of these changes would have then, of both layers."""

    def alter(self, changes: Sequence[Change], by: Requester) -> Alteration:
        """Make these changes, which are right."""


class NoDynamicQuotas:
    """There are no quotas, and none can be set."""

    table: Table = NOTHING

    def may_alter(self, user: str) -> bool:  # noqa: ARG002
        return False

    def closed(self) -> Refusal | None:
        return Refusal(42, "This proxy takes no quotas.")

    def outlook(self, changes: Sequence[Change]) -> Mapping[Entity, Values]:  # noqa: ARG002
        return NOTHING

    def alter(self, changes: Sequence[Change], by: Requester) -> Alteration:
        raise NotImplementedError


NO_DYNAMIC_QUOTAS: Final[DynamicQuotas] = NoDynamicQuotas()
