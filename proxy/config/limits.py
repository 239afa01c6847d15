"""The quotas of the settings as the engine wants them."""

from __future__ import annotations

from collections.abc import Callable

from proxy.config.models import EntityQuota, Settings
from proxy.config.storage import AvailableLimit, UsedLimit
from quota.book import QuotaBook
from quota.engine import Exempt, Limits, Mode
from quota.entity import Entity
from quota.kinds.bytes_in import TopicLimits
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, Windows, user_book
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Scope, StorageLimits


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
        storage=storage_of(settings),
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


def storage_of(settings: Settings) -> StorageLimits | None:
    """The storage quota of these settings; None when it is off."""
    storage = settings.quotas.storage
    if storage is None or not storage.on:
        return None
    hard, soft = _used(storage.max_used) if storage.max_used is not None else _available(*(storage.limits or ()))
    return StorageLimits(
        hard,
        soft,
        fallback=storage.fallback_throttle_factor,
        validity=storage.throttle_factor_validity,
        scope=Scope(storage.scope),
        margin=storage.release_margin,
        warn_before=storage.warn_before,
        hold=storage.when_full == "hold",
        interval=storage.check_interval,
    )


def _available(hard: AvailableLimit, soft: AvailableLimit) -> tuple[Below, Below]:
    return Below(hard.min_available_bytes, hard.min_available_ratio), Below(soft.min_available_bytes, soft.min_available_ratio)


def _used(limit: UsedLimit) -> tuple[Below, Below]:
    """All log dirs together are one volume as large as the hard limit, of which the rest is available."""
    return Below(0.0), Below(float(limit.hard - (limit.hard if limit.soft is None else limit.soft)))
