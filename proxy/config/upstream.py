"""Settings of the way to the cluster: its servers, TLS, and the proxy's own identity there."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from configfile.base import FileName, Model, Name
from proxy.config.units import Duration, HostPort, Server

PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class UpstreamTls(Model):
    """TLS towards the brokers; `tls: {}` trusts the certificate authorities of the system."""

    ca_file: FileName | None = None
    """Certificates (PEM) of the authorities that brokers are trusted by. By default those of the system."""
    cert_file: FileName | None = None
    """The proxy's own certificate (PEM), for brokers that ask for one."""
    key_file: FileName | None = None
    """The key of `cert_file` (PEM)."""
    key_password_file: FileName | None = None
    """File with the password of `key_file`, if it has one."""
    verify_hostname: bool = True
    """Whether a broker's certificate has to name the host that the proxy connects to."""

    @model_validator(mode="after")
    def _pairs(self) -> UpstreamTls:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("`cert_file` and `key_file` belong together: set both or none")
        return self


class UpstreamSasl(Model):
    """The proxy's own identity at the brokers, for what it asks them itself. Clients log in with their own."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    """How the proxy logs in."""
    username: Name | None = None
    """Name of the user, for PLAIN and SCRAM."""
    password: SecretStr | None = None
    """Password of the user; better in a file of its own, see `password_file`."""
    password_file: FileName | None = None
    """File with the password; read again at every login, so it may change."""
    token_file: FileName | None = None
    """File with the token (a JWT), for OAUTHBEARER; read again at every login, so something else may renew it."""

    @model_validator(mode="after")
    def _complete(self) -> UpstreamSasl:
        if self.mechanism in PASSWORD_MECHANISMS:
            if self.username is None or (self.password is None) == (self.password_file is None):
                raise ValueError(f"{self.mechanism} needs `username` and one of `password_file` and `password`")
            if self.token_file is not None:
                raise ValueError(f"`token_file` is for OAUTHBEARER, not for {self.mechanism}")
        elif self.token_file is None:
            raise ValueError("OAUTHBEARER needs `token_file`")
        elif self.username or self.password or self.password_file:
            raise ValueError("OAUTHBEARER takes `token_file` only; who it is stands in the token")
        return self


class Upstream(Model):
    bootstrap_servers: list[Server] = Field(default_factory=list)
    """Brokers to ask first, as `host:port`. Required, here or as `--upstream`."""
    brokers: dict[Annotated[int, Field(ge=0, le=0x7FFFFFFF)], Server] = Field(default_factory=dict)
    """Brokers by id, such as `1: kafka-1:9092`: their ports are open from the start on. For several proxies before a cluster that
    tells its brokers only after a login, where there is no `sasl`: else a proxy knows those only that its own clients are
    told of, and refuses clients that another proxy told. What the cluster says of a broker goes before what stands here."""
    tls: UpstreamTls | None = None
    sasl: UpstreamSasl | None = None
    connect_timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long a connection to a broker may take to come up, TLS included."""
    metadata_refresh: Annotated[Duration, Field(gt=0)] = 10.0
    """How often the proxy asks the cluster for its brokers. What clients are told in between is noticed too."""

    @model_validator(mode="after")
    def _at_different_addresses(self) -> Upstream:
        first: dict[HostPort, int] = {}
        for node_id, server in self.brokers.items():
            other = first.setdefault(HostPort(server.host.lower(), server.port), node_id)
            if other != node_id:
                raise ValueError(f"`brokers`: {other} and {node_id} are both at {server}; clients of one would reach the other")
        return self
