"""Fixtures of the tests with a real Kafka: a proxy before the three brokers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from localkafka import LocalCluster
from tests.real.proxies import ProxyProcess

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
