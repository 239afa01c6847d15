"""What tests on a secured cluster share: users, tokens, settings of clients. In: a cluster's authority. Out: plain values."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.certs import Authority, Pair
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection

USERS = {"alice": "al1ce-s3cret", "bob": "b0b-s3cret", "proxy": "pr0xy-s3cret"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
REAUTH_MS = 4000
"""How long a SCRAM-SHA-256 login holds: clients have to log in again on the open connection (KIP-368)."""

_CLIENT = "listener.name.client"
PROPERTIES: dict[str, str | int] = {
    f"{_CLIENT}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
    # Kafka's validator for tests, which it takes when no other is named: any token is good that has not expired.
    f"{_CLIENT}.oauthbearer.sasl.jaas.config": (
        'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
    ),
    f"{_CLIENT}.plain.connections.max.reauth.ms": 3_600_000,
    f"{_CLIENT}.scram-sha-256.connections.max.reauth.ms": REAUTH_MS,
}


def token(user: str, *, seconds: float = 3600) -> str:
    """An unsigned JWT."""
    now = time.time()

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now - 60, 'exp': now + seconds})}."


def librdkafka(bootstrap: str, authority: Authority, **more: object) -> dict[str, Any]:
    """Settings of confluent-kafka."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.file),
        "log_level": 0,
        **more,
    }


def librdkafka_login(mechanism: str, user: str, password: str | None = None) -> dict[str, Any]:
    """What they are with a login."""
    settings: dict[str, Any] = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return {**settings, "oauth_cb": lambda _: (token(user), time.time() + 3600)}
    return {**settings, "sasl.username": user, "sasl.password": password or USERS[user]}


def java(bootstrap: str, authority: Authority, mechanism: str, user: str) -> str:
    """A Java properties file of a client."""
    login = "org.apache.kafka.common.security"
    if mechanism == "OAUTHBEARER":
        jaas = f'{login}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{user}";'
    else:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        jaas = f'{login}.{module} required username="{user}" password="{USERS[user]}";'
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.file),
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def raw_tls(bootstrap: str, authority: Authority, name: str | None = None, own: Pair | None = None) -> Iterator[Connection]:
    """The Kafka protocol by hand, over TLS. `name`: the host to ask for, when it is not the one of the address."""
    host, _, port = bootstrap.rpartition(":")
    with (
        socket.create_connection((host.strip("[]"), int(port)), 20) as sock,
        tls_over(sock, authority, name or host.strip("[]"), own) as secure,
    ):
        yield Connection(secure)


def tls_over(sock: socket.socket, authority: Authority, name: str, own: Pair | None = None) -> ssl.SSLSocket:
    """TLS on a connection that is there. `name`: the host to ask for."""
    context = ssl.create_default_context(cafile=str(authority.file))
    if own is not None:
        context.load_cert_chain(own.cert, own.key)
    return context.wrap_socket(sock, server_hostname=name)


def log_in(connection: Connection, user: str, password: str) -> int:
    """A PLAIN login by hand: the broker's error code."""
    assert connection.decoded(17, 1, mechanism="PLAIN").error_code == 0
    answer = connection.decoded(36, 2, auth_bytes=f"\0{user}\0{password}".encode())
    return int(answer.error_code)


def principals(proxy: ProxyProcess, topic: str) -> set[str]:
    """Who produced to a topic, as the usage log says."""

    def lines() -> set[str]:
        return {line["principal"] for line in proxy.usage() if line.get("topic") == topic and line.get("api") == "Produce"}

    found: set[str] = wait_until(lines, f"usage of {topic}")
    return found
