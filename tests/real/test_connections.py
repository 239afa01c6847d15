"""Connections per second and their age with real clients and a real broker: who is over the rate waits or is closed, and what is
produced and read while connections grow old is all there, without an error."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from localkafka import LocalCluster, tool
from tests.messages import request
from tests.real.launcher import run_command
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.tenancy import access, logged_in, upstream

pytestmark = pytest.mark.kafka


def test_nothing_is_lost_or_fails_while_connections_end_of_age(tenants3: LocalCluster, tmp_path: Path, name: str) -> None:
    admin = AdminClient(access(tenants3.bootstrap_servers))
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(90)
    settings = {"upstream": upstream(), "limits": {"max_connection_age": "2s"}}
    errors: list[str] = []
    with ProxyProcess(tmp_path, tenants3.bootstrap_servers, settings) as proxy:
        said = {"log_level": 2, "linger.ms": 1}
        producer = Producer({**access(proxy.bootstrap), **said, "enable.idempotence": True})
        consumer = Consumer({**access(proxy.bootstrap), "log_level": 2, "group.id": name, "auto.offset.reset": "earliest"})
        consumer.subscribe([name])
        sent, got, began = 0, [], time.monotonic()

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                errors.append(str(error))

        while time.monotonic() < began + 12:
            producer.produce(name, str(sent), on_delivery=delivered)
            sent += 1
            producer.poll(0)
            got += consumer.consume(100, 0.0)
            time.sleep(0.01)  # a poll for so long would end with the first delivery
        assert producer.flush(90) == 0
        deadline = time.monotonic() + 90
        while len([one for one in got if not one.error()]) < sent and time.monotonic() < deadline:
            got += consumer.consume(100, 0.2)
        consumer.close()
        ended = proxy.metric("limit_hits_total", limit="max_connection_age")
    assert not errors
    assert sorted(int(one.value()) for one in got if not one.error()) == list(range(sent))
    assert ended >= 6, "connections of both clients, several times"


def come_and_go(address: str, times: int) -> None:
    for _ in range(times):
        with logged_in(address, None) as broker:
            broker.decoded(18, 3, client_software_name="x", client_software_version="1")


def test_a_user_gets_its_rate_of_connections_and_an_address_too(tenants3: LocalCluster, tmp_path: Path) -> None:
    quotas = {"entities": [{"user": "operator", "cluster_connection_rate": 2}], "connections": {"per_address": 4}}
    with ProxyProcess(tmp_path, tenants3.bootstrap_servers, {"quotas": quotas, "upstream": upstream()}) as proxy:

        def comes(_: int) -> None:
            with logged_in(proxy.bootstrap, "operator") as broker:
                broker.decoded(3, 9, topics=[], allow_auto_topic_creation=False)

        began = time.monotonic()
        with ThreadPoolExecutor(27) as pool:  # one after the other takes a busy machine longer than the quota does
            list(pool.map(comes, range(27)))
        took = time.monotonic() - began
        assert took >= 2.4, "20 at once, then 2/s"
        proxy.wait_for("over quota", quota="connection_rate", action="throttle")
        with ThreadPoolExecutor(10) as pool, pytest.raises(Exception, match=r".*"):
            list(pool.map(come_and_go, [proxy.bootstrap] * 10, [20] * 10))
        wait_until(lambda: proxy.lines("over quota", quota="address_connection_rate", action="refuse"), "the line in the log")


def arrives(address: str, source: str) -> bool:
    """Whether a connection from there is let in: one that is refused is closed."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60, (source, 0)) as conn:
        conn.settimeout(60)
        conn.sendall(request(18, 3, 1, client_software_name="x", client_software_version="1"))
        try:
            return bool(conn.recv(1))
        except ConnectionError:
            return False


def test_kafkas_own_tool_sets_the_rate_of_an_address(kafka1: LocalCluster, tmp_path: Path, name: str) -> None:
    settings = {"quotas": {"admins": ["ANONYMOUS"], "dynamic": {"topic": name}}, "reload": {"interval": "100ms"}}
    with ProxyProcess(tmp_path, kafka1.bootstrap_servers, settings) as proxy:
        proxy.wait_for("quotas read")
        at = ("--bootstrap-server", proxy.bootstrap, "--entity-type", "ips")
        one = (*at, "--entity-name", "127.0.0.2")
        tool("configs", *one, "--alter", "--add-config", "connection_creation_rate=1", check=True)
        changed = proxy.wait_for("quota changed", entity="address 127.0.0.2")
        assert (changed["quota"], changed["old"], changed["new"]) == ("connection_creation_rate", None, 1)
        assert all(arrives(proxy.bootstrap, "127.0.0.2") for _ in range(11)), "those of ten seconds at once"
        for _ in range(200):  # on a busy machine the rate lets some more in meanwhile
            if not arrives(proxy.bootstrap, "127.0.0.2"):
                break
        else:
            pytest.fail("everybody is let in")
        proxy.wait_for("over quota", quota="address_connection_rate", entity="address 127.0.0.2")
        assert all(arrives(proxy.bootstrap, "127.0.0.3") for _ in range(14)), "others are not concerned"
        assert "connection_creation_rate=1.0" in tool("configs", *one, "--describe", check=True).stdout
        at_the_broker = ("--bootstrap-server", kafka1.bootstrap_servers, "--entity-type", "ips", "--describe")
        assert "connection_creation_rate" not in tool("configs", *at_the_broker, check=True).stdout
        command = ["quotas", "alter", "--bootstrap-server", proxy.bootstrap, "--ip", "127.0.0.2"]
        assert "altered" in run_command([*command, "--delete-config", "connection_creation_rate"], 300).stdout
        proxy.wait_for("quota changed", entity="address 127.0.0.2", new=None)
        assert all(arrives(proxy.bootstrap, "127.0.0.2") for _ in range(30))
