"""The quotas of the settings as the engine wants them, with what was set while the proxy runs on top."""

from __future__ import annotations

from functools import lru_cache
from typing import get_args

from proxy.config.models import Kind, Settings
from proxy.config.storage import AvailableLimit, UsedLimit
from quota.catalogue import MUTATIONS_BURST, MUTATIONS_RATE, PRODUCER_IDS_RATE, SETTINGS
from quota.decision import Action
from quota.engine import Exempt, Limits, Mode
from quota.entity import Entity
from quota.kinds.bytes_in import TopicLimits
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, Windows, user_limit_table
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Scope, StorageLimits
from quota.limit_table import LimitTable
from quota.overrides import Table


def table_of(settings: Settings) -> Table:
    """The limits of these settings, by the names that they have in the protocol."""
    return {Entity(entity.user, entity.client_id): entity.limits() for entity in settings.quotas.entities}


def limits_of(settings: Settings, table: Table | None = None) -> Limits:
    """The quota limits of these settings, with the limits of a table in the place of their own."""
    if table is None:
        table = table_of(settings)
    algorithm = Algorithm(settings.quotas.controller_mutations_algorithm)
    mutations = {
        entity: _mutations(values[MUTATIONS_RATE], values.get(MUTATIONS_BURST), algorithm)
        for entity, values in table.items()
        if MUTATIONS_RATE in values
    }
    observed = observed_of(settings)
    mode = IdMode.THROTTLE if "producer_ids" in observed else IdMode(settings.quotas.producer_ids.mode)
    ids = {entity: _ids(values[PRODUCER_IDS_RATE], mode) for entity, values in table.items() if PRODUCER_IDS_RATE in values}
    exempt, topics = settings.exempt, settings.quotas.topics
    return Limits(
        controller_mutations=LimitTable(mutations),
        max_throttle=settings.limits.max_throttle,
        exempt=Exempt(
            frozenset(exempt.users),
            frozenset(exempt.client_ids),
            frozenset(exempt.topics),
            frozenset((client.user, client.client_id) for client in exempt.clients),
        ),
        producer_ids=user_limit_table(ids),
        count_unlimited=settings.quotas.producer_ids.count_unlimited,
        cleanup_interval=settings.quotas.producer_ids.cleanup_interval,
        storage=storage_of(settings),
        hold_new_ids=settings.quotas.producer_ids.hold_new,
        producer_byte_rate=_rates(table, "producer_byte_rate"),
        consumer_byte_rate=_rates(table, "consumer_byte_rate"),
        request_rate=_rates(table, "request_rate"),
        topics=None if topics is None else TopicLimits(topics.total_bytes_in_per_sec, topics.bytes_in_per_sec, topics.meter),
        topics_mode=Mode.TRANSIENT if topics is None else Mode.THROTTLE if "bytes_in" in observed else Mode(topics.mode),
        observed=observed,
    )


def observed_of(settings: Settings) -> dict[str, Action]:
    """The quotas that are only observed, and what each would do if it were not."""
    quotas = settings.quotas
    kinds = get_args(Kind) if quotas.observe is True else quotas.observe or ()
    refuses = {
        "producer_ids": quotas.producer_ids.mode == "reject",
        "bytes_in": quotas.topics is not None and quotas.topics.mode != "throttle",
    }
    return {kind: Action.REFUSE if refuses.get(kind) else Action.THROTTLE for kind in kinds}


def _rates(table: Table, setting: str) -> LimitTable[RateLimit]:
    """The limits of one kind of rate, by its name in the settings."""
    key = SETTINGS[setting].name
    return LimitTable({entity: _rate(values[key]) for entity, values in table.items() if key in values})


# The same limit is the same object, which tells books apart at once where they are of thousands.
_mutations = lru_cache(20_000)(MutationLimit.of)
_ids = lru_cache(20_000)(ProducerIdLimit)
_rate = lru_cache(20_000)(RateLimit)


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
