"""The quotas of the settings as the engine wants them."""

from __future__ import annotations

from proxy.config.models import Settings
from quota.book import QuotaBook
from quota.engine import Exempt, Limits
from quota.entity import Entity
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.kinds.producer_ids import ProducerIdLimit, Windows, user_book


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
    ids = {
        Entity(entity.user, None): ProducerIdLimit(entity.producer_ids_rate)
        for entity in settings.quotas.entities
        if entity.producer_ids_rate is not None
    }
    exempt = settings.exempt
    return Limits(
        controller_mutations=QuotaBook(mutations),
        max_throttle=settings.limits.max_throttle,
        exempt=Exempt(frozenset(exempt.users), frozenset(exempt.client_ids), frozenset(exempt.topics)),
        producer_ids=user_book(ids),
        count_unlimited=settings.quotas.producer_ids.count_unlimited,
        cleanup_interval=settings.quotas.producer_ids.cleanup_interval,
    )


def windows_of(settings: Settings) -> Windows:
    """How these settings have producer ids remembered."""
    ids = settings.quotas.producer_ids
    return Windows(ids.window_size, ids.window_num, ids.false_positive_rate)
