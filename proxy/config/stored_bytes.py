"""Settings of stored bytes: how much topics may keep on the disks. In: plain data. Out: frozen models."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from configfile.base import Model
from proxy.config.ledger import TOPIC
from proxy.config.units import Duration, Size
from quota.catalogue import MAX_STORED
from quota.kinds.stored_bytes import StoredBytesOptions, StoredLimit

Stored = Annotated[Size, Field(ge=1, le=MAX_STORED)]


class TopicStored(Model):
    """What one topic may have stored."""

    hard: Stored
    """Bytes; batches that would pass it are refused."""
    soft: Stored | None = None
    """Producing is slowed down above it, down to nothing at `hard`."""

    @model_validator(mode="after")
    def _ordered(self) -> TopicStored:
        if self.soft is not None and self.soft > self.hard:
            raise ValueError(f"`soft` {self.soft} is above `hard` {self.hard}: slowing begins before the stop, so it must be lower")
        return self

    def limit(self) -> StoredLimit:
        return StoredLimit(self.hard, self.hard if self.soft is None else self.soft)


class StoredBytes(Model):
    """Bytes that topics have stored, and how they are looked at. Those of tenants are limited by `stored_bytes_hard` and
    `stored_bytes_soft` below the tenant. Needs what `quotas.storage` needs of the cluster: `upstream.sasl` with Describe on it."""

    topics: dict[Annotated[str, Field(pattern=TOPIC)], TopicStored] = Field(default_factory=dict, max_length=10_000)
    """Limits by topic: `orders: {soft: 80GiB, hard: 100GiB}`."""
    count_replicas: bool = False
    """Whether every replica counts, as it takes space; else each partition counts once, however many replicas it has."""
    mode: Literal["transient", "fail"] = "transient"
    """What happens to a batch that would pass a limit: it is refused with error 56 (`KAFKA_STORAGE_ERROR`), which clients retry; or
    with 44, which none does, and its records are lost to their producer."""
    check_interval: Annotated[Duration, Field(ge=1)] = 60.0
    """How often brokers are asked for the sizes of all topics. What was written since counts besides."""
    near_interval: Annotated[Duration, Field(ge=0.1)] = 5.0
    """How often they are asked for topics of owners that have used 90 % of their first limit, or will have soon. What was deleted
    is free after this time."""
    check_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long each broker has to answer."""
    validity: Duration = 300.0
    """How long the sizes of a broker hold that does not answer, and of one that is gone. Until then a look that a broker did not
    answer changes nothing."""

    def options(self) -> StoredBytesOptions:
        near = min(self.near_interval, self.check_interval)
        return StoredBytesOptions(self.mode == "fail", self.count_replicas, self.check_interval, near, self.validity)
