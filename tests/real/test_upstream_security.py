"""The proxy's own requests to real brokers that want TLS, certificates and logins; and what it says when it is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from localkafka import LocalCluster, Tls
from proxy.cluster.brokers import Brokers
from proxy.cluster.topics import Topics
from proxy.config.units import HostPort, parse_host_port
from proxy.config.upstream import UpstreamSasl, UpstreamTls
from proxy.tls import client_context
from proxy.upstream.broker_client import BrokerClient
from proxy.upstream.cluster_client import DirectClient
from proxy.upstream.connector import BrokerError, Upstream
from proxy.upstream.directory import Directory
from proxy.upstream.metadata_poller import MetadataPoller
from proxy.wire.metadata import Broker
from tests.certs import Authority
from tests.conftest import QUICK_START
from tests.real.secured import USERS, token

pytestmark = pytest.mark.kafka
PASSWORDS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def strict_kafka(authority: Authority) -> Iterator[LocalCluster]:
    """One broker that wants certificates of its clients. Its own names another host than the one it is reached at."""
    own = authority.server("strict", "kafka-0.example.com")
    with LocalCluster(1, tls=Tls(own.cert, own.key, authority.file), jvm_flags=QUICK_START) as cluster:
        yield cluster


@pytest.fixture
def secret(tmp_path: Path) -> Callable[[str], str]:
    """Writes a file with a secret in it, and gives its name."""

    def write(text: str) -> str:
        path = tmp_path / "secret"
        path.write_text(text)
        return str(path)

    return write


def address(kafka: LocalCluster) -> HostPort:
    return parse_host_port(kafka.bootstrap_servers)


def upstream(authority: Authority | None, identity: UpstreamSasl | None = None, **tls: object) -> Upstream:
    if authority is None:
        return Upstream(20.0, identity=identity)
    context = client_context(UpstreamTls.model_validate({"ca_file": str(authority.file), **tls}))
    return Upstream(20.0, lambda: context, identity)


def ask(kafka: LocalCluster, way: Upstream) -> list[Broker]:
    async def brokers() -> list[Broker]:
        async with BrokerClient(address(kafka), way) as client:
            return await client.brokers()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(brokers())


def answers(kafka: LocalCluster, way: Upstream) -> None:
    assert [(broker.node_id, broker.port) for broker in ask(kafka, way)] == [(0, address(kafka).port)]


def refusal(kafka: LocalCluster, way: Upstream) -> str:
    with pytest.raises(BrokerError) as e:
        ask(kafka, way)
    assert not e.value.refused
    return str(e.value)


def user(name: str, mechanism: str, file: str) -> UpstreamSasl:
    return UpstreamSasl.model_validate({"mechanism": mechanism, "username": name, "password_file": file})


def bearer(file: str) -> UpstreamSasl:
    return UpstreamSasl.model_validate({"mechanism": "OAUTHBEARER", "token_file": file})


# ---------------------------------------------------------------------- TLS


def test_a_broker_is_asked_with_the_proxys_certificate(strict_kafka: LocalCluster, authority: Authority) -> None:
    mine = authority.client("proxy")
    answers(strict_kafka, upstream(authority, verify_hostname=False, cert_file=str(mine.cert), key_file=str(mine.key)))


def test_a_broker_of_another_name_is_not_asked(strict_kafka: LocalCluster, authority: Authority) -> None:
    mine = authority.client("proxy")
    said = refusal(strict_kafka, upstream(authority, cert_file=str(mine.cert), key_file=str(mine.key)))
    assert "its certificate is not trusted: IP address mismatch" in said


def test_a_broker_that_wants_a_certificate_says_so(strict_kafka: LocalCluster, authority: Authority) -> None:
    assert "or wants one and got none" in refusal(strict_kafka, upstream(authority, verify_hostname=False))


def test_a_certificate_that_the_broker_does_not_trust(strict_kafka: LocalCluster, authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path).client("proxy")
    way = upstream(authority, verify_hostname=False, cert_file=str(other.cert), key_file=str(other.key))
    assert "does not trust the certificate" in refusal(strict_kafka, way)


def test_a_broker_that_wants_tls_is_recognized(secure_kafka: LocalCluster) -> None:
    said = refusal(secure_kafka, upstream(None))
    assert "TLS" in said


def test_a_broker_that_speaks_no_tls_is_recognized(kafka1: LocalCluster, authority: Authority) -> None:
    assert "may not speak TLS" in refusal(kafka1, upstream(authority))


# ---------------------------------------------------------------------- logins


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("line_end", ["", "\n"])
def test_the_proxy_logs_in(
    secure_kafka: LocalCluster, authority: Authority, secret: Callable[[str], str], mechanism: str, line_end: str
) -> None:
    answers(secure_kafka, upstream(authority, user("proxy", mechanism, secret(USERS["proxy"] + line_end))))


def test_a_password_may_stand_in_the_settings(secure_kafka: LocalCluster, authority: Authority) -> None:
    identity = UpstreamSasl.model_validate({"mechanism": "PLAIN", "username": "proxy", "password": USERS["proxy"]})
    answers(secure_kafka, upstream(authority, identity))


def test_the_proxy_logs_in_by_a_token(secure_kafka: LocalCluster, authority: Authority, secret: Callable[[str], str]) -> None:
    answers(secure_kafka, upstream(authority, bearer(secret(token("proxy") + "\n"))))


def test_a_secret_is_read_at_every_login(secure_kafka: LocalCluster, authority: Authority, secret: Callable[[str], str]) -> None:
    way = upstream(authority, user("proxy", "SCRAM-SHA-512", secret("wr0ng")))
    assert "wr0ng" not in refusal(secure_kafka, way)
    secret(USERS["proxy"])
    answers(secure_kafka, way)


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize("name", ["proxy", "nobody"])
def test_a_wrong_password_is_told_with_user_mechanism_and_what_the_broker_says(
    secure_kafka: LocalCluster, authority: Authority, secret: Callable[[str], str], mechanism: str, name: str
) -> None:
    said = refusal(secure_kafka, upstream(authority, user(name, mechanism, secret("wr0ng-s3cret"))))
    assert said.startswith(
        f"{secure_kafka.bootstrap_servers} refuses the login of user {name} by {mechanism}: Authentication failed"
    )
    assert "wr0ng" not in said


def test_a_token_that_is_refused_is_not_shown(
    secure_kafka: LocalCluster, authority: Authority, secret: Callable[[str], str]
) -> None:
    expired = token("proxy", seconds=-30)
    file = secret(expired)
    said = refusal(secure_kafka, upstream(authority, bearer(file)))
    assert (
        said
        == f'{secure_kafka.bootstrap_servers} refuses the login of the token in {file} by OAUTHBEARER: {{"status":"invalid_token"}}'
    )


def test_a_mechanism_that_the_broker_does_not_take(strict_kafka: LocalCluster, kafka1: LocalCluster, authority: Authority) -> None:
    identity = UpstreamSasl.model_validate({"mechanism": "PLAIN", "username": "proxy", "password": "x"})
    assert "takes no logins at this port; leave out `upstream.sasl`" in refusal(kafka1, upstream(None, identity))
    mine = authority.client("proxy")
    way = upstream(authority, identity, verify_hostname=False, cert_file=str(mine.cert), key_file=str(mine.key))
    assert "takes no logins at this port" in refusal(strict_kafka, way)


@pytest.mark.parametrize(("text", "told"), [(None, "cannot be read: No such file"), ("", "one line"), ("a\nb\n", "one line")])
def test_a_file_without_a_secret(
    secure_kafka: LocalCluster, authority: Authority, tmp_path: Path, text: str | None, told: str
) -> None:
    file = tmp_path / "secret"
    if text is not None:
        file.write_text(text)
    said = refusal(secure_kafka, upstream(authority, user("proxy", "PLAIN", str(file))))
    assert said.startswith(f"`upstream.sasl.password_file`: {file} ")
    assert told in said


# ---------------------------------------------------------------------- following the cluster


class Lines:
    """An operations log that remembers its lines: level, event, and all else in one text."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []

    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **more: self.said.append((level, event, " ".join(map(str, more.values()))))


