"""Settings of the storage quota (seeds s0 and s3). In: plain data. Out: frozen models, of which each has exactly one limit."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from configfile.base import FileName, Model
from proxy.config.units import Duration, Size

Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_BYTES, _RATIO = "min_available_bytes", "min_available_ratio"


class AvailableLimit(Model):
    """A limit on what is available on a volume: one of the two."""

    min_available_bytes: Annotated[Size, Field(ge=0)] | None = None
    """Bytes; this number or fewer is too few."""
    min_available_ratio: Ratio | None = None
    """Part of the volume's size, 0 to 1; so much or less is too little."""

    @model_validator(mode="after")
    def _one(self) -> AvailableLimit:
        if (self.min_available_bytes is None) == (self.min_available_ratio is None):
            raise ValueError(f"set exactly one of `{_BYTES}` and `{_RATIO}`")
        return self


class UsedLimit(Model):
    """A limit on what is used of all log dirs together."""

    soft: Annotated[Size, Field(ge=0)] | None = None
    """Producing is slowed above it; `hard` when not set."""
    hard: Annotated[Size, Field(gt=0)]
    """Nothing is produced at it and above."""

    @model_validator(mode="after")
    def _ordered(self) -> UsedLimit:
        if self.soft is not None and self.soft > self.hard:
            raise ValueError(f"`soft` {self.soft} is above `hard` {self.hard}: slowing begins before the stop, so it must be lower")
        return self


class Storage(Model):
    """Keeps volumes of the cluster from filling because of clients. Needs one limit: `min_available_bytes`,
    `min_available_ratio`, `hard` with or without `soft`, or `max_used`."""

    source: Literal["cluster", "local"] = "cluster"
    """Who tells how full volumes are. `cluster`: every broker (DescribeLogDirs, Kafka 3.3 and up), asked as `upstream.sasl`
    says, who needs Describe on the cluster. `local`: the file systems of `log_dirs`, for a proxy beside a broker."""
    check_interval: Duration = 60.0
    """How often; `0` or `PT0S` turns the quota off. Producers may overshoot a limit by what they write in this time."""
    check_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long each broker has to answer."""
    min_available_bytes: Annotated[Size, Field(ge=0)] | None = None
    """Nothing is produced while a volume has this many bytes available or fewer."""
    min_available_ratio: Ratio | None = None
    """The same as a part of the volume's size, 0 to 1."""
    hard: AvailableLimit | None = None
    """The same where there is a `soft` limit."""
    soft: AvailableLimit | None = None
    """Producing is slowed while a volume has less available than this: by a factor that is 1 here and 0 at `hard`."""
    max_used: UsedLimit | None = None
    """For `source: local`: limits on the bytes used on all `log_dirs` together, each file system counted once."""
    fallback_throttle_factor: Ratio = 1.0
    """The factor while not enough is known: 1 lets everybody go on, 0 stops everybody."""
    throttle_factor_validity: Duration = 300.0
    """How long what was known last holds before the fallback does."""
    scope: Literal["cluster", "volume"] = "cluster"
    """Whom a volume in trouble concerns. `cluster`: every producer. `volume`: only partitions with a replica on it."""
    when_full: Literal["refuse", "hold"] = "refuse"
    """At factor 0 batches are refused with an error that clients retry (56 `KAFKA_STORAGE_ERROR`), or held until there is space;
    clients time out meanwhile as they would with a slow broker."""
    release_margin: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 0.1
    """How much better than its limit a volume has to be before it is well again, as a part of the limit (of 1% of the volume at
    least); `0` releases it at the limit."""
    warn_before: Duration = 3600.0
    """A line in the operations log when a volume will reach its limit within this time, if it goes on as it does."""
    log_dirs: list[FileName] = Field(default_factory=list)
    """For `source: local`: the broker's `log.dirs`."""
    broker_id: Annotated[int, Field(ge=0, le=0x7FFFFFFF)] | None = None
    """For `source: local`: the broker's id, for logs and metrics."""

    @property
    def on(self) -> bool:
        return self.check_interval > 0

    @property
    def limits(self) -> tuple[AvailableLimit, AvailableLimit] | None:
        """(hard, soft) of each volume; None where `max_used` is the limit."""
        if self.max_used is not None:
            return None
        single = (self.min_available_bytes, self.min_available_ratio)
        hard = self.hard or AvailableLimit(min_available_bytes=single[0], min_available_ratio=single[1])
        return hard, self.soft or hard

    @model_validator(mode="after")
    def _one_limit(self) -> Storage:
        given = [name for name in (_BYTES, _RATIO, "hard", "max_used") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{_listed(given)} are set; set exactly one limit")
        if not given and self.soft is not None:
            raise ValueError("`soft` is set without `hard`; set `hard`, at which nothing is produced any more")
        if not given and self.on:
            raise ValueError(f"no limit is set; set exactly one of {_listed([_BYTES, _RATIO, 'hard', 'max_used'])}")
        if self.soft is not None and self.hard is None:
            raise ValueError(f"`soft` stands beside `{given[0]}`; it needs `hard` instead")
        return self

    @model_validator(mode="after")
    def _ordered(self) -> Storage:
        if self.soft is None or self.hard is None:
            return self
        for name in (_BYTES, _RATIO):
            soft, hard = getattr(self.soft, name), getattr(self.hard, name)
            if soft is not None and hard is not None and soft < hard:
                wrong = f"`soft.{name}` {soft:g} is below `hard.{name}` {hard:g}"
                raise ValueError(f"{wrong}: slowing begins before the stop, so it must be {hard:g} or more")
        return self

    @model_validator(mode="after")
    def _of_its_source(self) -> Storage:
        if self.source == "local":
            if not self.log_dirs and self.on:
                raise ValueError("`source: local` needs `log_dirs`, the folders of the broker's `log.dirs`")
            if self.scope == "volume":
                raise ValueError("`scope: volume` needs `source: cluster`: only brokers tell where replicas are")
            return self
        for name in _LOCAL_ONLY:
            if name in self.model_fields_set and getattr(self, name) not in (None, []):
                raise ValueError(f"`{name}` is for `source: local`; leave it out, or set the source")
        return self


_LOCAL_ONLY: Final = ("max_used", "log_dirs", "broker_id")


def _listed(names: list[str]) -> str:
    *most, last = [f"`{name}`" for name in names]
    return f"{', '.join(most)} and {last}" if most else last
