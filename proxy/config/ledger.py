"""Settings of the ledger, by which several proxies enforce one quota."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from configfile.base import FileName, Model, Name
from proxy.config.units import Duration, Server
from proxy.config.upstream import UpstreamTls

TOPIC = r"^[A-Za-z0-9._-]{1,249}$"


class LedgerTls(UpstreamTls):
    """TLS towards Redis; `tls: {}` trusts the certificate authorities of the system."""

    ca_file: FileName | None = None
    """Certificates (PEM) of the authorities that Redis is trusted by. By default those of the system."""
    cert_file: FileName | None = None
    """The proxy's own certificate (PEM), for a Redis that asks for one."""
    verify_hostname: bool = True
    """Whether the certificate of Redis has to name the host that the proxy connects to."""


class Ledger(Model):
    """Where several proxies add up what they charge, so that each enforces the quotas of the fleet: a topic of the cluster, or
    Redis or Valkey. The data path never waits for it."""

    kind: Literal["local", "kafka", "redis"] = "local"
    """`local`: this proxy counts for itself. `kafka`: with all others that use the same `topic`; for up to some tens of proxies.
    `redis`: with all others of the same `namespace`."""
    topic: Annotated[str, Field(pattern=TOPIC)] = "__kafka_quota_proxy_ledger"
    """With `kind: kafka`, the topic of the upstream cluster. The proxy creates it where it is not there: two partitions, three
    replicas or as many as there are brokers, kept for two hours or twice as long as producer ids are remembered. `upstream.sasl`
    has to be allowed to create it, describe it, read it and write to it; nobody else should be."""
    servers: list[Server] = Field(default_factory=list)
    """The Redis, as `host:port`; with `mode: sentinel` the sentinels, with `mode: cluster` some nodes of the cluster."""
    mode: Literal["single", "sentinel", "cluster"] = "single"
    """What stands at `servers`."""
    sentinel_master: Name | None = None
    """What the sentinels call the Redis to use."""
    database: Annotated[int, Field(ge=0)] = 0
    """Number of the database; a cluster has only 0."""
    username: Name | None = None
    """The ACL user. Not set: the default user."""
    password: SecretStr | None = None
    """Its password; better in a file of its own, see `password_file`."""
    password_file: FileName | None = None
    """File with the password; read again at every connection, so it may change."""
    sentinel_username: Name | None = None
    """The ACL user at the sentinels."""
    sentinel_password_file: FileName | None = None
    """File with the password for the sentinels, if they ask for one."""
    tls: LedgerTls | None = None
    namespace: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")] = "kafka-quota-proxy"
    """What all keys in Redis begin with. Proxies before the same Kafka cluster have the same, those before another one another."""
    sync_interval: Annotated[Duration, Field(ge=0.01, le=10)] = 0.1
    """How often proxies exchange what they charged. The fleet may exceed a rate by what passes meanwhile at the other proxies."""
    timeout: Annotated[Duration, Field(ge=0.01, le=10)] = 0.25
    """How long Redis, or the topic, may take to answer; then it is asked again."""
    stale_after: Annotated[Duration, Field(gt=0, le=60)] = 0.5
    """How long without an answer until others are estimated as `when_away` says."""
    when_away: Literal["share", "split"] = "share"
    """What is assumed while Redis, or the topic, is away. `share`: of each user, client id and topic, this proxy has the part of
    the traffic that it had, and one of n proxies at least. `split`: it has one of n, so the quota is split evenly."""
    replicas: Annotated[int, Field(ge=1, le=10_000)] = 1
    """How many proxies there are as long as Redis or the topic has not told, which is when it is away at the start."""
    shards: Annotated[int, Field(ge=1, le=256)] = 1
    """Parts that keys are spread over, so that the nodes of a cluster share the work; some times as many as there are nodes. All
    proxies have to have the same."""

    @model_validator(mode="after")
    def _complete(self) -> Ledger:
        if self.kind == "redis" and not self.servers:
            raise ValueError("`kind: redis` needs `servers`, such as `servers: [redis:6379]`")
        if self.kind == "kafka" and self.servers:
            raise ValueError("`servers` are those of a Redis; leave them out with `kind: kafka`, which uses the upstream cluster")
        if self.kind == "kafka" and self.shards > 1:
            raise ValueError("a topic has one order for all; leave out `shards` with `kind: kafka`")
        if self.mode == "single" and len(self.servers) > 1:
            raise ValueError(f"`mode: single` takes one of `servers`, not {len(self.servers)}; set `mode: sentinel` or `cluster`")
        if (self.mode == "sentinel") != (self.sentinel_master is not None):
            raise ValueError("`mode: sentinel` and `sentinel_master` belong together: set both or none")
        if self.mode == "cluster" and self.database:
            raise ValueError("a cluster has no database but 0; leave out `database`")
        if self.password is not None and self.password_file is not None:
            raise ValueError("set either `password_file` or `password`, not both")
        if self.username is not None and self.password is None and self.password_file is None:
            raise ValueError("`username` needs `password_file` or `password` beside it")
        if self.stale_after < self.sync_interval * 2:
            raise ValueError(
                f"`stale_after` {self.stale_after:g}s is less than two times `sync_interval` {self.sync_interval:g}s:"
                " the ledger would be away all the time"
            )
        return self
