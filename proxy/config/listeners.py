"""Settings of the side of the clients: addresses, routing, TLS."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from configfile.base import FileName, Model, Name
from proxy.config.broker_ports import BrokerPorts
from proxy.config.units import Address, BrokerIds, HostPort, PortRange, Ports

_PLACES = re.compile(r"\{id\}|\{advertise\}")
_PLAIN = re.compile(r"[^{}]*")


class ListenerTls(Model):
    """TLS towards clients. Files are read again when they change; connections that are open stay."""

    cert_file: FileName
    """Certificate of the proxy with its chain (PEM). It has to name what clients connect to; for routing by SNI that is
    `advertise` and every `broker_name`, such as a wildcard."""
    key_file: FileName
    """The key of `cert_file` (PEM)."""
    key_password_file: FileName | None = None
    """File with the password of `key_file`, if it has one."""
    client_ca_file: FileName | None = None
    """Certificates (PEM) of the authorities that clients are trusted by. Without it clients are not asked for a certificate."""
    client_auth: Literal["required", "requested"] = "required"
    """With `client_ca_file`: whether clients must have a certificate, or may."""
    principal_mapping_rules: str = "DEFAULT"
    """How the distinguished name of a client's certificate becomes the name of its user: Kafka's
    `ssl.principal.mapping.rules`, such as `RULE:^CN=(.*?),.*$/$1/L, DEFAULT`."""
    min_version: Literal["TLSv1.2", "TLSv1.3"] = "TLSv1.2"
    """The oldest version of TLS that is spoken."""

    @model_validator(mode="after")
    def _rules(self) -> ListenerTls:
        from proxy.identity.certificates import parse_rules

        parse_rules(self.principal_mapping_rules)
        return self


class Listener(Model):
    bootstrap: Address = HostPort("127.0.0.1", 9192)
    """Where clients bootstrap. IPv6 in brackets: `[::]:9192` takes both IPv6 and IPv4."""
    reuse_port: bool = False
    """Whether other proxies of the same user on this machine may listen at the same ports; the kernel spreads connections
    over them. So several use more than one processor, and a new one can start before the old one stops. Needs fixed ports, and
    this setting in all of them (`--reuse-port` sets it for all listeners)."""
    advertise: Name | None = None
    """The host name that clients are told to connect to. By default the address at which a client reached the proxy."""
    routing: Literal["ports", "sni"] = "ports"
    """How the proxy knows which broker a client means: by a port of its own for every broker, or, on one port, by the name
    that the client asks for in TLS (SNI)."""
    broker_ports: Ports | None = None
    """For routing by ports: broker `id` is at `first + id % size`. By default the 100 ports above the bootstrap port;
    `0` takes any free ports. Where two ids want one port, the broker with the lower id has it and the other cannot be reached."""
    broker_ids: BrokerIds | None = None
    """For routing by ports: the ids of the brokers, such as `[101, 201, 301]` or `[100-109, 200-209]`. The first of them is at the
    first of `broker_ports`, the next one at the next. Others cannot be reached. Add new ones at the end, so that none moves. For
    ids that are far apart; not needed where there are more ports than the highest id."""
    broker_name: Name = "broker-{id}.{advertise}"
    """For routing by SNI: the host name of a broker; `{id}` stands for its number, `{advertise}` for `advertise`."""
    advertise_port: Annotated[int, Field(ge=1, le=0xFFFF)] | None = None
    """For routing by SNI: the port that clients are told, where something in front of the proxy has another one."""
    tls: ListenerTls | None = None
    proxy_protocol: bool = False
    """Whether every connection begins with a PROXY protocol v2 header, from a load balancer in front. It says who the client
    is, in logs and limits. Every client that can reach such a listener can claim any address."""

    @model_validator(mode="after")
    def _consistent(self) -> Listener:
        if self.routing == "sni" and (self.tls is None or self.advertise is None):
            raise ValueError("`routing: sni` needs `tls` and `advertise`: brokers are told apart by the name in TLS")
        if self.broker_name.count("{id}") != 1 or re.search(
            r"[{}]", self.broker_name.replace("{id}", "").replace("{advertise}", "")
        ):
            raise ValueError(
                "`broker_name` needs `{id}` once, such as `broker-{id}.{advertise}`, and no other braces but `{advertise}`"
            )
        if self.routing == "sni" and self.broker_ports is not None:
            raise ValueError("`broker_ports` is for `routing: ports`; with `sni` all brokers are at the bootstrap port")
        if self.routing == "ports" and self.advertise_port is not None:
            raise ValueError("`advertise_port` is for `routing: sni`; with `ports` clients are told the ports that are open")
        ports = self.ports()
        if self.reuse_port and (self.bootstrap.port == 0 or (self.routing == "ports" and ports.first == 0)):
            raise ValueError("`reuse_port` needs fixed ports: with `0` no other proxy has the same")
        if self.broker_ports is not None and ports.first <= self.bootstrap.port <= ports.last and ports.first:
            raise ValueError(f"`broker_ports` {ports} holds the bootstrap port {self.bootstrap.port}; leave it out of the range")
        if self.broker_ids is not None:
            self._check_ids(self.broker_ids)
        return self

    def _check_ids(self, ids: tuple[range, ...]) -> None:
        ports, count = self.ports(), sum(map(len, ids))
        if ports.first == 0:
            raise ValueError("`broker_ids` need fixed `broker_ports`: the first of the ids is at the first of the ports")
        if count > ports.last - ports.first + 1:
            raise ValueError(
                f"`broker_ids` are {count}, and `broker_ports` {ports} are {ports.last - ports.first + 1}: give it more ports"
            )

    def port_map(self, reserved: frozenset[int]) -> BrokerPorts:
        """Which port stands for which broker. `reserved`: ports that no broker gets."""
        return BrokerPorts(self.ports(), self.broker_ids or (), reserved)

    def ports(self) -> PortRange:
        """The range in force. (0, 0) means any free ports, and none for routing by SNI."""
        if self.broker_ports is not None:
            return self.broker_ports
        port = self.bootstrap.port
        if port == 0 or self.routing == "sni":
            return PortRange(0, 0)
        return PortRange(port + 1, min(port + 100, 0xFFFF)) if port < 0xFFFF else PortRange(port - 100, port - 1)
