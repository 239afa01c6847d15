"""The quotas of the settings as the engine wants them, with what was set while the proxy runs on top."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from proxy.config.models import Settings
from proxy.config.storage import AvailableLimit, UsedLimit
from proxy.config.tenants import tenants_of
from quota.addresses import DEFAULT_ADDRESS, AddressEntity, with_limit
from quota.catalogue import (
    ADDRESS_RATE,
    KINDS,
    MUTATIONS_BURST,
    MUTATIONS_RATE,
    PRODUCER_IDS_RATE,
    RATES,
    STORED_HARD,
    STORED_SOFT,
    TENANT_KINDS,
    TOPIC_NUMBERS,
    TOPIC_STORED,
)
from quota.decision import Action
from quota.entity import Entity
from quota.kinds import connections, controller_mutations, producer_ids
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.kinds.cold_reads import ColdReads
from quota.kinds.connections import ConnectionLimits, Network, parse_network
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.kinds.overload import OverloadOptions
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIdOptions, Windows, user_limit_table
from quota.kinds.rates import RateLimit
from quota.kinds.storage import Below, Scope, StorageLimits
from quota.kinds.stored_bytes import TENANT_STORED, StoredLimit, TopicBudgets
from quota.kinds.tenant_rates import TenantTable
from quota.kinds.topic_policy import NAME as TOPIC_POLICY
from quota.kinds.topic_policy import TopicPolicyOptions
from quota.kinds.topic_rates import TOPIC_IN, TOPIC_OUT, Above, TopicRateOptions, TopicTable
from quota.limit_table import LimitTable
from quota.limits import Exempt, Limits
from quota.overload import Goal
from quota.overrides import Table
from quota.tenants import Clash, TenantEntity, Tenants, member_of, owner_of


class _Same:
    """Settings that are told apart by their identity, as comparing them takes long."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __hash__(self) -> int:
        return id(self.settings)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.settings is self.settings


def table_of(settings: Settings) -> Table:
    """The limits of these settings, by the names that they have in the protocol. For the same settings it is made once: with ten
    thousand tenants that takes a while, and may be done in a thread before they are used."""
    return _read(_Same(settings))[0]


@lru_cache(2)
def _read(of: _Same) -> tuple[Table, Tenants]:
    """The limits, and who belongs to which tenant."""
    settings = of.settings
    tenants: Table = {owner_of(name): limits for name, one in settings.tenants.items() if (limits := one.limits())}
    clients: Table = {Entity(entity.user, entity.client_id): entity.limits() for entity in settings.quotas.entities}
    return {**clients, **tenants, **_addresses(settings)}, tenants_of(settings.tenants)


def _addresses(settings: Settings) -> Table:
    """Rates of single addresses and of the default one; those of networks have no names in the protocol."""
    came = settings.quotas.connections
    rates = {DEFAULT_ADDRESS: came.per_address} if came.per_address is not None else {}
    rates |= {with_limit(str(one.network_address)): rate for one, rate in _networks(settings).items() if _single(one)}
    return {entity: {ADDRESS_RATE.name: rate} for entity, rate in rates.items()}


def _networks(settings: Settings) -> dict[Network, float]:
    return {parse_network(name): rate for name, rate in settings.quotas.connections.networks.items()}


def _single(network: Network) -> bool:
    return network.prefixlen == network.max_prefixlen


def limits_of(settings: Settings, table: Table | None = None) -> Limits:
    """The quota limits of these settings, with the limits of a table in the place of their own."""
    table = table_of(settings) if table is None else table
    exempt, tenants = settings.exempt, tenants_among(settings, table)[0]
    observed = observed_of(settings)
    return Limits(
        _tables(settings, table, tenants, observed),
        (tenants, _connections(settings, table), *_options(settings, observed)),
        settings.limits.max_throttle,
        Exempt(
            frozenset(exempt.users),
            frozenset(exempt.client_ids),
            frozenset(exempt.topics),
            frozenset((client.user, client.client_id) for client in exempt.clients),
        ),
        observed,
    )


def tenants_among(settings: Settings, table: Table) -> tuple[Tenants, list[Clash]]:
    """The tenants of these settings with the members that a table adds, and those that it cannot add."""
    tenants, members = _read(_Same(settings))[1], dict[str, list[tuple[str, str]]]()
    for entity, values in table.items():
        if isinstance(entity, TenantEntity) and (found := [it for it in map(member_of, values) if it is not None]):
            members[entity.topic or ""] = found
    return tenants.joined_by(members) if members else (tenants, [])


