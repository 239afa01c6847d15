"""The way to brokers: whom the proxy connects to, and what it says when it does not."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from proxy.config.listeners import ListenerTls
from proxy.config.units import HostPort
from proxy.config.upstream import UpstreamTls
from proxy.tls import client_context, server_context
from proxy.upstream.connector import BrokerError, Upstream
from tests.certs import Authority, Pair
from tests.fleet.meeting import house, run


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def local(ca: Authority) -> Pair:
    return ca.server("local", "localhost", "127.0.0.1")


def broker(pair: Pair, **more: object) -> ssl.SSLContext:
    return server_context(ListenerTls.model_validate({"cert_file": str(pair.cert), "key_file": str(pair.key), **more}))


def reach(server: ssl.SSLContext | None, tls: UpstreamTls | None, host: str = "127.0.0.1") -> bytes:
    """What comes back from a broker that echoes."""

    async def there() -> bytes:
        context = None if tls is None else client_context(tls)
        async with house(server) as here:
            reader = asyncio.StreamReader()
            transport, _ = await Upstream(60.0, lambda: context).connect(
                lambda: asyncio.StreamReaderProtocol(reader), HostPort(host, here.port)
            )
            transport.write(b"hello")
            heard = await reader.readexactly(5)
            transport.close()
            return heard

    return run(there())


def why_not(server: ssl.SSLContext | None, tls: UpstreamTls | None, host: str = "127.0.0.1") -> str:
    with pytest.raises(BrokerError) as e:
        reach(server, tls, host)
    return str(e.value)


def test_plain_text_and_tls(ca: Authority, local: Pair) -> None:
    assert reach(None, None) == b"hello"
    for host in ("127.0.0.1", "localhost"):
        assert reach(broker(local), UpstreamTls(ca_file=str(ca.file)), host) == b"hello"


def test_a_broker_that_is_named_otherwise(ca: Authority) -> None:
    other = broker(ca.server("other", "kafka-0.example.com"))
    said = why_not(other, UpstreamTls(ca_file=str(ca.file)))
    assert said.startswith("no connection to 127.0.0.1:")
    assert "by TLS: its certificate is not trusted: " in said
    assert "IP address mismatch" in said
    assert "Hostname mismatch" in why_not(other, UpstreamTls(ca_file=str(ca.file)), "localhost")
    assert reach(other, UpstreamTls(ca_file=str(ca.file), verify_hostname=False)) == b"hello"


@pytest.mark.parametrize("verify_hostname", [True, False])
def test_a_broker_that_is_not_trusted(ca: Authority, local: Pair, tmp_path: Path, verify_hostname: bool) -> None:
    stranger = Authority(tmp_path)
    tls = UpstreamTls(ca_file=str(stranger.file), verify_hostname=verify_hostname)
    assert "by TLS: its certificate is not trusted: " in why_not(broker(local), tls)
    assert "its certificate is not trusted" in why_not(broker(local), UpstreamTls(verify_hostname=verify_hostname))
    expired = broker(ca.server("expired", "127.0.0.1", expired=True))
    tls = UpstreamTls(ca_file=str(ca.file), verify_hostname=verify_hostname)
    assert "its certificate is not trusted: certificate has expired" in why_not(expired, tls)


def test_a_broker_that_speaks_no_tls(ca: Authority) -> None:
    """It takes the handshake for something else: here it echoes it; a real one closes the connection."""
    assert "TLS" in why_not(None, UpstreamTls(ca_file=str(ca.file)))


def test_a_broker_that_wants_a_certificate(ca: Authority, local: Pair) -> None:
    strict = broker(local, client_ca_file=str(ca.file))
    mine = ca.client("proxy")
    tls = UpstreamTls(ca_file=str(ca.file), cert_file=str(mine.cert), key_file=str(mine.key))
    assert reach(strict, tls) == b"hello"


def test_nobody_is_there() -> None:
    async def nowhere() -> None:
        async with house(None) as here:
            port = here.port
        await Upstream(5.0).connect(asyncio.Protocol, HostPort("127.0.0.1", port))

    with pytest.raises(BrokerError, match=r"^no connection to 127\.0\.0\.1:\d+: Connection refused$"):
        run(nowhere())


def test_a_name_that_nobody_has() -> None:
    with pytest.raises(BrokerError, match=r"^no connection to kafka\.invalid:9092: .*(not known|failure|No address)"):
        run(Upstream(20.0).connect(asyncio.Protocol, HostPort("kafka.invalid", 9092)))  # type: ignore[arg-type]


def test_a_handshake_that_does_not_end_is_given_up(ca: Authority) -> None:
    """The time for a connection includes TLS."""

    async def silent() -> None:
        listening = await asyncio.start_server(lambda *_: asyncio.sleep(60), "127.0.0.1", 0)
        port = listening.sockets[0].getsockname()[1]
        context = client_context(UpstreamTls(ca_file=str(ca.file)))
        try:
            await Upstream(0.1, lambda: context).connect(asyncio.Protocol, HostPort("127.0.0.1", port))
        finally:
            listening.close()

    with pytest.raises(BrokerError, match=r"within 0\.1 s"):
        run(silent())
