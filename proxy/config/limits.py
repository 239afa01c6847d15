"""The quotas of the settings as the engine wants them."""

from __future__ import annotations

from collections.abc import Callable

from proxy.config.models import EntityQuota, Settings
from quota.book import QuotaBook
from quota.engine import Exempt, Limits, Mode
from quota.entity import Entity
from quota.kinds.bytes_in import TopicLimits
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, Windows, user_book
from quota.kinds.rates import RateLimit


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
        Entity(entity.user, None): ProducerIdLimit(entity.producer_ids_rate, IdMode(settings.quotas.producer_ids.mode))
        for entity in settings.quotas.entities
        if entity.producer_ids_rate is not None
    }
    exempt, topics = settings.exempt, settings.quotas.topics
    return Limits(
        controller_mutations=QuotaBook(mutations),
        max_throttle=settings.limits.max_throttle,
        exempt=Exempt(frozenset(exempt.users), frozenset(exempt.client_ids), frozenset(exempt.topics)),
        producer_ids=user_book(ids),
        count_unlimited=settings.quotas.producer_ids.count_unlimited,
        cleanup_interval=settings.quotas.producer_ids.cleanup_interval,
        hold_new_ids=settings.quotas.producer_ids.hold_new,
        producer_byte_rate=_rates(settings, lambda entity: entity.producer_byte_rate),
        consumer_byte_rate=_rates(settings, lambda entity: entity.consumer_byte_rate),
        request_rate=_rates(settings, lambda entity: entity.request_rate),
        topics=None if topics is None else TopicLimits(topics.total_bytes_in_per_sec, topics.bytes_in_per_sec, topics.meter),
        topics_mode=Mode.TRANSIENT if topics is None else Mode(topics.mode),
    )


def _rates(settings: Settings, rate_of: Callable[[EntityQuota], float | None]) -> QuotaBook[RateLimit]:
    """The limits of one kind of rate."""
    rates = {Entity(entity.user, entity.client_id): rate_of(entity) for entity in settings.quotas.entities}
    return QuotaBook({entity: RateLimit(rate) for entity, rate in rates.items() if rate is not None})


def windows_of(settings: Settings) -> Windows:
    """How these settings have producer ids remembered."""
    ids = settings.quotas.producer_ids
    return Windows(ids.window_size, ids.window_num, ids.false_positive_rate)
