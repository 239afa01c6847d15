"""Proxies of one machine at the same ports (`--reuse-port`), with one settings file for all of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from localkafka import LocalCluster
from tests.certs import Authority
from tests.real.proxies import ProxyProcess, shared_ports, wait_until
from tests.real.raw import connect
from tests.real.secured import raw_tls
from tests.real.steady import SteadyProducer, count_values, create
from tests.real.test_faults import serve

pytestmark = pytest.mark.kafka

BROKERS = 3
NAME = "proxy.test"


@dataclass
class Fleet:
    """Proxies at the same ports: `first` is that of bootstrap, the brokers' follow; `sni` is a listener of one port with TLS."""

    proxies: list[ProxyProcess]
    bootstrap: str
    sni: str

    def connections(self) -> list[float]:
        return [proxy.metric("client_connections") for proxy in self.proxies]


@contextmanager
def fleet(kafka: LocalCluster, folder: Path, authority: Authority, count: int = 2, **quotas: Any) -> Iterator[Fleet]:
    own = authority.server("proxy", NAME, f"*.{NAME}")
    with shared_ports(BROKERS + 2) as first, ExitStack() as stack:
        sni = {
            "bootstrap": f"127.0.0.1:{first + BROKERS + 1}",
            "routing": "sni",
            "advertise": NAME,
            "tls": {"cert_file": str(own.cert), "key_file": str(own.key)},
        }
        settings = {
            "listen": {"bootstrap": f"127.0.0.1:{first}", "broker_ports": f"{first + 1}-{first + BROKERS}"},
            "more_listeners": {"sni": sni},
            "limits": {"drain_timeout": "60s"},
            "quotas": quotas,
        }
        made = Fleet([], f"127.0.0.1:{first}", sni["bootstrap"])
        for number in range(count):
            options = ["--reuse-port", "--proxy-id", f"p{number}"]
            made.proxies.append(stack.enter_context(ProxyProcess(folder, kafka.bootstrap_servers, settings, options=options)))
        for proxy in made.proxies:
            wait_until(lambda proxy=proxy: proxy.metric("brokers") == BROKERS, "all brokers to be known")
        yield made


@pytest.mark.nightly  # tests/real/test_rolling_restart.py stops each of two such proxies under load
def test_clients_reach_all_and_one_stops_under_load(kafka3: LocalCluster, authority: Authority, tmp_path: Path, name: str) -> None:
    """Which proxy a connection comes to is up to the kernel, so some connections are made until all have had theirs."""
    create(kafka3.bootstrap_servers, name)
    with fleet(kafka3, tmp_path, authority) as running, ExitStack() as stack:
        producers = [
            SteadyProducer(running.bootstrap, name, f"{kind} {number}", **settings)
            for number in range(4)
            for kind, settings in (("idempotent", {"enable.idempotence": True}), ("plain", {"acks": "all"}))
        ]
        for producer in producers:
            stack.enter_context(producer)
        wait_until(lambda: all(len(producer.acknowledged) > 50 for producer in producers), "all producers to get on")
        wait_until(lambda: min(running.connections()) > 3, "clients at both")
        ends, stays = running.proxies
        assert ends.stop() == 0, ends.stderr
        seen = [len(producer.acknowledged) for producer in producers]
        wait_until(
            lambda: all(len(producer.acknowledged) > before + 200 for producer, before in zip(producers, seen, strict=True)),
            "all producers to go on at the other one",
        )
        assert stays.metric("client_connections") > 8
        stack.close()
        acknowledged = [value for producer in producers for value in producer.acknowledged]
        found, by_leader = count_values(kafka3.bootstrap_servers, name, expected=acknowledged)
        for kind, producer in zip(("idempotent", "plain") * 4, producers, strict=True):
            assert (producer.failed, producer.unsent) == ([], 0)
            written = found if kind == "idempotent" else by_leader
            assert {written[value] for value in producer.acknowledged} == {1}
    wrote = {line["proxy"] for line in stays.usage()}
    assert wrote == {"p0", "p1"}, "both write to one folder, each its own files"
    assert not [line for line in stays.usage() if line["type"] == "gap"]


def test_tls_with_names_at_one_port(kafka3: LocalCluster, authority: Authority, tmp_path: Path) -> None:
    with fleet(kafka3, tmp_path, authority) as running, ExitStack() as stack:
        connected = 0
        while min(running.connections()) < 1:
            assert connected < 64, "one of them never gets a client"
            connection = stack.enter_context(raw_tls(running.sni, authority, f"broker-{connected % BROKERS}.{NAME}"))
            assert len(connection.decoded(3, 9, topics=[]).brokers) == BROKERS
            connected += 1


def test_what_each_has_to_have_of_its_own(kafka3: LocalCluster, authority: Authority, tmp_path: Path) -> None:
    """What is shared by mistake is said by whoever comes second, with the name of the setting."""
    ids = {"state_file": str(tmp_path / "ids")}
    with fleet(kafka3, tmp_path, authority, producer_ids=ids) as running:
        first, second = running.proxies
        assert not first.lines("producer ids cannot be saved")
        reason = second.wait_for("producer ids cannot be saved")["reason"]
        assert f"process id {first.process.pid} " in reason
        assert "`{proxy_id}` in `quotas.producer_ids.state_file`" in reason
        taken = serve("--upstream", "127.0.0.1:1", "--listen", running.bootstrap, "--reuse-port", "--admin", first.admin)
        assert (taken.returncode, taken.stderr) == (
            1,
            f"kafka-quota-proxy: cannot listen at {first.admin}: Address already in use; set `admin.listen` or --admin to a free"
            " address\n",
        )
        alone = serve("--upstream", "127.0.0.1:1", "--listen", running.bootstrap, "--admin", "127.0.0.1:0")
        assert (alone.returncode, alone.stderr) == (
            1,
            f"kafka-quota-proxy: cannot listen at {running.bootstrap}: Address already in use; set `listen.bootstrap` or --listen"
            " to a free address, or share it: `--reuse-port` for all proxies there\n",
        )
        with connect(running.bootstrap) as connection:
            assert len(connection.decoded(3, 9, topics=[]).brokers) == BROKERS, "nobody else took the port"


def test_a_port_of_somebody_who_does_not_share() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = serve("--upstream", "127.0.0.1:1", "--listen", address, "--admin", "127.0.0.1:0", "--reuse-port")
    assert done.returncode == 1
    assert done.stderr.endswith("the process that listens there does not set `reuse_port`, or runs as another user\n")
