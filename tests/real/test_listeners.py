"""One proxy, many ways in: TLS, certificates of clients, names instead of ports, a load balancer in front, IPv6."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiokafka
import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from cryptography.x509.oid import NameOID

from localkafka import LocalCluster, run_java
from tests.certs import Authority, Pair
from tests.real.balancer import CLIENT, LOCAL, Balancer, header
from tests.real.proxies import ProxyProcess, wait_until
from tests.real.raw import Connection, address, connect
from tests.real.secured import librdkafka, principals, raw_tls, tls_over

pytestmark = pytest.mark.kafka
NAME = "proxy.test"
RULES = r"RULE:^CN=([a-z]+),OU=Teams,O=Example$/team-$1/U, RULE:^CN=([a-z]+)$/$1/"
THROTTLING_QUOTA_EXCEEDED = 89


@dataclass(frozen=True)
class House:
    """A proxy and where its listeners are."""

    proxy: ProxyProcess
    listeners: dict[str, str]


def subject(name: str, unit: str) -> x509.Name:
    parts = ((NameOID.ORGANIZATION_NAME, "Example"), (NameOID.ORGANIZATIONAL_UNIT_NAME, unit), (NameOID.COMMON_NAME, name))
    return x509.Name([x509.NameAttribute(*part) for part in parts])


@pytest.fixture(scope="module")
def balancer() -> Iterator[Balancer]:
    with Balancer() as running:
        yield running


@pytest.fixture(scope="module")
def house(
    kafka3: LocalCluster, authority: Authority, balancer: Balancer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    own = authority.server("listeners", "127.0.0.1", "localhost", NAME, f"*.{NAME}")
    tls = {"cert_file": str(own.cert), "key_file": str(own.key)}
    mutual = {**tls, "client_ca_file": str(authority.file)}
    names = {"bootstrap": "127.0.0.1:0", "routing": "sni", "advertise": NAME, "tls": tls}
    settings = {
        "listen": {"bootstrap": "127.0.0.1:0"},
        "more_listeners": {
            "named": {"bootstrap": "127.0.0.1:0", "advertise": "localhost"},
            "mutual": {"bootstrap": "127.0.0.1:0", "tls": {**mutual, "principal_mapping_rules": RULES}},
            "asked": {"bootstrap": "127.0.0.1:0", "tls": {**mutual, "client_auth": "requested"}},
            "names": names,
            "balanced": {**names, "broker_name": "b{id}.{advertise}", "proxy_protocol": True, "advertise_port": balancer.port},
            "claimed": {"bootstrap": "127.0.0.1:0", "proxy_protocol": True},
            "six": {"bootstrap": "[::1]:0"},
            "both": {"bootstrap": "[::]:0"},
        },
        "quotas": {"entities": [{"user": "limited", "controller_mutations_rate": 10, "controller_mutations_burst": 20}]},
    }
    with ProxyProcess(tmp_path_factory.mktemp("listeners"), kafka3.bootstrap_servers, settings) as proxy:
        listeners = proxy.wait_for("started")["listeners"]
        balancer.target = listeners["balanced"]
        yield House(proxy, listeners)


def metadata(connection: Connection) -> dict[int, tuple[str, int]]:
    return {broker.node_id: (broker.host, broker.port) for broker in connection.decoded(3, 12, topics=[]).brokers}


def is_broker(connection: Connection, kafka: LocalCluster, node_id: int) -> bool:
    log_dirs = {result.log_dir for result in connection.decoded(35, 4).results}
    return log_dirs == {str(folder) for folder in kafka.brokers[node_id].log_dirs}


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


# ---------------------------------------------------------------------- several at once


def test_every_listener_shows_its_own_addresses(house: House, kafka3: LocalCluster) -> None:
    with connect(house.listeners["main"]) as main, connect(house.listeners["named"]) as named:
        first, second = metadata(main), metadata(named)
    assert {host for host, _ in first.values()} == {"127.0.0.1"}
    assert {host for host, _ in second.values()} == {"localhost"}
    assert len({port for _, port in (*first.values(), *second.values())}) == 6
    for node_id, (_, port) in second.items():
        with connect(f"127.0.0.1:{port}") as connection:
            assert is_broker(connection, kafka3, node_id)


def test_ipv6(house: House, kafka3: LocalCluster, name: str) -> None:
    with socket.create_connection(("::1", port_of(house.listeners["six"])), 20) as sock:
        shown = metadata(Connection(sock))
    assert {host for host, _ in shown.values()} == {"::1"}
    for node_id, where in shown.items():
        with socket.create_connection(where, 20) as sock:
            assert is_broker(Connection(sock), kafka3, node_id)
    producer = Producer({"bootstrap.servers": house.listeners["six"]})
    producer.produce(name, b"x")
    assert producer.flush(90) == 0
    assert principals(house.proxy, name) == {"User:ANONYMOUS"}


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_listener_for_all_addresses_takes_ipv4_and_ipv6(house: House, host: str) -> None:
    """Who came by IPv4 is shown an IPv4 address."""
    with socket.create_connection((host, port_of(house.listeners["both"])), 20) as sock:
        shown = metadata(Connection(sock))
    assert {at for at, _ in shown.values()} == {host}
    with socket.create_connection(shown[0], 20) as sock:
        assert metadata(Connection(sock)) == shown


# ---------------------------------------------------------------------- certificates of clients


def certified(house: House, listener: str, authority: Authority, pair: Pair | None) -> dict[str, Any]:
    own = {} if pair is None else {"ssl.certificate.location": str(pair.cert), "ssl.key.location": str(pair.key)}
    return librdkafka(house.listeners[listener], authority, **own)


def produced_by(house: House, topic: str, settings: dict[str, Any]) -> set[str]:
    producer = Producer(settings)
    producer.produce(topic, b"x")
    assert producer.flush(90) == 0
    return principals(house.proxy, topic)


@pytest.mark.parametrize(
    ("listener", "who", "user"),
    [
        ("mutual", subject("etl", "Teams"), "TEAM-ETL"),
        ("mutual", None, "plain"),
        ("asked", subject("etl, again", "Teams"), r"CN=etl\, again,OU=Teams,O=Example"),
    ],
    ids=["first rule", "second rule", "no rules"],
)
def test_a_certificate_says_who_the_client_is(
    house: House, authority: Authority, name: str, listener: str, who: x509.Name | None, user: str
) -> None:
    assert produced_by(house, name, certified(house, listener, authority, authority.client("plain", who))) == {f"User:{user}"}


def test_a_certificate_may_be_left_out_where_it_is_only_asked_for(house: House, authority: Authority, name: str) -> None:
    assert produced_by(house, name, certified(house, "asked", authority, None)) == {"User:ANONYMOUS"}


def refused(house: House, listener: str, authority: Authority, pair: Pair | None) -> str:
    """Nothing is answered; the reason that the operations log gives."""
    with socket.create_connection(("127.0.0.1", port_of(house.listeners[listener])), 20) as sock:
        client = address(sock)
        with (
            pytest.raises((ConnectionError, ssl.SSLError)),
            tls_over(sock, authority, "127.0.0.1", pair) as secure,
        ):
            Connection(secure).ask(18, 0)
    return str(house.proxy.wait_for("client connection closed", client=client)["reason"])


def test_without_the_right_certificate_nobody_comes_in(house: House, authority: Authority, tmp_path: Path) -> None:
    assert "did not return a certificate" in refused(house, "mutual", authority, None)
    for listener in ("mutual", "asked"):
        assert "certificate" in refused(house, listener, authority, Authority(tmp_path).client("plain"))
        assert "expired" in refused(house, listener, authority, authority.client("late", expired=True))


def test_a_certificate_that_no_rule_fits_names_nobody(house: House, authority: Authority) -> None:
    stranger = authority.client("stranger", subject("etl", "Guests"))
    assert refused(house, "mutual", authority, stranger) == (
        "no rule of `principal_mapping_rules` applies to its certificate 'CN=etl,OU=Guests,O=Example'"
    )


def test_quotas_hold_for_the_user_of_a_certificate(house: House, authority: Authority, name: str) -> None:
    topics = [{"name": f"{name}-{i}", "num_partitions": 10, "replication_factor": 1} for i in range(4)]
    with raw_tls(house.listeners["mutual"], authority, own=authority.client("limited")) as connection:
        answer = connection.decoded(19, 7, topics=topics, validate_only=False)
    assert [topic.error_code for topic in answer.topics] == [0, 0, THROTTLING_QUOTA_EXCEEDED, THROTTLING_QUOTA_EXCEEDED]
    assert "user limited" in answer.topics[-1].error_message


# ---------------------------------------------------------------------- names instead of ports


def test_names_lead_to_brokers_at_one_port(house: House, kafka3: LocalCluster, authority: Authority) -> None:
    port = port_of(house.listeners["names"])
    with raw_tls(house.listeners["names"], authority, NAME) as connection:
        assert metadata(connection) == {node: (f"broker-{node}.{NAME}", port) for node in range(3)}
    for node_id in range(3):
        for asked in (f"broker-{node_id}.{NAME}", f"BROKER-{node_id}.{NAME.upper()}"):
            with raw_tls(house.listeners["names"], authority, asked) as connection:
                assert is_broker(connection, kafka3, node_id)


def test_other_names_lead_to_any_broker(house: House, authority: Authority) -> None:
    for asked in ("127.0.0.1", "localhost", f"broker-x.{NAME}"):
        with raw_tls(house.listeners["names"], authority, asked) as connection:
            assert len(metadata(connection)) == 3


def test_a_broker_that_is_not_there(house: House, authority: Authority) -> None:
    before = len(house.proxy.lines("broker connection closed"))
    with raw_tls(house.listeners["names"], authority, f"broker-77.{NAME}") as connection, pytest.raises(ConnectionError):
        connection.ask(18, 0)
    line = wait_until(lambda: house.proxy.lines("broker connection closed")[before:], "a line about it")[0]
    assert line["reason"] == "the broker has left the cluster"


def test_java_finds_brokers_by_name(house: House, authority: Authority, name: str, tmp_path: Path) -> None:
    hosts, settings = tmp_path / "hosts", tmp_path / "client.properties"
    names = [NAME, *(f"broker-{node}.{NAME}" for node in range(3))]
    hosts.write_text("".join(f"127.0.0.1 {each}\n" for each in names))
    settings.write_text(
        f"bootstrap.servers={NAME}:{port_of(house.listeners['names'])}\nsecurity.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={authority.file}\n"
    )
    done = run_java(Path(__file__).parent / "java" / "Named.java", str(settings), name, str(hosts))
    assert done.stdout.splitlines() == [" ".join(names[1:]), "read 30"], done.stderr


# ---------------------------------------------------------------------- a load balancer in front


def test_one_port_of_a_load_balancer_is_enough(
    house: House, authority: Authority, balancer: Balancer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """aiokafka through a load balancer that speaks the PROXY protocol, TLS and names behind it."""
    admin = AdminClient({"bootstrap.servers": house.listeners["main"]})
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(90)
    asked: set[str] = set()
    real = socket.getaddrinfo

    def here(host: str, *more: Any, **other: Any) -> Any:
        if host.endswith(NAME):
            asked.add(host)
            host = "127.0.0.1"
        return real(host, *more, **other)

    monkeypatch.setattr(socket, "getaddrinfo", here)

    async def both_ways() -> int:
        way = {
            "bootstrap_servers": f"{NAME}:{balancer.port}",
            "security_protocol": "SSL",
            "ssl_context": ssl.create_default_context(cafile=str(authority.file)),
        }
        async with aiokafka.AIOKafkaProducer(**way) as producer:
            for i in range(30):
                await producer.send_and_wait(name, b"x", partition=i % 3)
        async with aiokafka.AIOKafkaConsumer(name, auto_offset_reset="earliest", **way) as consumer:
            async with asyncio.timeout(90):
                return len([await consumer.getone() for _ in range(30)])

    assert asyncio.run(both_ways()) == 30
    assert asked == {NAME, *(f"b{node}.{NAME}" for node in range(3))}


def said_of(house: House, first: bytes) -> dict[str, Any]:
    """What the log says of a client that sends these bytes to the listener with the PROXY protocol, and is closed."""
    before = len(house.proxy.lines("client connection closed"))
    with socket.create_connection(("127.0.0.1", port_of(house.listeners["claimed"])), 20) as sock:
        clients = address(sock), CLAIMED
        sock.sendall(first)
        try:
            assert sock.recv(1) == b""
        except ConnectionResetError:
            pass

    def lines() -> list[dict[str, Any]]:
        return [line for line in house.proxy.lines("client connection closed")[before:] if line["client"] in clients]

    line: dict[str, Any] = wait_until(lines, "a line about it")[0]
    return line


GARBAGE = b"\xff" * 64
CLAIMED = f"{CLIENT[0]}:{CLIENT[1]}"


def test_a_client_is_who_the_load_balancer_says(house: House) -> None:
    assert said_of(house, header() + GARBAGE)["client"] == CLAIMED
    assert said_of(house, LOCAL + GARBAGE)["client"].startswith("127.0.0.1:")


def test_a_header_in_pieces_and_with_the_first_request(house: House) -> None:
    with socket.create_connection(("127.0.0.1", port_of(house.listeners["claimed"])), 20) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in header():
            sock.sendall(bytes([byte]))
        assert len(metadata(Connection(sock))) == 3


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 1 2\r\n", "version 1; only version 2 is accepted"),
        (bytes.fromhex("0000001a00120003000000010003666f"), "does not begin with a PROXY protocol v2 header"),
        (header().replace(b"\x21\x11", b"\x21\x12"), "must be TCP over IPv4 (0x11) or IPv6 (0x21)"),
    ],
    ids=["version 1", "none", "UDP"],
)
def test_without_a_right_header_nobody_comes_in(house: House, first: bytes, reason: str) -> None:
    assert reason in said_of(house, first)["reason"]


# ---------------------------------------------------------------------- new certificates


def served(address: str, authority: Authority) -> bytes | None:
    """The certificate that new connections get."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as sock, tls_over(sock, authority, host) as secure:
        return secure.getpeercert(binary_form=True)