def follow(kafka: LocalCluster, way: Upstream, times: int = 1) -> tuple[MetadataPoller, int, list[tuple[str, str, str]]]:
    """Ask the cluster some times: the follower, how many brokers are known, what was logged."""
    log = Lines()
    brokers = Brokers([address(kafka)], lambda _: None, lambda: 0.0)

    async def asking() -> MetadataPoller:
        cluster = DirectClient(brokers.addresses, way)
        follower = MetadataPoller(brokers, Directory(brokers, Topics(), None), lambda: False, 1.0, cluster, log)  # type: ignore[arg-type]
        for _ in range(times):
            await follower.ask()
        return follower

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asking()), len(brokers), log.said


def test_without_an_identity_a_secured_cluster_is_up_and_says_nothing(secure_kafka: LocalCluster, authority: Authority) -> None:
    follower, brokers, said = follow(secure_kafka, upstream(authority), 2)
    assert (follower.up, brokers) == (True, 0)
    (line,) = said
    assert line[:2] == ("warning", "upstream is up")
    assert "wants authentication; its brokers are learnt from the responses to clients" in line[2]


def test_with_an_identity_its_brokers_are_known(
    secure_kafka: LocalCluster, authority: Authority, secret: Callable[[str], str]
) -> None:
    follower, brokers, said = follow(secure_kafka, upstream(authority, user("proxy", "SCRAM-SHA-512", secret(USERS["proxy"]))), 2)
    assert (follower.up, brokers) == (True, 1)
    assert [line[:2] for line in said] == [("info", "upstream is up")]


def test_a_login_that_fails_means_away_and_is_said_once(
    secure_kafka: LocalCluster, authority: Authority, secret: Callable[[str], str]
) -> None:
    follower, brokers, said = follow(secure_kafka, upstream(authority, user("proxy", "PLAIN", secret("wr0ng"))), 3)
    assert (follower.up, brokers) == (False, 0)
    (line,) = said
    assert line[:2] == ("error", "upstream is away")
    assert "refuses the login of user proxy by PLAIN" in line[2]
    assert "wr0ng" not in line[2]
