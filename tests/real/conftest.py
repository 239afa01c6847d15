"""Fixtures of the tests with a real Kafka: a proxy before the three brokers, and a broker with TLS and logins."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from localkafka import LocalCluster, Tls
from tests.certs import Authority
from tests.cluster_pool import ClusterPool
from tests.conftest import QUICK_START
from tests.real import secured
from tests.real.proxies import ProxyProcess
from tests.real.raw import connect
from tests.real.tenancy import tenant_cluster

_numbers = itertools.count()


@pytest.fixture(scope="module")
def proxy(kafka3: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy without quotas, at the brokers' address: a port tells which of them is meant."""
    listen = {"listen": {"bootstrap": "127.0.0.1:0"}}
    with ProxyProcess(tmp_path_factory.mktemp("proxy"), kafka3.bootstrap_servers, listen) as running:
        yield running


@pytest.fixture(autouse=True)
def _served(request: pytest.FixtureRequest) -> None:
    """Skip what the brokers of this version do not serve."""
    marker = request.node.get_closest_marker("api")
    if marker is not None:
        key, *versions = marker.args
        version = versions[0] if versions else request.node.callspec.params["version"]
        low, high = request.getfixturevalue("served").get(key, (1, 0))
        if not low <= version <= high:
            pytest.skip(f"Kafka {request.getfixturevalue('kafka_version')} does not serve version {version} of API {key}")


@pytest.fixture(scope="module")
def served(kafka3: LocalCluster) -> dict[int, tuple[int, int]]:
    """API key -> versions, as the brokers say."""
    with connect(kafka3.brokers[0].address) as connection:
        answer = connection.decoded(18, 3, client_software_name="raw", client_software_version="1")
    return {int(api.api_key): (api.min_version, api.max_version) for api in answer.api_keys}


@pytest.fixture
def name() -> str:
    """A name for a topic or a group that no other test uses."""
    return f"t-{next(_numbers)}"


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom brokers, the proxy and clients trust."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tenants1(clusters: ClusterPool, kafka_version: str) -> LocalCluster:
    """One broker with logins and an authorizer (`tenancy`)."""
    return clusters.get("tenants1", lambda: tenant_cluster(1, version=kafka_version))


@pytest.fixture(scope="module")
def tenants3(clusters: ClusterPool, kafka_version: str) -> LocalCluster:
    """Three such brokers. A test that stops one starts it again."""
    return clusters.get("tenants3", lambda: tenant_cluster(3, version=kafka_version))


@pytest.fixture(scope="module")
def secure_kafka(clusters: ClusterPool, authority: Authority, kafka_version: str) -> LocalCluster:
    """One broker that speaks TLS and takes four kinds of logins."""

    def make() -> LocalCluster:
        own = authority.server("broker", "localhost", "127.0.0.1")
        how: dict[str, Any] = {"sasl": secured.USERS, "tls": Tls(own.cert, own.key), "properties": secured.PROPERTIES}
        return LocalCluster(1, version=kafka_version, jvm_flags=QUICK_START, **how)

    return clusters.get("secure_kafka", make)
