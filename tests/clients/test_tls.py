"""TLS towards clients: real sockets on uvloop, certificates made for the occasion."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import pytest

from proxy.config.listeners import ListenerTls
from proxy.config.upstream import UpstreamTls
from proxy.identity.certificates import distinguished_name
from proxy.tls import TlsError, client_context, server_context, server_name_of, watched_files
from tests.certs import Authority, Pair
from tests.fleet.meeting import echo, house, run


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def own(ca: Authority) -> Pair:
    return ca.server("proxy", "proxy.example.com", "*.proxy.example.com", "127.0.0.1")


def listener(own: Pair, **more: object) -> ListenerTls:
    return ListenerTls.model_validate({"cert_file": str(own.cert), "key_file": str(own.key), **more})


def client(ca: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca.file))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


def meet(tls: ListenerTls, context: ssl.SSLContext, name: str = "proxy.example.com") -> ssl.SSLObject:
    """The server's side of a connection on which something was said and heard."""

    async def both() -> ssl.SSLObject:
        async with house(server_context(tls)) as here:
            heard, writer = await echo(here.port, context, name)
            assert heard == b"hello"
            found: ssl.SSLObject = await here.guests[0].here
            writer.close()
            return found

    return run(both())


def refusal(tls: ListenerTls, context: ssl.SSLContext) -> None:
    """The client hears that it was refused, or that the connection is gone."""
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        meet(tls, context)


@pytest.mark.parametrize("name", ["proxy.example.com", "broker-7.proxy.example.com", "127.0.0.1"])
def test_a_client_is_told_apart_by_the_name_it_asks_for(ca: Authority, own: Pair, name: str) -> None:
    ssl_object = meet(listener(own), client(ca), name)
    assert server_name_of(ssl_object) == (None if name == "127.0.0.1" else name)  # no client asks for an address (RFC 6066)


def test_names_are_compared_in_small_letters(ca: Authority, own: Pair) -> None:
    assert server_name_of(meet(listener(own), client(ca), "BROKER-7.Proxy.Example.com")) == "broker-7.proxy.example.com"


def test_a_connection_without_tls_asks_for_no_name() -> None:
    assert server_name_of(None) is None


def test_clients_at_the_same_time_are_not_mixed_up(ca: Authority, own: Pair) -> None:
    async def many() -> None:
        context = client(ca)
        async with house(server_context(listener(own))) as here:
            await asyncio.gather(*[echo(here.port, context, f"broker-{i}.proxy.example.com") for i in range(20)])
            names = {server_name_of(await guest.here) for guest in here.guests}
            assert names == {f"broker-{i}.proxy.example.com" for i in range(20)}

    run(many())


def test_a_client_is_not_asked_for_a_certificate_without_authorities(ca: Authority, own: Pair) -> None:
    assert meet(listener(own), client(ca, ca.client("etl"))).getpeercert(binary_form=True) is None


@pytest.mark.parametrize("auth", ["required", "requested"])
def test_the_certificate_of_a_client_names_it(ca: Authority, own: Pair, auth: str) -> None:
    tls = listener(own, client_ca_file=str(ca.file), client_auth=auth)
    der = meet(tls, client(ca, ca.client("etl"))).getpeercert(binary_form=True)
    assert der is not None
    assert distinguished_name(der) == "CN=etl"


def test_a_client_that_comes_again_on_the_same_session_is_still_named(ca: Authority, own: Pair) -> None:
    """Java resumes TLS sessions: no certificate is sent then, and the one of the session holds."""

    async def twice() -> None:
        context = client(ca, ca.client("etl"))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        async with house(server_context(listener(own, client_ca_file=str(ca.file)))) as here:

            def connect(session: ssl.SSLSession | None) -> tuple[ssl.SSLSession | None, bool | None]:
                import socket

                with (
                    socket.create_connection(("127.0.0.1", here.port), 60) as raw,
                    context.wrap_socket(raw, server_hostname="proxy.example.com", session=session) as sock,
                ):
                    sock.sendall(b"x")
                    assert sock.recv(1) == b"x"
                    return sock.session, sock.session_reused

            session, _ = await asyncio.to_thread(connect, None)
            assert (await asyncio.to_thread(connect, session))[1]
            for guest in here.guests:
                der = (await guest.here).getpeercert(binary_form=True)
                assert distinguished_name(der) == "CN=etl"

    run(twice())


def test_who_has_no_certificate(ca: Authority, own: Pair) -> None:
    refusal(listener(own, client_ca_file=str(ca.file)), client(ca))
    requested = listener(own, client_ca_file=str(ca.file), client_auth="requested")
    assert meet(requested, client(ca)).getpeercert(binary_form=True) is None


@pytest.mark.parametrize("auth", ["required", "requested"])
def test_a_certificate_that_is_not_right_is_refused(ca: Authority, own: Pair, tmp_path: Path, auth: str) -> None:
    tls = listener(own, client_ca_file=str(ca.file), client_auth=auth)
    refusal(tls, client(ca, Authority(tmp_path).client("etl")))
    refusal(tls, client(ca, ca.client("late", expired=True)))
    refusal(tls, client(ca, ca.server("server", "etl.example.com")))  # made for servers


def test_an_authority_in_between_may_be_trusted_alone(ca: Authority, own: Pair, tmp_path: Path) -> None:
    """Clients of one team only: as in a truststore of Java's, what is listed is trusted as it is."""
    team = Authority(tmp_path, "team", by=ca)
    tls = listener(own, client_ca_file=str(team.file))
    assert meet(tls, client(ca, team.client("etl"))).getpeercert(binary_form=True) is not None
    refusal(tls, client(ca, ca.client("other")))


