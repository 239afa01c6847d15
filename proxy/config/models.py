"""Every setting: its name, its default, its meaning. In: plain data from a YAML file. Out: frozen models.

The descriptions are the documentation: docs/settings.md and `--print-schema` are made from them.
"""

from __future__ import annotations

import platform
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from proxy.config.units import Address, Duration, HostPort, PortRange, Ports, Server, Size

Name = Annotated[str, Field(min_length=1)]


_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def _as_written(schema: dict[str, Any]) -> None:
    """In a JSON schema sizes, durations and addresses are texts: so are their defaults, and numeric bounds do not apply."""
    for setting in schema.get("properties", {}).values():
        if setting.get("type") != "string":
            continue
        for bound in _BOUNDS:
            setting.pop(bound, None)
        default = setting.get("default")
        if isinstance(default, list | tuple):
            setting["default"] = str(HostPort(*default))
        elif isinstance(default, float):
            setting["default"] = f"{default:g}s"
        elif isinstance(default, int):
            setting["default"] = f"{default >> 20}MiB" if default % (1 << 20) == 0 else str(default)


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, json_schema_extra=_as_written)


class Upstream(Model):
    bootstrap_servers: list[Server] = Field(default_factory=list)
    """Brokers to ask first, as `host:port`. Required, here or as `--upstream`."""
    connect_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long a connection to a broker may take to come up."""
    metadata_refresh: Annotated[Duration, Field(gt=0)] = 10.0
    """How often the proxy asks the cluster for its brokers. What clients are told in between is noticed too."""


class Listen(Model):
    bootstrap: Address = HostPort("127.0.0.1", 9192)
    """Where clients bootstrap."""
    advertise: Name | None = None
    """The host name that clients are told to connect to. By default the address at which a client reached the proxy."""
    broker_ports: Ports | None = None
    """One port per broker: broker `id` is at `first + id % size`. By default the 100 ports above the bootstrap port;
    `0` takes any free ports."""

    def ports(self) -> PortRange:
        """The range in force."""
        if self.broker_ports is not None:
            return self.broker_ports
        port = self.bootstrap.port
        if port == 0:
            return PortRange(0, 0)
        return PortRange(port + 1, min(port + 100, 0xFFFF)) if port < 0xFFFF else PortRange(port - 100, port - 1)


class Admin(Model):
    listen: Address = HostPort("127.0.0.1", 9190)
    """Where `/metrics`, `/healthz` and `/readyz` are served, in plain HTTP."""


class UsageLog(Model):
    path: Name | None = None
    """Folder of the usage log, which the capacity report reads. None is written when it is not set. Files are never
    deleted by the proxy."""
    interval: Annotated[Duration, Field(ge=1)] = 10.0
    """Length of the intervals that traffic is summed over."""
    max_keys: Annotated[int, Field(ge=1)] = 10_000
    """Principals x client ids x topics x APIs that are told apart in an interval; the rest is summed up as `<other>`."""
    decisions_per_interval: Annotated[int, Field(ge=1)] = 10
    """Decisions logged per quota and entity in an interval; the rest is counted."""
    rotate_size: Annotated[Size, Field(ge=1024)] = 64 << 20
    """A file that reaches this size is closed, and a new one begun."""
    rotate_interval: Annotated[Duration, Field(ge=1)] = 3600.0
    """A file that reaches this age is closed, and a new one begun."""
    queue_lines: Annotated[int, Field(ge=1)] = 100_000
    """Lines that may wait for the disk; more are dropped, counted, and noted in the log as a gap."""

    @model_validator(mode="after")
    def _room_for_an_interval(self) -> UsageLog:
        if self.queue_lines < self.max_keys:
            raise ValueError(f"`queue_lines` {self.queue_lines} is below `max_keys` {self.max_keys}: an interval would not fit")
        return self


class Logs(Model):
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important lines of the operations log, which goes to standard output as JSON lines."""
    usage: UsageLog = UsageLog()


class Limits(Model):
    max_frame: Annotated[Size, Field(ge=1024, le=0x7FFFFFFF)] = 100 << 20
    """The largest request; one that is larger closes its connection. Kafka's `socket.request.max.bytes`."""
    max_throttle: Annotated[Duration, Field(gt=0, le=3600)] = 30.0
    """No throttle of the proxy lasts longer. What is owed beyond it throttles the next request."""
    drain_timeout: Duration = 20.0
    """How long connections may go on after SIGTERM."""


class Exempt(Model):
    """What is metered and never limited. A client id is whatever a client claims: exempt users rather than client ids."""

    users: list[Name] = Field(default_factory=list)
    """Names of users, as in the principal `User:name`."""
    client_ids: list[Name] = Field(default_factory=list)
    """Client ids."""
    topics: list[Name] = Field(default_factory=lambda: ["__consumer_offsets", "__transaction_state", "__share_group_state"])
    """Topics whose creation is not charged."""


class EntityQuota(Model):
    """Limits of a user, a client id, or both; `<default>` for all that have no limit of their own. The most specific
    one holds, as in Kafka."""

    user: Name | None = None
    """Name of the user, or `<default>`."""
    client_id: Name | None = None
    """Client id, or `<default>`. A client id is whatever a client claims: see that a limit of its user holds beside it."""
    controller_mutations_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Partitions per second that may be created on average."""
    controller_mutations_burst: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Partitions that may be created at once; 11 times the rate when not set."""

    @model_validator(mode="after")
    def _consistent(self) -> EntityQuota:
        if self.user is None and self.client_id is None:
            raise ValueError("an entity needs `user`, `client_id` or both")
        rate, burst = self.controller_mutations_rate, self.controller_mutations_burst
        if rate is None and burst is None:
            raise ValueError("an entity without a limit; set `controller_mutations_rate`")
        if rate is None:
            raise ValueError("`controller_mutations_burst` needs `controller_mutations_rate` beside it")
        if burst is not None and burst < rate:
            raise ValueError(
                f"`controller_mutations_burst` {burst:g} is below `controller_mutations_rate` {rate:g}; at least {rate:g} is right"
            )
        return self


class Quotas(Model):
    entities: list[EntityQuota] = Field(default_factory=list)
    default_partitions: Annotated[int, Field(ge=1)] = 1
    """What a new topic costs that leaves the number of its partitions to the broker: the cluster's `num.partitions`."""

    @model_validator(mode="after")
    def _unique(self) -> Quotas:
        seen: set[tuple[str | None, str | None]] = set()
        for entity in self.entities:
            key = (entity.user, entity.client_id)
            if key in seen:
                raise ValueError(
                    f"user {entity.user!r} with client_id {entity.client_id!r} stands twice; put all its limits into one entry"
                )
            seen.add(key)
        return self


class Settings(Model):
    proxy_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] = Field(default_factory=lambda: platform.node() or "proxy")
    """Name of this proxy in logs: letters, digits, dots, dashes and underscores. By default the host's name."""
    upstream: Upstream = Upstream()
    listen: Listen = Listen()
    admin: Admin = Admin()
    logs: Logs = Logs()
    limits: Limits = Limits()
    exempt: Exempt = Exempt()
    quotas: Quotas = Quotas()
