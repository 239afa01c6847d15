"""Settings of tenants: who belongs to them, what they own, and their limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, create_model, model_validator

from configfile.base import Model, Name
from proxy.config.ledger import TOPIC
from proxy.config.limit_fields import limit_field
from proxy.config.topic_policy import TopicPolicySettings
from quota.catalogue import STORED, TENANT_ROWS, TOPIC_NUMBERS
from quota.keys import wrong_together
from quota.tenants import TENANT_NAME, Tenant, Tenants

TenantName = Annotated[str, Field(pattern=f"^{TENANT_NAME}$")]
MAX_TENANTS: Final = 10_000
_OF_TOPICS: Final = frozenset(row.name for row in TENANT_ROWS if row in TOPIC_NUMBERS or row.kind == STORED)
"""Limits that a tenant may have without users, as they are about its topics."""


class _TenantMembers(Model):
    users: list[Name] = Field(default_factory=list)
    """Names of users, as in the principal `User:name`. A user can be listed in one tenant only."""
    user_prefixes: list[Name] = Field(default_factory=list)
    """Beginnings of names of users: `payments-` for `payments-etl`. A listed name goes before a prefix, the longest prefix before
    shorter ones; no two tenants can have the same."""
    topic_prefixes: list[Name] = Field(default_factory=list)
    """Beginnings of names of topics that the tenant owns, likewise: the longest prefix wins."""

    topic_policy: TopicPolicySettings = TopicPolicySettings()
    """What requests may give to its topics. Each rule holds in the place of the same one of `quotas.topic_policy`."""

    def limits(self) -> dict[str, float]:
        """The limits that are set, by the names of their keys."""
        given = {row.name: getattr(self, row.name) for row in TENANT_ROWS}
        return {name: float(value) for name, value in given.items() if value is not None}

    @model_validator(mode="after")
    def _consistent(self) -> _TenantMembers:
        if (wrong := wrong_together(self.limits())) is not None:
            raise ValueError(wrong)
        return self

    def members(self) -> Tenant:
        return Tenant(tuple(self.users), tuple(self.user_prefixes), tuple(self.topic_prefixes))


if TYPE_CHECKING:
    TenantSettings = _TenantMembers
else:
    TenantSettings = create_model(
        "TenantSettings",
        __base__=_TenantMembers,
        __module__=__name__,
        __doc__="""A group of users that shares limits, and owns topics. Limits of its users and client ids hold beside these: the
    tightest wins.""",
        **{row.name: limit_field(row, row.name) for row in TENANT_ROWS},
    )


def tenants_of(settings: Mapping[str, TenantSettings]) -> Tenants:
    """Who belongs to which tenant. ValueError where a user or a prefix is of two."""
    return Tenants({name: one.members() for name, one in settings.items()})


def useless(settings: Mapping[str, TenantSettings]) -> list[str]:
    """What stands in these settings and has no effect."""
    notes = []
    for name, one in settings.items():
        notes += [
            f"`tenants.{name}.topic_prefixes`: no topic begins with `{prefix}`, as names of topics cannot"
            for prefix in one.topic_prefixes
            if not re.match(TOPIC, prefix)
        ]
        if one.limits().keys() - _OF_TOPICS and not (one.users or one.user_prefixes):
            notes.append(f"`tenants.{name}` has limits and no users: set `users` or `user_prefixes`")
        if one.limits().keys() & _OF_TOPICS and not (one.users or one.user_prefixes or one.topic_prefixes):
            notes.append(f"`tenants.{name}` limits topics and can own none: set `topic_prefixes`, or its users")
        for user in one.users:
            if tenants_of({name: one.model_copy(update={"users": []})}).of_user(user) == name:
                notes.append(f"`tenants.{name}.users`: `{user}` begins with one of its `user_prefixes` already")
    return notes