def test_old_versions_are_refused(ca: Authority, own: Pair) -> None:
    old = client(ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert meet(listener(own), old).version() == "TLSv1.2"
    refusal(listener(own, min_version="TLSv1.3"), old)


def test_a_key_with_a_password(ca: Authority, tmp_path: Path) -> None:
    pair = ca.server("locked", "proxy.example.com", password="s3cret")
    word = tmp_path / "password"
    for text in ("s3cret", "s3cret\n", "s3cret\r\n"):
        word.write_text(text)
        assert meet(listener(pair, key_password_file=str(word)), client(ca)).version() is not None


def test_a_new_context_is_for_new_connections_and_old_ones_stay(ca: Authority, own: Pair) -> None:
    async def renew() -> None:
        async with house(server_context(listener(own))) as here:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", here.port, ssl=client(ca), server_hostname="proxy.example.com"
            )
            renewed = ca.server("renewed", "proxy.example.com")
            here.context = server_context(listener(renewed))
            _, other = await echo(here.port, client(ca), "proxy.example.com")
            assert other.get_extra_info("ssl_object").getpeercert(binary_form=True) == renewed.der
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"still here"
            assert writer.get_extra_info("ssl_object").getpeercert(binary_form=True) == own.der

    run(renew())


def test_the_files_to_watch(own: Pair) -> None:
    tls = listener(own, client_ca_file="ca.pem", key_password_file="word")
    assert sorted(watched_files(tls)) == sorted([str(own.cert), str(own.key), "word", "ca.pem"])
    assert watched_files(UpstreamTls()) == []
    assert watched_files(UpstreamTls(ca_file="ca.pem")) == ["ca.pem"]


# ---------------------------------------------------------------------- what is wrong with files


@pytest.fixture
def files(own: Pair, ca: Authority, tmp_path: Path) -> dict[str, str]:
    """Good files, to be spoilt."""
    made = {"cert_file": own.cert, "key_file": own.key, "client_ca_file": ca.file}
    return {setting: str(shutil.copy(path, tmp_path / f"{setting}.pem")) for setting, path in made.items()}


def told(files: dict[str, str], **more: str) -> str:
    with pytest.raises(TlsError) as e:
        server_context(ListenerTls.model_validate({**files, **more}), "more_listeners.internal.tls")
    return str(e.value)


@pytest.mark.parametrize("setting", ["cert_file", "key_file", "client_ca_file"])
def test_a_file_that_is_missing_or_something_else(files: dict[str, str], setting: str) -> None:
    at = f"`more_listeners.internal.tls.{setting}`: {files[setting]} "
    Path(files[setting]).write_text("hello")
    assert told(files).startswith(at + "has no ")
    assert "-----BEGIN " in told(files)
    whole = {"cert_file": "CERTIFICATE", "key_file": "PRIVATE KEY", "client_ca_file": "CERTIFICATE"}[setting]
    Path(files[setting]).write_text(f"-----BEGIN {whole}-----\nMIIB\n-----END {whole}-----\n")
    assert "PEM" in told(files)
    assert files[setting] in told(files)
    Path(files[setting]).unlink()
    assert told(files) == at + "cannot be read: No such file or directory"


def test_a_key_of_another_certificate(files: dict[str, str], ca: Authority) -> None:
    other = ca.server("other", "other.example.com")
    assert told(files, key_file=str(other.key)) == (
        f"`more_listeners.internal.tls.key_file`: {other.key} is not the key of {files['cert_file']}; "
        "use the key that it was made with"
    )


def test_certificate_and_key_in_each_others_place(files: dict[str, str]) -> None:
    assert "has no certificate" in told(files, cert_file=files["key_file"])
    assert "has no key" in told(files, key_file=files["cert_file"])


def test_a_key_whose_password_is_missing_or_wrong(ca: Authority, tmp_path: Path) -> None:
    pair = ca.server("locked", "proxy.example.com", password="s3cret")
    files = {"cert_file": str(pair.cert), "key_file": str(pair.key)}
    assert told(files) == (
        f"`more_listeners.internal.tls.key_file`: {pair.key} has a password; "
        "set `more_listeners.internal.tls.key_password_file` to a file with it"
    )
    word = tmp_path / "password"
    for wrong in ("wr0ng", "", "x" * 5000):
        word.write_text(wrong)
        said = told(files, key_password_file=str(word))
        assert said.startswith(f"`more_listeners.internal.tls.key_password_file`: {word} does not open {pair.key}")
        assert not wrong or wrong not in said
    assert "password: cannot" not in told(files, key_password_file=str(tmp_path / "missing"))
    assert "cannot be read: No such file" in told(files, key_password_file=str(tmp_path / "missing"))


def test_settings_of_the_way_to_brokers_are_named_as_they_are_written(ca: Authority, tmp_path: Path) -> None:
    with pytest.raises(TlsError, match=r"^`upstream\.tls\.ca_file`: .*none\.pem cannot be read: No such file"):
        client_context(UpstreamTls(ca_file=str(tmp_path / "none.pem")))
    pair = ca.client("proxy")
    with pytest.raises(TlsError, match=r"^`upstream\.tls\.cert_file`: .* has no certificate"):
        client_context(UpstreamTls(cert_file=str(pair.key), key_file=str(pair.key)))
