"""A topic of the proxy's own is reached even if a broker of the cluster accepts connections but never answers."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest
from aiokafka import AIOKafkaConsumer

from localkafka import LocalCluster
from proxy.config.units import HostPort
from proxy.upstream.broker_client import BrokerClient
from proxy.upstream.connector import TopicError, Upstream
from proxy.upstream.internal_topic import Description, InternalTopic, started
from proxy.wire.metadata import Broker

pytestmark = pytest.mark.kafka

TOPIC = "kept-by-the-proxy"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections, as the kernel does for it, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def address_of(kafka: LocalCluster) -> HostPort:
    host, _, port = kafka.bootstrap_servers.rpartition(":")
    return HostPort(host, int(port))


def test_aiokafka_is_only_given_a_broker_that_has_answered(
    kafka1: LocalCluster, silent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cluster names the silent broker first, and aiokafka keeps this order."""
    port = silent.getsockname()[1]
    brokers = BrokerClient.brokers

    async def named(client: BrokerClient) -> list[Broker]:
        return [Broker(99, "127.0.0.1", port), *await brokers(client)]

    monkeypatch.setattr(random, "shuffle", lambda _: None)
    address = address_of(kafka1)

    async def use() -> Description:
        topic = InternalTopic(TOPIC, lambda: [address], Upstream(5.0))
        monkeypatch.setattr(BrokerClient, "brokers", named)
        found = await topic.describe()
        async with started(AIOKafkaConsumer(bootstrap_servers=found.servers, **topic.access())) as consumer:
            await consumer.topics()
        return found

    found = asyncio.run(use())
    assert (found.brokers, found.servers) == (2, [str(address)])
    with pytest.raises(BlockingIOError):
        silent.accept()


def test_a_silent_bootstrap_server_is_passed_over(kafka1: LocalCluster, silent: socket.socket) -> None:
    addresses = [HostPort("127.0.0.1", silent.getsockname()[1]), address_of(kafka1)]

    async def use(seconds: float) -> list[str]:
        """Within which a broker on a busy machine may not answer either."""
        with suppress(TopicError):
            return (await InternalTopic(TOPIC, lambda: addresses, Upstream(seconds)).describe()).servers
        return []

    assert next(filter(None, (asyncio.run(use(seconds)) for seconds in (1.0, 5.0, 30.0)))) == [str(addresses[1])]
