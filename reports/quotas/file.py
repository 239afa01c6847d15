"""The quotas of a proxy's settings file. In: a path. Out: `QuotaFile`. What else is in the file is not read, but an unknown limit
of an entity is refused: a report without it would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from configfile.base import Model, Name
from configfile.load import FileError, read, validated
from configfile.units import Size
from reports.errors import ReportError

DEFAULT = "<default>"
_BURST_WINDOWS = 11
"""Seconds of the rate that may come at once if no burst is set, as in the proxy."""
Rate = Annotated[Size, Field(gt=0)]
Number = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: `kind` as it is called in decisions, of whom, and how much: per second, or ids within a window for
    `producer_ids`."""

    kind: str
    user: str | None
    client_id: str | None
    rate: float
    burst: float = 0.0

    @property
    def level(self) -> int:
        """Kafka's order of the levels, the most specific first."""
        user, client = self.user, self.client_id
        with_user = {None: 3, DEFAULT: 2}.get(client, 1) if user is not None else 0
        if user is None:
            return 8 if client == DEFAULT else 7
        return with_user + (3 if user == DEFAULT else 0)


@dataclass(frozen=True, slots=True)
class Available:
    """What has to be left of a volume: bytes, or a part of its size."""

    bytes: int | None
    ratio: float | None

    def of(self, total: int) -> int:
        """In bytes of a volume of `total` bytes."""
        return self.bytes if self.bytes is not None else round((self.ratio or 0) * total)


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """`limits` of users and client ids; bytes into topics per second, in total and by topic; what has to be left of volumes."""

    path: str
    limits: tuple[Limit, ...] = ()
    topics_total: float | None = None
    topics: Mapping[str, float] | None = None
    hard: Available | None = None
    soft: Available | None = None


def read_quotas(path: Path) -> QuotaFile:
    """The quotas of a settings file.

    Raises:
        ReportError: the file cannot be read, or its quotas are not valid; the text names line and key.
    """
    try:
        data, lines = read(path, "quotas: {entities: [{user: alice, producer_byte_rate: 20MiB}]}")
        if not data.get("quotas"):
            raise FileError(f"{path}: `quotas` is missing or empty: there is nothing to compare with")
        quotas = validated(_File, data, str(path), lines).quotas
    except FileError as error:
        raise ReportError(str(error)) from None
    limits = tuple(limit for entity in quotas.entities for limit in entity.limits())
    storage, topics = quotas.storage, quotas.topics
    hard = storage.available() or storage.hard.available()
    return QuotaFile(str(path), limits, topics.total_bytes_in_per_sec, topics.bytes_in_per_sec, hard, storage.soft.available())


class _Entity(Model):
    """Limits of a user, a client id, or both."""

    user: Name | None = None
    client_id: Name | None = None
    producer_byte_rate: Rate | None = None
    consumer_byte_rate: Rate | None = None
    request_rate: Number | None = None
    controller_mutations_rate: Number | None = None
    controller_mutations_burst: Number | None = None
    producer_ids_rate: Number | None = None

    @model_validator(mode="after")
    def _has_a_name(self) -> _Entity:
        if self.user is None and self.client_id is None:
            raise ValueError("an entity needs `user`, `client_id` or both")
        return self

    def limits(self) -> Iterator[Limit]:
        """One for each rate that is set."""
        mutations = self.controller_mutations_rate
        burst = self.controller_mutations_burst or _BURST_WINDOWS * (mutations or 0.0)
        rates = {
            "producer_byte_rate": (self.producer_byte_rate, 0.0),
            "consumer_byte_rate": (self.consumer_byte_rate, 0.0),
            "request_rate": (self.request_rate, 0.0),
            "controller_mutations": (mutations, burst),
            "producer_ids": (self.producer_ids_rate, 0.0),
        }
        yield from (
            Limit(k, self.user, self.client_id, float(rate), burst) for k, (rate, burst) in rates.items() if rate is not None
        )


class _Level(Model, extra="ignore"):
    min_available_bytes: Size | None = None
    min_available_ratio: Annotated[float, Field(ge=0, le=1)] | None = None

    def available(self) -> Available | None:
        """None where neither is set."""
        if self.min_available_bytes is None and self.min_available_ratio is None:
            return None
        return Available(self.min_available_bytes, self.min_available_ratio)


class _Storage(_Level, extra="ignore"):
    hard: _Level = _Level()
    soft: _Level = _Level()


class _Topics(Model, extra="ignore"):
    total_bytes_in_per_sec: Rate | None = None
    bytes_in_per_sec: dict[str, Rate] | None = None


class _Quotas(Model, extra="ignore"):
    entities: list[_Entity] = Field(default_factory=list)
    topics: _Topics = _Topics()
    storage: _Storage = _Storage()


class _File(Model, extra="ignore"):
    quotas: _Quotas
