"""What tests on a cluster with logins and an authorizer share: users, their rights, settings of clients. In: a cluster. Out: plain
values.

`tenant` and `other` may use all topics, groups and transactional ids; `operator` is a super user; `proxy` is the proxy's identity
and may describe the cluster and its configuration. Nobody else may do anything, and nobody is ANONYMOUS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from localkafka import LocalCluster
from tests.conftest import QUICK_START
from tests.real.raw import Connection, connect
from tests.real.secured import log_in

USERS = {"tenant": "tenant-s3cret", "other": "other-s3cret", "operator": "operator-s3cret", "proxy": "proxy-s3cret"}
USER = "tenant"
"""Who most tests log in as."""
PYTHON: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_plain_username": USER,
    "sasl_plain_password": USERS[USER],
}
"""Settings of aiokafka and kafka-python."""
LOGIN: dict[str, Any] = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": USER,
    "sasl.password": USERS[USER],
}
"""The same of confluent-kafka."""
_TOPIC, _GROUP, _CLUSTER, _TRANSACTIONAL_ID, _ALL, _DESCRIBE, _DESCRIBE_CONFIGS = 2, 3, 4, 5, 2, 8, 10
_READ, _WRITE, _CREATE = 3, 4, 5
_RIGHTS = [
    *((sort, "*", user, _ALL) for sort in (_TOPIC, _GROUP, _TRANSACTIONAL_ID) for user in ("tenant", "other")),
    *((_CLUSTER, "kafka-cluster", "proxy", operation) for operation in (_DESCRIBE, _DESCRIBE_CONFIGS)),
]


SECURED: dict[str, Any] = {"sasl": USERS, "super_users": ["operator"], "jvm_flags": QUICK_START}
"""What makes a LocalCluster one with logins and an authorizer."""


@contextmanager
def tenant_cluster(brokers: int, **more: Any) -> Iterator[LocalCluster]:
    """A cluster whose users have their rights."""
    with LocalCluster(brokers, **SECURED, **more) as cluster:
        grant_rights(cluster)
        yield cluster


def grant_ledger(cluster: LocalCluster, topic: str) -> None:
    """The proxy may make this topic, and keep amounts in it."""
    grant_rights(cluster, [(_TOPIC, topic, "proxy", operation) for operation in (_READ, _WRITE, _CREATE, _DESCRIBE)])


def grant_rights(cluster: LocalCluster, rights: Sequence[tuple[int, str, str, int]] = _RIGHTS) -> None:
    """To the users of a cluster: (kind of resource, its name, user, operation). Without any: those of a new one."""
    creations = [
        {
            "resource_type": sort,
            "resource_name": name,
            "resource_pattern_type": 3,
            "principal": f"User:{user}",
            "host": "*",
            "operation": operation,
            "permission_type": 3,
        }
        for sort, name, user, operation in rights
    ]
    with logged_in(cluster.brokers[0].address, "operator") as connection:
        made = connection.decoded(30, 2, creations=creations)
    assert not any(result.error_code for result in made.results)


def upstream() -> dict[str, Any]:
    """The setting of a proxy before it."""
    return {"sasl": {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password": USERS["proxy"]}}


def access(bootstrap: str, user: str | None = "tenant", **more: Any) -> dict[str, Any]:
    """Settings of confluent-kafka. `user` None: without a login."""
    if user is None:
        return {"bootstrap.servers": bootstrap, **more}
    return {"bootstrap.servers": bootstrap, **LOGIN, "sasl.username": user, "sasl.password": USERS[user], **more}


@contextmanager
def logged_in(address: str, user: str | None = "tenant") -> Iterator[Connection]:
    """The Kafka protocol by hand. `user` None: without a login."""
    with connect(address) as connection:
        assert user is None or log_in(connection, user, USERS[user]) == 0
        yield connection


def java_properties(folder: Path, user: str = USER, **more: str) -> str:
    """The properties file of a client that is Kafka's own; `more` in place of dots has underscores."""
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{user}" password="{USERS[user]}";',
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    path = folder / f"{'-'.join((user, *more.values()))}.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)
