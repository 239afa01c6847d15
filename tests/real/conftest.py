"""Fixtures of the tests with a real Kafka: a proxy before the three brokers, and a broker with TLS and logins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from localkafka import LocalCluster, Tls
from tests.certs import Authority
from tests.conftest import QUICK_START
from tests.real import secured
from tests.real.proxies import ProxyProcess
from tests.real.tenancy import tenant_cluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def proxy(kafka3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy without quotas."""
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), kafka3.bootstrap_servers) as running:
        yield running


@pytest.fixture
def name() -> str:
    """A name for a topic or a group that no other test uses."""
    return f"t-{next(_numbers)}"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom brokers, the proxy and clients trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def tenants1() -> Iterator[LocalCluster]:
    """One broker with logins and an authorizer (`tenancy`)."""
    with tenant_cluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tenants3() -> Iterator[LocalCluster]:
    """Three such brokers. A test that stops one starts it again."""
    with tenant_cluster(3) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def secure_kafka(authority: Authority) -> Iterator[LocalCluster]:
    """One broker that speaks TLS and takes four kinds of logins."""
    own = authority.server("broker", "localhost", "127.0.0.1")
    with LocalCluster(
        1, sasl=secured.USERS, tls=Tls(own.cert, own.key), properties=secured.PROPERTIES, jvm_flags=QUICK_START
    ) as cluster:
        yield cluster