@pytest.mark.parametrize("how", ["by itself", "SIGHUP"])
def test_new_certificates_are_for_new_connections(kafka1: LocalCluster, authority: Authority, tmp_path: Path, how: str) -> None:
    old, new = authority.server(f"old {how}", "127.0.0.1"), authority.server(f"new {how}", "127.0.0.1")
    guests = Authority(tmp_path / "guests")
    guest = guests.client("guest")
    files = {"cert_file": old.cert, "key_file": old.key, "client_ca_file": guests.file}
    mine = {setting: tmp_path / f"{setting}.pem" for setting in files}
    for setting, file in files.items():
        shutil.copy(file, mine[setting])
    settings = {
        "listen": {"bootstrap": "127.0.0.1:0", "tls": {**{s: str(f) for s, f in mine.items()}, "client_auth": "requested"}},
        "reload": {"interval": "200ms" if how == "by itself" else 0},
    }

    def changed(times: int, event: str) -> None:
        if how == "SIGHUP":
            os.kill(proxy.process.pid, signal.SIGHUP)
        wait_until(lambda: len(proxy.lines(event)) >= times, event)

    with (
        ProxyProcess(tmp_path, kafka1.bootstrap_servers, settings) as proxy,
        raw_tls(proxy.bootstrap, authority, own=guest) as open_one,
    ):
        assert metadata(open_one)
        assert served(proxy.bootstrap, authority) == old.der

        mine["key_file"].write_text("half a fi")
        changed(1, "settings refused")
        assert "`listen.tls.key_file`" in proxy.lines("settings refused")[-1]["reason"]
        assert served(proxy.bootstrap, authority) == old.der

        for setting, file in {
            "client_ca_file": authority.file,
            "cert_file": new.cert,
            "key_file": new.key,
        }.items():  # the key is broken until then
            shutil.copy(file, tmp_path / "next")
            (tmp_path / "next").replace(mine[setting])
        changed(1, "settings applied")
        wait_until(lambda: served(proxy.bootstrap, authority) == new.der, "the new certificate")
        with pytest.raises((ConnectionError, ssl.SSLError)), raw_tls(proxy.bootstrap, authority, own=guest) as another:
            another.ask(18, 0)
        assert metadata(open_one), "who was in stays in"


def test_certificates_that_cannot_be_used_keep_the_proxy_from_starting(tmp_path: Path, authority: Authority) -> None:
    own = authority.server("unused", "127.0.0.1")
    tls = {"cert_file": str(own.cert), "key_file": str(tmp_path / "none.key")}
    config = tmp_path / "settings.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "upstream": {"bootstrap_servers": ["127.0.0.1:1"]},
                "listen": {"bootstrap": "127.0.0.1:0"},
                "admin": {"listen": "127.0.0.1:0"},
                "more_listeners": {"internal": {"bootstrap": "127.0.0.1:0", "tls": tls}},
            }
        )
    )
    command = [sys.executable, "-m", "proxy", "serve", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"kafka-quota-proxy: `more_listeners.internal.tls.key_file`: {tls['key_file']} cannot be read: No such file or directory\n"
    )
