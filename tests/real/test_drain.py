"""SIGTERM: no new clients, idle ones go, who waits for an answer gets it, and at last the proxy ends with 0."""

from __future__ import annotations

import datetime
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kio.index import load_request_schema

from localkafka import LocalCluster
from proxy.session.session import State
from proxy.wire.kio_bridge import encode_request
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import connect, make

pytestmark = pytest.mark.kafka

LIMIT = 120
"""Seconds after which a socket of these tests has waited in vain."""
API_VERSIONS = encode_request(1, "raw", make(load_request_schema(18, 2)))
LONG = datetime.timedelta(minutes=10)


class Client:
    """A socket and what Kafka says on it."""

    def __init__(self, address: str, receive_buffer: int = 0) -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(LIMIT)
        self.sock.connect((host, int(port)))

    def send(self, data: bytes) -> Client:
        self.sock.sendall(data)
        return self

    def answer(self) -> bytes:
        """The next response, without its size."""
        size = int.from_bytes(self.exactly(4), "big")
        return self.exactly(size)

    def exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            assert part, f"closed after {len(data)} of {count} bytes"
            data += part
        return data

    def ended(self) -> bool:
        """The other side closed in peace; an error when the connection is reset."""
        return self.sock.recv(1) == b""


@contextmanager
def clients(*addresses: str) -> Iterator[list[Client]]:
    made = [Client(address) for address in addresses]
    try:
        yield made
    finally:
        for client in made:
            client.sock.close()


def fetch(topic: str, wait: datetime.timedelta = LONG, most: int = 50 << 20) -> bytes:
    """A Fetch that is answered as soon as there is a record."""
    schema = load_request_schema(1, 4)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": most}
    topics = [{"topic": topic, "partitions": [partition]}]
    body: Any = make(schema, replica_id=-1, max_wait=wait, min_bytes=1, max_bytes=most, topics=topics)
    return encode_request(2, "raw", body)


def put(kafka: LocalCluster, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "message.max.bytes": 4 << 20})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(LIMIT) == 0


