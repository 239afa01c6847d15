"""The proxy shields a broker: connections that announce large requests and send little of them, or half, end a broker with a small
heap, and do nothing to it when the proxy is before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.shield import Attack, out_of_memory, serves
from localkafka import LocalCluster, Node
from tests.conftest import QUICK_START
from tests.real.proxies import ProxyProcess, wait_until

pytestmark = pytest.mark.kafka

MIB = 1 << 20
HEAP = 256 * MIB
ANNOUNCED = 100 * MIB
COUNT = 24
TOTAL = 100 * MIB
"""`limits.memory_total`: less than half of what the broker's heap has."""
SHARE = TOTAL * 8 // 9
"""What one user may hold of it."""
A_LITTLE, HALF = MIB // 2, 20 * MIB
MARGIN = 64 * MIB
"""What a broker's resident memory may grow by, serving ordinary clients."""


@pytest.fixture(scope="module")
def small() -> Iterator[Node]:
    with LocalCluster(1, jvm_flags=[*QUICK_START, f"-Xmx{HEAP // MIB}m"]) as cluster:
        yield cluster.brokers[0]


@pytest.fixture
def shield(small: Node, tmp_path: Path) -> Iterator[ProxyProcess]:
    with ProxyProcess(tmp_path, small.address, {"limits": {"memory_total": TOTAL}}) as proxy:
        yield proxy


def test_sizes_that_are_only_announced_cost_the_broker_nothing(shield: ProxyProcess, small: Node) -> None:
    assert serves(shield.bootstrap, 20)
    before = small.resident_bytes()
    with Attack(shield.bootstrap, COUNT, ANNOUNCED, A_LITTLE):
        wait_until(lambda: shield.metric("memory_held_bytes") >= COUNT * A_LITTLE, "all that was sent to be held")
        assert serves(shield.bootstrap, 20)
        assert shield.metric("client_connections") >= COUNT
    wait_until(lambda: shield.metric("memory_held_bytes") == 0, "the proxy to forget them")
    assert out_of_memory(small) == 0
    assert small.resident_bytes() < before + MARGIN


def test_half_requests_fill_the_memory_of_the_proxy_up_to_its_limit_and_cost_the_broker_nothing(
    shield: ProxyProcess, small: Node
) -> None:
    assert serves(shield.bootstrap, 20)
    before = small.resident_bytes()
    with Attack(shield.bootstrap, COUNT, ANNOUNCED, HALF):
        wait_until(lambda: shield.metric("memory_waiting_connections") > COUNT // 2, "the memory to be short")
        assert shield.metric("memory_held_bytes") > SHARE
        assert serves(shield.bootstrap, 20)
        assert shield.metric("limit_hits_total", limit="memory_total") >= COUNT // 2
    wait_until(lambda: shield.metric("memory_held_bytes") == 0, "the proxy to forget them")
    assert out_of_memory(small) == 0
    assert small.resident_bytes() < before + MARGIN


def test_without_the_proxy_the_same_ends_the_broker(small: Node) -> None:
    """The last one, as the broker does not come back from it."""
    assert serves(small.address, 20)
    assert out_of_memory(small) == 0
    with Attack(small.address, COUNT, ANNOUNCED, A_LITTLE):
        wait_until(lambda: out_of_memory(small), "the broker to run out of memory")
        assert not serves(small.address, 2)
