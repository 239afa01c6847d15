"""The server.properties of one node, as a value.

In: ports, folders, users, certificates. Out: a dict of Kafka's own property names, and its text. Leaves to others: writing it, and
processes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from localkafka.ports import HOST

PropertyValue = str | int | float | bool

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = "org.apache.kafka.common.security"
_CLIENT = "listener.name.client"


@dataclass(frozen=True)
class Listeners:
    """The ports of one node: `client` is advertised to clients, brokers talk on `internal`, the quorum on `controller`."""

    client: int
    internal: int
    controller: int


@dataclass(frozen=True)
class Tls:
    """TLS on the listener for clients, from PEM files: `cert` with its chain, `key` in PKCS #8 without a password, `client_ca` with
    the authorities of clients. With `client_ca`, clients must have a certificate, or, when it is `optional`, may."""

    cert: Path
    key: Path
    client_ca: Path | None = None
    optional: bool = False


def node_properties(
    node_id: int, listeners: Listeners, log_dirs: Sequence[Path], metadata_dir: Path, advertised: int | None = None
) -> dict[str, PropertyValue]:
    """What differs from node to node. `advertised`: the port that clients are told, where something stands in front of the node.

    Metadata has a folder of its own, so that a log dir may fail or fill up without taking the controller along.
    """
    client = f"CLIENT://{HOST}:{listeners.client}"
    internal = f"INTERNAL://{HOST}:{listeners.internal}"
    return {
        "node.id": node_id,
        "listeners": f"{client},{internal},CONTROLLER://{HOST}:{listeners.controller}",
        "advertised.listeners": f"{client if advertised is None else f'CLIENT://{HOST}:{advertised}'},{internal}",
        "log.dirs": ",".join(map(str, log_dirs)),
        "metadata.log.dir": str(metadata_dir),
    }


def cluster_properties(
    voters: Mapping[int, int],
    users: Mapping[str, str] | None,
    tls: Tls | None = None,
    super_users: Sequence[str] | None = None,
) -> dict[str, PropertyValue]:
    """What is the same on all nodes. `voters` maps node id to controller port; `users` maps name to password, None for no SASL;
    `super_users`: None for no authorizer.
    Errors: OSError when a file of `tls` cannot be read.

    Kafka's defaults suit large clusters: three replicas of internal topics, pauses before groups and brokers start, large buffers.
    """
    replicas = min(3, len(voters))
    security = ("" if users is None else "SASL_") + ("PLAINTEXT" if tls is None else "SSL")
    return {
        "process.roles": "broker,controller",
        "controller.quorum.voters": ",".join(f"{voter}@{HOST}:{port}" for voter, port in voters.items()),
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "INTERNAL",
        "listener.security.protocol.map": f"CLIENT:{security},INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 4,
        "group.initial.rebalance.delay.ms": 0,
        # The controller takes a broker that stopped or was killed back only when its old session is over.
        "broker.session.timeout.ms": 4000,
        "broker.heartbeat.interval.ms": 500,
        "log.index.size.max.bytes": 1024 * 1024,
        "log.cleaner.dedupe.buffer.size": 8 * 1024 * 1024,
        "auto.create.topics.enable": True,
        # So that brokers that have nothing to do take less of the machine: by default their controller writes something every half
        # second, which all replicate, and each of their many threads looks for work three times a second. A replica of a new
        # partition is read only when the reading of others ends: this is what its first record with acks=all waits for at most.
        "metadata.max.idle.interval.ms": 5000,
        "replica.fetch.wait.max.ms": 1000,
        "group.coordinator.threads": 1,
        "num.network.threads": 1,
        "num.io.threads": 3,
        **(_sasl(users) if users is not None else {}),
        **(_tls(tls) if tls is not None else {}),
        **(_authorizer(super_users) if super_users is not None else {}),
    }


def render(properties: Mapping[str, PropertyValue]) -> str:
    """The text of a Java properties file."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in properties.items()}
    return javaproperties.dumps(texts, timestamp=None)


def check_users(users: Mapping[str, str], super_users: Sequence[str] = ()) -> None:
    """Raise ValueError for a name or a password that Kafka's own notations (JAAS, --add-scram) cannot hold unquoted, and for a
    super user who is no user."""
    if unknown := set(super_users) - set(users):
        raise ValueError(f"super_users: {', '.join(sorted(unknown))} cannot log in; name them in sasl")
    for user, password in users.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", user):
            raise ValueError(f"user name {user!r}: letters, digits and _ . - only")
        if not re.fullmatch(r"[A-Za-z0-9_.@+!#%&*/:?~^-]+", password):
            raise ValueError(f"password of user {user!r}: letters, digits and _ . @ + ! # % & * / : ? ~ ^ - only")


def _sasl(users: Mapping[str, str]) -> dict[str, PropertyValue]:
    known = " ".join(f'user_{user}="{password}"' for user, password in users.items())
    return {
        f"{_CLIENT}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{_CLIENT}.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required {known};",
        f"{_CLIENT}.scram-sha-256.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
        f"{_CLIENT}.scram-sha-512.sasl.jaas.config": f"{_LOGIN}.scram.ScramLoginModule required;",
    }


def _authorizer(super_users: Sequence[str]) -> dict[str, PropertyValue]:
    """Brokers and controllers come to each other's listeners without a login, as User:ANONYMOUS. Clients
    cannot: theirs wants one."""
    return {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": ";".join(f"User:{name}" for name in ("ANONYMOUS", *super_users)),
    }


def _tls(tls: Tls) -> dict[str, PropertyValue]:
    own: dict[str, PropertyValue] = {
        f"{_CLIENT}.ssl.keystore.type": "PEM",
        f"{_CLIENT}.ssl.keystore.certificate.chain": tls.cert.read_text(),
        f"{_CLIENT}.ssl.keystore.key": tls.key.read_text(),
    }
    if tls.client_ca is None:
        return own
    return own | {
        f"{_CLIENT}.ssl.client.auth": "requested" if tls.optional else "required",
        f"{_CLIENT}.ssl.truststore.type": "PEM",
        f"{_CLIENT}.ssl.truststore.certificates": tls.client_ca.read_text(),
    }