def leader(kafka: LocalCluster, proxy: ProxyProcess, topic: str) -> str:
    """Makes a topic of one partition; the address at which the proxy shows its leader."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(LIMIT)

    def found() -> str | None:
        with connect(proxy.bootstrap) as connection:
            told = connection.decoded(3, 1, topics=[{"name": topic}])
        led = next((partition.leader_id for partition in told.topics[0].partitions), -1)
        address = next((f"{broker.host}:{broker.port}" for broker in told.brokers if broker.node_id == led), None)
        return address if address is not None and knows(address) else None

    def knows(address: str) -> bool:
        """A leader may be the last to know that it is one."""
        asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        with connect(address) as connection:
            told = connection.decoded(2, 1, replica_id=-1, topics=asked)
        return int(told.topics[0].partitions[0].error_code) == 0

    return str(wait_until(found, "a leader"))


def in_flight(proxy: ProxyProcess) -> float:
    """Requests that the proxy looked at."""
    return proxy.metric("requests_total", api="Fetch")


def begin_to_stop(proxy: ProxyProcess) -> None:
    proxy.process.send_signal(signal.SIGTERM)
    proxy.wait_for("stopping")


def test_a_stop_lets_everybody_finish(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"limits": {"drain_timeout": "10m"}}) as proxy:
        broker = leader(kafka3, proxy, name)
        with clients(proxy.bootstrap, proxy.bootstrap, broker, broker) as (silent, idle, half, waiting):
            idle.send(API_VERSIONS).answer()
            half.send(API_VERSIONS).answer()
            half.send(API_VERSIONS[:9])
            waiting.send(fetch(name))
            wait_until(lambda: in_flight(proxy) == 1, "the Fetch to be under way")
            begin_to_stop(proxy)
            assert proxy.get("/readyz") == (503, "stopping\n")
            assert proxy.get("/healthz")[0] == 200
            for address in (proxy.bootstrap, broker):
                wait_until(lambda address=address: refused(address), "listeners to be closed")
            assert silent.ended()
            assert idle.ended()
            half.send(API_VERSIONS[9:])
            assert half.answer()[:4] == API_VERSIONS[8:12], "the correlation id"
            assert half.ended()
            assert proxy.process.poll() is None
            put(kafka3, name, b"at last")
            assert b"at last" in waiting.answer()
            assert waiting.ended()
            assert proxy.process.wait(LIMIT) == 0
        proxy.wait_for("stopped")
        assert not proxy.lines("drain timeout")


def test_a_busy_client_gets_its_answers_and_is_let_go(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """What it sends behind them is not looked at: else a client that always sends more would keep the proxy."""
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"limits": {"drain_timeout": "10m"}}) as proxy:
        broker = leader(kafka3, proxy, name)
        with clients(broker) as (busy,):
            busy.send(fetch(name) + API_VERSIONS)
            wait_until(lambda: in_flight(proxy) == 1, "the Fetch to be under way")
            begin_to_stop(proxy)
            wait_until(lambda: refused(broker), "listeners to be closed")
            busy.send(API_VERSIONS * 1000)
            put(kafka3, name, b"at last")
            assert b"at last" in busy.answer()
            assert busy.answer()
            rest = 0
            while part := busy.sock.recv(1 << 16):
                rest += len(part)
            assert rest < 1000 * len(API_VERSIONS)
            assert proxy.process.wait(LIMIT) == 0


def refused(address: str) -> bool:
    try:
        Client(address).sock.close()
    except ConnectionRefusedError:
        return True
    return False


def test_the_last_answer_reaches_a_slow_client_that_sends_on(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    """A socket closed with something unread resets the connection, and what is on its way to the client is lost."""
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"limits": {"drain_timeout": "10m"}}) as proxy:
        broker = leader(kafka3, proxy, name)
        value = bytes(range(256)) * 3000
        put(kafka3, name, value, value, value)
        slow = Client(broker, receive_buffer=4096)
        with slow.sock:
            slow.send(fetch(name))
            wait_until(lambda: proxy.metric("response_bytes_total", api="Fetch") > 2 << 20, "the answer to be under way")
            begin_to_stop(proxy)
            wait_until(lambda: refused(broker), "listeners to be closed")
            slow.send(API_VERSIONS * 100)
            assert slow.answer().count(value) == 3
            assert slow.ended()
        assert proxy.process.wait(LIMIT) == 0


def test_after_the_drain_timeout_the_rest_is_closed(kafka3: LocalCluster, tmp_path: Path, name: str) -> None:
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"limits": {"drain_timeout": "300ms"}}) as proxy:
        with clients(leader(kafka3, proxy, name), proxy.bootstrap) as (waiting, half):
            waiting.send(fetch(name))
            half.send(API_VERSIONS[:9])
            wait_until(lambda: in_flight(proxy) == 1, "the Fetch to be under way")
            begin_to_stop(proxy)
            for client in (waiting, half):
                try:
                    assert client.ended()
                except ConnectionResetError:
                    pass
            assert proxy.process.wait(LIMIT) == 0
        said = proxy.wait_for("drain timeout")
        assert said["connections"] == 2
        assert said["waited_for"] == {"Fetch": 1, State.LAST.value: 1}
        proxy.wait_for("stopped")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(kafka3: LocalCluster, tmp_path: Path, name: str, number: signal.Signals) -> None:
    with ProxyProcess(tmp_path, kafka3.bootstrap_servers, {"limits": {"drain_timeout": "10m"}}) as proxy:
        with clients(leader(kafka3, proxy, name)) as (waiting,):
            waiting.send(fetch(name))
            wait_until(lambda: in_flight(proxy) == 1, "the Fetch to be under way")
            begin_to_stop(proxy)
            wait_until(lambda: refused(proxy.bootstrap), "listeners to be closed")
            assert proxy.process.poll() is None
            proxy.process.send_signal(number)
            assert proxy.process.wait(LIMIT) == 0
        proxy.wait_for("stopped")
        assert [line for line in proxy.usage() if line["type"] == "usage" and line["api"] == "Fetch"], "nothing is forgotten"
