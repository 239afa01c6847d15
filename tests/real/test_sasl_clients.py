"""Real clients log in through the proxy, over TLS on both sides; the proxy knows who they are, and keeps no secret."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiokafka
import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens

from localkafka import LocalCluster, run_java
from tests.certs import Authority
from tests.real import secured
from tests.real.proxies import ProxyProcess, shared_ports, wait_until
from tests.real.raw import Connection, connect
from tests.real.secured import MECHANISMS, USERS, librdkafka, librdkafka_login, log_in, principals, raw_tls, token

pytestmark = pytest.mark.kafka
AUTHENTICATION_FAILED = 58
WHO = dict(zip(MECHANISMS, ("alice", "bob", "alice", "bob"), strict=True))
"""Who logs in by which mechanism."""


@pytest.fixture(scope="module")
def proxy(secure_kafka: LocalCluster, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    """A proxy with TLS towards clients and brokers, and an identity of its own. At the end, nothing it wrote holds a secret."""
    folder = tmp_path_factory.mktemp("secure-proxy")
    own = authority.server("proxy", "127.0.0.1", "localhost")
    (folder / "password").write_text(USERS["proxy"] + "\n")
    settings: dict[str, Any] = {
        "listen": {"bootstrap": "127.0.0.1:0", "tls": {"cert_file": str(own.cert), "key_file": str(own.key)}},
        "upstream": {
            "tls": {"ca_file": str(authority.file)},
            "sasl": {"mechanism": "SCRAM-SHA-512", "username": "proxy", "password_file": str(folder / "password")},
        },
        "logs": {"level": "debug", "usage": {"path": str(folder / "logs"), "interval": "1s"}},
    }
    with ProxyProcess(folder, secure_kafka.bootstrap_servers, settings) as running:
        yield running
        written = str(running.events) + running.stderr + running.get("/metrics")[1]
        written += "".join(path.read_text() for path in running.logs.glob("*.jsonl"))
    for secret in (*USERS.values(), "wr0ng", token("alice").split(".")[0]):
        assert secret not in written


@pytest.mark.parametrize("given", [False, True])
def test_a_proxy_without_identity_knows_the_brokers_that_it_is_given(
    secure_kafka: LocalCluster, authority: Authority, tmp_path: Path, given: bool
) -> None:
    """Two proxies: the client of one goes on at the other, which nobody has asked for brokers before."""
    own = authority.server("twins", "127.0.0.1", "127.0.0.2")
    tls = {"cert_file": str(own.cert), "key_file": str(own.key)}
    upstream = {"tls": {"ca_file": str(authority.file)}, "brokers": {"0": secure_kafka.bootstrap_servers} if given else {}}
    with shared_ports(4) as first, contextlib.ExitStack() as stack:
        for host in ("127.0.0.1", "127.0.0.2"):
            listen = {"bootstrap": f"{host}:{first}", "reuse_port": True, "broker_ports": f"{first + 1}-{first + 3}", "tls": tls}
            settings = {"listen": listen, "upstream": dict(upstream)}
            stack.enter_context(ProxyProcess(tmp_path / host, secure_kafka.bootstrap_servers, settings))
        with raw_tls(f"127.0.0.1:{first}", authority) as client:
            assert log_in(client, "alice", USERS["alice"]) == 0
            (broker,) = client.decoded(3, 9, topics=[]).brokers
            assert (broker.node_id, broker.port) == (0, first + 1)
        if not given:
            with pytest.raises(ConnectionRefusedError), raw_tls(f"127.0.0.2:{broker.port}", authority):
                pass
            return
        with raw_tls(f"127.0.0.2:{broker.port}", authority) as client:
            assert log_in(client, "alice", USERS["alice"]) == 0
            assert client.decoded(3, 9, topics=[]).brokers[0].node_id == 0


@pytest.fixture
def each(proxy: ProxyProcess, name: str) -> Callable[[Callable[[str, str, str], object]], None]:
    """Runs something for every mechanism, with (mechanism, user, topic): it is to produce; then asks who did."""

    def run(produce: Callable[[str, str, str], object]) -> None:
        for mechanism, user in WHO.items():
            produce(mechanism, user, f"{name}-{mechanism}")
        assert {m: principals(proxy, f"{name}-{m}") for m in MECHANISMS} == {m: {f"User:{user}"} for m, user in WHO.items()}

    return run


def password_of(user: str) -> dict[str, Any]:
    """Settings of aiokafka and kafka-python."""
    return {"sasl_plain_username": user, "sasl_plain_password": USERS[user]}


def test_the_proxy_logs_in_by_itself(proxy: ProxyProcess) -> None:
    """So it knows the brokers before any client came."""
    assert proxy.wait_for("upstream is up")["detail"] == "the cluster answers"
    assert proxy.wait_for("brokers changed")["joined"] == [0]


def test_librdkafka(proxy: ProxyProcess, authority: Authority, each: Any) -> None:
    def both_ways(mechanism: str, user: str, topic: str) -> None:
        settings = librdkafka(proxy.bootstrap, authority, **librdkafka_login(mechanism, user))
        producer = Producer(settings)
        producer.poll(0)  # serves the callback for tokens
        failed: list[object] = []
        for i in range(10):
            producer.produce(topic, str(i), on_delivery=lambda e, _: failed.append(e) if e else None)
        assert producer.flush(90) == 0
        assert not failed
        consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        read = [consumer.poll(90) for _ in range(10)]
        assert sorted(int(message.value() or b"") for message in read if message is not None) == list(range(10))
        consumer.close()

    each(both_ways)


def test_aiokafka(proxy: ProxyProcess, authority: Authority, each: Any) -> None:
    class Tokens(AbstractTokenProvider):
        def __init__(self, user: str) -> None:
            self.user = user

        async def token(self) -> str:
            return token(self.user)

    async def produce(mechanism: str, user: str, topic: str) -> None:
        bearer = mechanism == "OAUTHBEARER"
        login = {"sasl_oauth_token_provider": Tokens(user)} if bearer else password_of(user)
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=proxy.bootstrap,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(authority.file)),
            sasl_mechanism=mechanism,
            **login,
        ) as producer:
            await producer.send_and_wait(topic, b"x")

    each(lambda *which: asyncio.run(produce(*which)))


def test_kafka_python(proxy: ProxyProcess, authority: Authority, each: Any) -> None:
    class Tokens(KafkaPythonTokens):
        def __init__(self, user: str) -> None:
            self.user = user

        def token(self) -> str:
            return token(self.user)

    def produce(mechanism: str, user: str, topic: str) -> None:
        bearer = mechanism == "OAUTHBEARER"
        login = {"sasl_oauth_token_provider": Tokens(user)} if bearer else password_of(user)
        producer = KafkaProducer(
            bootstrap_servers=proxy.bootstrap,
            security_protocol="SASL_SSL",
            ssl_cafile=str(authority.file),
            sasl_mechanism=mechanism,
            **login,
        )
        producer.send(topic, b"x").get(90)
        producer.close()

    each(produce)


def java_files(proxy: ProxyProcess, authority: Authority, folder: Path, who: dict[str, str]) -> list[str]:
    files = [folder / f"{mechanism}.properties" for mechanism in who]
    for file, (mechanism, user) in zip(files, who.items(), strict=True):
        file.write_text(secured.java(proxy.bootstrap, authority, mechanism, user))
    return [str(file) for file in files]


def test_java(proxy: ProxyProcess, authority: Authority, name: str, tmp_path: Path) -> None:
    source = Path(__file__).parent / "java" / "Login.java"
    done = run_java(source, name, "0", *java_files(proxy, authority, tmp_path, WHO))
    assert [line.split()[0] for line in done.stdout.splitlines()] == MECHANISMS, done.stderr
    assert {m: principals(proxy, f"{name}-{m}") for m in MECHANISMS} == {m: {f"User:{user}"} for m, user in WHO.items()}


def test_java_logs_in_again_on_the_open_connection(proxy: ProxyProcess, authority: Authority, name: str, tmp_path: Path) -> None:
    """KIP-368: a login holds for a while; the proxy goes on to know the client, and no connection is lost. A client may
    log in too late on a busy machine, and then the broker ends its connection: it has three tries."""
    source = Path(__file__).parent / "java" / "Login.java"
    files = java_files(proxy, authority, tmp_path, {"SCRAM-SHA-256": "alice"})
    once = run_java(source, f"{name}-once", "0", *files)
    for number in range(3):
        again = run_java(source, f"{name}-again{number}", "2", *files)
        assert again.stdout.startswith("SCRAM-SHA-256 again=true connections="), again.stderr
        assert principals(proxy, f"{name}-again{number}-SCRAM-SHA-256") == {"User:alice"}
        if again.stdout == once.stdout:
            return
    pytest.fail(f"with logins while it is open: {again.stdout}; with one: {once.stdout}; {again.stderr}")


# ---------------------------------------------------------------------- logins that fail, and unknown ones


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_in_the_brokers_own_words(proxy: ProxyProcess, authority: Authority, mechanism: str) -> None:
    said: list[str] = []
    settings = librdkafka(proxy.bootstrap, authority, **librdkafka_login(mechanism, "alice", "wr0ng-s3cret"))
    producer = Producer({**settings, "error_cb": lambda e: said.append(str(e))})
    wait_until(lambda: any("Authentication failed" in text for text in said) or producer.poll(0.1) < 0, "the refusal")


def user_of(proxy: ProxyProcess, api: str, client_id: str = "raw") -> list[str]:
    """Principals of an API in the order of their lines."""
    return [line["principal"] for line in proxy.usage() if line.get("api") == api and line.get("client_id") == client_id]


def ask_until_closed(connection: Connection) -> None:
    """The broker closes a connection a moment after it refused a login."""
    while True:
        connection.ask(16, 0)


def test_who_logs_in_again_stays_the_same_and_so_does_who_fails_to(proxy: ProxyProcess, authority: Authority) -> None:
    with raw_tls(proxy.bootstrap, authority) as connection:
        assert log_in(connection, "alice", USERS["alice"]) == 0
        assert log_in(connection, "alice", USERS["alice"]) == 0
        assert connection.decoded(3, 9, topics=[]).brokers
    wait_until(lambda: "User:alice" in user_of(proxy, "Metadata"), "usage of alice")
    with raw_tls(proxy.bootstrap, authority) as connection:
        assert log_in(connection, "bob", USERS["bob"]) == 0
        assert log_in(connection, "alice", "wr0ng") == AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            ask_until_closed(connection)
    # what came after that login failed was bob's, as was its handshake
    wait_until(lambda: "User:bob" in user_of(proxy, "SaslHandshake"), "usage of bob")
    assert set(user_of(proxy, "ListGroups")) <= {"User:bob"}


def bearer(*pairs: str) -> bytes:
    return ("n,,\x01" + "".join(f"{pair}\x01" for pair in pairs) + "\x01").encode()


@pytest.mark.parametrize("how", ["the last of two", "another key", "a second try"])
def test_nobody_is_whom_the_broker_did_not_accept(proxy: ProxyProcess, authority: Authority, how: str) -> None:
    """OAUTHBEARER: the broker takes the last of two tokens under one key, ignores other keys, and lets a client that it refused try
    again. A client that shows a token of somebody else on the way is still only who the broker says."""
    forged, own = token("operator"), token("bob")
    tries = {
        "the last of two": [bearer(f"auth=Bearer {forged}", f"auth=Bearer {own}")],
        "another key": [bearer(f"AUTH=Bearer {forged}", f"auth=Bearer {own}")],
        "a second try": [bearer(f"auth=Bearer {token('operator', seconds=-30)}"), bearer(f"auth=Bearer {own}")],
    }
    topic = "who-" + how.replace(" ", "-")
    with raw_tls(proxy.bootstrap, authority) as connection:
        assert connection.decoded(17, 1, mechanism="OAUTHBEARER").error_code == 0
        answers = [connection.decoded(36, 2, auth_bytes=one) for one in tries[how]]
        assert (answers[-1].error_code, answers[-1].auth_bytes) == (0, b"")
        connection.ask(0, 9, acks=1, topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": None}]}])
    assert principals(proxy, topic) == {"User:bob"}


def test_a_mechanism_that_the_proxy_cannot_read_is_between_client_and_broker(proxy: ProxyProcess, authority: Authority) -> None:
    """GSSAPI: here the broker does not take it; its answer comes through, and the client stays unknown."""
    with raw_tls(proxy.bootstrap, authority) as connection:
        answer = connection.decoded(17, 1, mechanism="GSSAPI")
        assert answer.error_code == 33
        assert sorted(answer.mechanisms) == sorted(MECHANISMS)


def test_plain_text_at_a_listener_with_tls_ends_that_connection_only(proxy: ProxyProcess, authority: Authority) -> None:
    with pytest.raises(ConnectionError), connect(proxy.bootstrap) as connection:
        connection.ask(18, 0)
    assert "TLS" in proxy.wait_for("client connection closed", client=connection.address)["reason"]
    settings = librdkafka(proxy.bootstrap, authority, **librdkafka_login("PLAIN", "alice"))
    assert AdminClient(settings).list_topics(timeout=90).brokers
