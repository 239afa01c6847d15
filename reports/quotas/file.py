"""The quotas of a proxy's settings file. In: a path. Out: `reports.quotas.limits.QuotaFile`. Sections of the file that have nothing
to do with quotas are not read, but an unknown limit of an entity is refused: a report without it would be wrong. Other settings
that the report does not look at, and unknown ones, are listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, create_model, model_validator

from configfile.base import Model, Name
from configfile.load import FileError, read, validated
from configfile.units import Size
from reports.errors import ReportError
from reports.quotas.catalogue import KEYS, TOPIC_RATES, Key
from reports.quotas.limits import Available, Limit, QuotaFile, Tenant, limits_of, replayed

_STORAGE = (
    *("source", "check_interval", "check_timeout", "fallback_throttle_factor", "throttle_factor_validity", "scope", "when_full"),
    *("release_margin", "warn_before", "log_dirs", "broker_id"),
)
_STORED_BYTES = ("count_replicas", "mode", "check_interval", "near_interval", "check_timeout", "validity")
_NO_LIMITS = {
    *("admins", "dynamic", "observe", "cold_read_lag", "controller_mutations_algorithm", "default_partitions", "ask_timeout"),
    *("producer_ids", "topic_rates.mode", "topics.meter", "topics.mode"),
    *(f"storage.{name}" for name in _STORAGE),
    *(f"stored_bytes.{name}" for name in _STORED_BYTES),
}
"""Settings that are no limits, so that a report need not look at them."""
OF_THE_PROXY = frozenset(
    ("proxy_id", "workers", "upstream", "listen", "more_listeners", "admin", "logs", "limits", "metrics", "reload", "ledger")
)
"""Sections of a settings file that have nothing to do with quotas."""
Rate = Annotated[Size, Field(gt=0)]
Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def read_quotas(path: Path) -> QuotaFile:
    """The quotas of a settings file.

    Raises:
        ReportError: the file cannot be read, or its quotas are not valid; the text names line and key.
    """
    try:
        data, lines = read(path, "quotas: {entities: [{user: alice, cluster_producer_byte_rate: 20MiB}]}")
        if not data.get("quotas") and not data.get("tenants"):
            raise FileError(f"{path}: `quotas` is missing or empty: there is nothing to compare with")
        file = validated(_File, data, str(path), lines)
    except FileError as error:
        raise ReportError(str(error)) from None
    quotas, tenants = file.quotas, {name: one.tenant() for name, one in file.tenants.items()}
    limits = tuple(limit for entity in quotas.entities for limit in entity.limits())
    storage, topics = quotas.storage, quotas.topics
    hard = storage.available() or storage.hard.available()
    rates = {
        one.kind: {
            topic: float(rate) for topic, rates in quotas.topic_rates.topics.items() if (rate := getattr(rates, one.setting))
        }
        for one in TOPIC_RATES
    }
    thresholds = topics.total_bytes_in_per_sec, topics.bytes_in_per_sec
    stored = {topic: float(one.hard) for topic, one in quotas.stored_bytes.topics.items()}
    left_out = tuple(_not_looked_at(file))
    return QuotaFile(str(path), limits, *thresholds, hard, storage.soft.available(), rates, stored, tenants, left_out)


def _not_looked_at(file: _File) -> Iterator[str]:
    quotas, tenants = file.quotas, file.tenants
    yield from (key for key, value in (file.model_extra or {}).items() if key not in OF_THE_PROXY and value)
    sections = {"": quotas, "topics.": quotas.topics, "topic_rates.": quotas.topic_rates, "storage.": quotas.storage}
    sections |= {"storage.hard.": quotas.storage.hard, "storage.soft.": quotas.storage.soft, "stored_bytes.": quotas.stored_bytes}
    for prefix, section in sections.items():
        yield from (f"quotas.{prefix}{key}" for key in section.model_extra or {} if f"{prefix}{key}" not in _NO_LIMITS)
    given = {key.name for key in _OF_USERS if not replayed(key.name) for entity in quotas.entities if entity.rate(key) is not None}
    yield from (f"quotas.entities[].{name}" for name in sorted(given))
    if any(one.soft is not None for one in quotas.stored_bytes.topics.values()):
        yield "quotas.stored_bytes.topics.*.soft"
    yield from (f"tenants.{name}" for name in sorted({name for one in tenants.values() for name in one.not_looked_at()}))


class _EntityNames(Model):
    user: Name | None = None
    client_id: Name | None = None

    @model_validator(mode="after")
    def _has_a_name(self) -> _EntityNames:
        if self.user is None and self.client_id is None:
            raise ValueError("an entity needs `user`, `client_id` or both")
        return self

    def rate(self, key: Key) -> float | None:
        """The value of a limit, under its name or its deprecated one."""
        found: float | None = getattr(self, key.name)
        return getattr(self, key.deprecated) if found is None else found

    def limits(self) -> Iterator[Limit]:
        """One for each rate that is set."""
        values = {key.name: rate for key in _OF_USERS if (rate := self.rate(key)) is not None}
        yield from limits_of(self.user, self.client_id, values)


_OF_USERS = tuple(key for key in KEYS if not key.tenants_only)
if TYPE_CHECKING:
    _Entity = _EntityNames
else:
    _Entity = create_model(
        "_Entity",
        __base__=_EntityNames,
        __module__=__name__,
        __doc__="Limits of a user, a client id, or both.",
        **{name: ((Rate if key.size else Number) | None, None) for key in _OF_USERS for name in (key.name, key.deprecated)},
    )


class _TenantMembers(Model, extra="allow"):
    users: list[Name] = Field(default_factory=list)
    user_prefixes: list[Name] = Field(default_factory=list)
    topic_prefixes: list[str] = Field(default_factory=list)
    stored_bytes_soft: Rate | None = None

    def tenant(self) -> Tenant:
        limits = {key.kind: float(limit) for key in _TENANT_KEYS if (limit := getattr(self, key.name)) is not None}
        return Tenant(tuple(self.users), tuple(self.user_prefixes), limits, tuple(self.topic_prefixes), self.stored_bytes_soft)

    def not_looked_at(self) -> set[str]:
        """Names of settings that are limits, as far as the report knows, and not looked at."""
        return set(self.model_extra or ())


_OF_NO_TENANT = ("controller_mutations", "producer_ids")
_TENANT_KEYS = tuple(key for key in KEYS if replayed(key.name) and key.kind not in _OF_NO_TENANT)
if TYPE_CHECKING:
    _Tenant = _TenantMembers
else:
    _Tenant = create_model(
        "_Tenant",
        __base__=_TenantMembers,
        __module__=__name__,
        __doc__="Users that share limits.",
        **{key.name: ((Rate if key.size else Number) | None, None) for key in _TENANT_KEYS},
    )


class _Level(Model, extra="allow"):
    min_available_bytes: Size | None = None
    min_available_ratio: Annotated[float, Field(ge=0, le=1)] | None = None

    def available(self) -> Available | None:
        """None where neither is set."""
        if self.min_available_bytes is None and self.min_available_ratio is None:
            return None
        return Available(self.min_available_bytes, self.min_available_ratio)


class _Storage(_Level, extra="allow"):
    hard: _Level = _Level()
    soft: _Level = _Level()


class _Topics(Model, extra="allow"):
    total_bytes_in_per_sec: Rate | None = None
    bytes_in_per_sec: dict[str, Rate] | None = None


class _TopicRate(Model):
    bytes_in: Rate | None = None
    bytes_out: Rate | None = None


class _TopicRates(Model, extra="allow"):
    topics: dict[str, _TopicRate] = Field(default_factory=dict)


class _TopicStored(Model):
    hard: Rate
    soft: Rate | None = None


class _StoredBytes(Model, extra="allow"):
    topics: dict[str, _TopicStored] = Field(default_factory=dict)


class _Quotas(Model, extra="allow"):
    entities: list[_Entity] = Field(default_factory=list)
    topic_rates: _TopicRates = _TopicRates()
    topics: _Topics = _Topics()
    storage: _Storage = _Storage()
    stored_bytes: _StoredBytes = _StoredBytes()


class _File(Model, extra="allow"):
    quotas: _Quotas = _Quotas()
    tenants: dict[str, _Tenant] = Field(default_factory=dict)
