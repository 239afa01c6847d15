"""The quotas of the settings as the engine wants them."""

from __future__ import annotations

from proxy.config.models import Settings
from quota.book import QuotaBook
from quota.engine import Exempt, Limits
from quota.entity import Entity
from quota.kinds.controller_mutations import Algorithm, MutationLimit


def limits_of(settings: Settings) -> Limits:
    """The quota book of these settings."""
    algorithm = Algorithm(settings.quotas.controller_mutations_algorithm)
    mutations = {
        Entity(entity.user, entity.client_id): MutationLimit.of(
            entity.controller_mutations_rate, entity.controller_mutations_burst, algorithm
        )
        for entity in settings.quotas.entities
        if entity.controller_mutations_rate is not None
    }
    exempt = settings.exempt
    return Limits(
        controller_mutations=QuotaBook(mutations),
        max_throttle=settings.limits.max_throttle,
        exempt=Exempt(frozenset(exempt.users), frozenset(exempt.client_ids), frozenset(exempt.topics)),
    )