def _tables(settings: Settings, table: Table, tenants: Tenants, observed: Mapping[str, Action]) -> dict[str, LimitTable[Any]]:
    """The limits of users, client ids, tenants and topics, by kind."""
    algorithm = Algorithm(settings.quotas.controller_mutations_algorithm)
    mode = IdMode.THROTTLE if producer_ids.NAME in observed else IdMode(settings.quotas.producer_ids.mode)
    entities = {entity: values for entity, values in table.items() if not isinstance(entity, TenantEntity | AddressEntity)}
    rated = [(entity, values) for entity, values in entities.items() if MUTATIONS_RATE in values]
    mutations = {entity: _mutations(values[MUTATIONS_RATE], values.get(MUTATIONS_BURST), algorithm) for entity, values in rated}
    ids = {entity: _ids(values[PRODUCER_IDS_RATE], mode) for entity, values in entities.items() if PRODUCER_IDS_RATE in values}
    of_tenants = {entity.topic or "": values for entity, values in table.items() if isinstance(entity, TenantEntity)}
    tables: dict[str, LimitTable[Any]] = {}
    for row in (*RATES, *TOPIC_NUMBERS):
        made = int if row.whole else _rate
        limits = {entity: made(values[row.name]) for entity, values in entities.items() if row.name in values}
        shared = {name: made(values[row.name]) for name, values in of_tenants.items() if row.name in values}
        tables[row.kind], tables[TENANT_KINDS[row.kind]] = LimitTable(limits), TenantTable(tenants, shared)
    stored = {name: _stored(values) for name, values in of_tenants.items() if STORED_HARD in values}
    tables[TENANT_STORED] = TenantTable(tenants, stored)
    tables[TOPIC_STORED] = TopicBudgets({topic: one.limit() for topic, one in settings.quotas.stored_bytes.topics.items()})
    rates = settings.quotas.topic_rates.topics
    tables[TOPIC_IN] = TopicTable({topic: _rate(one.bytes_in) for topic, one in rates.items() if one.bytes_in is not None})
    tables[TOPIC_OUT] = TopicTable({topic: _rate(one.bytes_out) for topic, one in rates.items() if one.bytes_out is not None})
    return tables | {controller_mutations.NAME: LimitTable(mutations), producer_ids.NAME: user_limit_table(ids)}


def _connections(settings: Settings, table: Table) -> ConnectionLimits:
    """The rates of addresses."""
    rates = {entity: values[ADDRESS_RATE.name] for entity, values in table.items() if isinstance(entity, AddressEntity)}
    default = rates.pop(DEFAULT_ADDRESS, None)
    networks = {network: rate for network, rate in _networks(settings).items() if not _single(network)}
    networks |= {parse_network(entity.topic or ""): rate for entity, rate in rates.items()}
    return ConnectionLimits(default, networks, settings.quotas.connections.ipv6_prefix)


def _options(settings: Settings, observed: Mapping[str, Action]) -> tuple[object, ...]:
    """What kinds have besides."""
    ids, topics, storage = settings.quotas.producer_ids, settings.quotas.topics, storage_of(settings)
    options: list[object] = [ProducerIdOptions(ids.count_unlimited, ids.cleanup_interval, ids.hold_new)]
    of_tenants = {name: policy for name, one in settings.tenants.items() if (policy := one.topic_policy.policy()).rules}
    options.append(TopicPolicyOptions(settings.quotas.topic_policy.policy(), of_tenants))
    above = Above.THROTTLE if TOPIC_IN in observed else Above(settings.quotas.topic_rates.mode)
    options += [TopicRateOptions(above), ColdReads(settings.quotas.cold_read_lag), settings.quotas.stored_bytes.options()]
    if topics is not None:
        mode = Mode.THROTTLE if "bytes_in" in observed else Mode(topics.mode)
        options.append(TopicLimits(topics.total_bytes_in_per_sec, topics.bytes_in_per_sec, topics.meter, mode))
    overload = settings.quotas.overload
    if overload is not None:
        options.append(OverloadOptions(Goal(overload.target_latency, float(overload.least_rate)), overload.weights))
    return (*options, storage) if storage is not None else tuple(options)


def observed_of(settings: Settings) -> dict[str, Action]:
    """The quotas that are only observed, and what each would do if it were not."""
    quotas = settings.quotas
    kinds = KINDS if quotas.observe is True else quotas.observe or ()
    refuses = {
        "producer_ids": quotas.producer_ids.mode == "reject",
        connections.NAME: True,
        TOPIC_POLICY: True,
        TENANT_STORED: True,
        TOPIC_STORED: True,
        **{kind: True for row in TOPIC_NUMBERS for kind in (row.kind, TENANT_KINDS[row.kind])},
        TOPIC_IN: quotas.topic_rates.mode != "throttle",
        "bytes_in": quotas.topics is not None and quotas.topics.mode != "throttle",
    }
    return {kind: Action.REFUSE if refuses.get(kind) else Action.THROTTLE for kind in kinds}


def _stored(values: Mapping[str, float]) -> StoredLimit:
    return StoredLimit(int(values[STORED_HARD]), int(values.get(STORED_SOFT, values[STORED_HARD])))


# The same limit is the same object, which tells tables apart at once where they are of thousands.
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
