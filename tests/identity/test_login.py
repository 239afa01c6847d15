"""The proxy's own login: what it sends, and what it does not believe."""

from __future__ import annotations

import base64

import pytest
from scramp import ScramMechanism

from proxy.identity.login import Exchange, LoginError, bearer, plain, scram, step

MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_plain_is_one_token() -> None:
    exchange = plain("zoë", "s3cret")
    assert step(exchange, None) == "\0zoë\0s3cret".encode()
    assert step(exchange, b"") is None


def test_a_bearer_token_is_one_token_when_it_is_accepted() -> None:
    exchange = bearer("a.b.c")
    assert step(exchange, None) == b"n,,\x01auth=Bearer a.b.c\x01\x01"
    assert step(exchange, b"") is None


def test_a_refused_bearer_token_is_acknowledged() -> None:
    """RFC 7628: the broker says why in a token, and fails the exchange when the client has answered with ^A."""
    exchange = bearer("a.b.c")
    step(exchange, None)
    assert step(exchange, b'{"status":"invalid_token"}') == b"\x01"


def proof(mechanism: str, exchange: Exchange) -> bytes:
    """The last answer of a server that knows the password, once it has believed the exchange so far."""
    info = ScramMechanism(mechanism).make_auth_info("s3cret", iteration_count=8192)
    server = ScramMechanism(mechanism).make_server(lambda _: info)
    server.set_client_first((step(exchange, None) or b"").decode())
    server.set_client_final((step(exchange, server.get_server_first().encode()) or b"").decode())
    return bytes(server.get_server_final().encode())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["etl", "a,b=c"])
def test_scram_proves_both_sides(mechanism: str, user: str) -> None:
    exchange = scram(mechanism, user, "s3cret")
    assert step(exchange, proof(mechanism, exchange)) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_server_that_does_not_know_the_password_is_not_believed(mechanism: str) -> None:
    exchange = scram(mechanism, "etl", "s3cret")
    real = base64.b64decode(proof(mechanism, exchange)[2:])
    with pytest.raises(LoginError) as e:
        step(exchange, b"v=" + base64.b64encode(bytes(len(real))))
    assert "s3cret" not in str(e.value)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"hello",
        b"\xff",
        b"r=,s=,i=",
        b"e=unknown-user",
        b"r=another,s=QSXCR+Q6sek8bf92,i=4096",
    ],
)
def test_what_is_no_answer_ends_the_exchange(said: bytes) -> None:
    exchange = scram("SCRAM-SHA-256", "etl", "s3cret")
    step(exchange, None)
    with pytest.raises(LoginError):
        step(exchange, said)


@pytest.mark.parametrize("count", [1, 4095, 100_001, 10**30])
def test_a_server_may_not_ask_for_too_little_work_nor_too_much(count: int) -> None:
    exchange = scram("SCRAM-SHA-256", "etl", "s3cret")
    first = step(exchange, None)
    assert first is not None
    nonce = first.decode().rsplit("r=", 1)[1]
    with pytest.raises(LoginError, match="must be 4096 to 100000"):
        step(exchange, f"r={nonce}x,s=QSXCR+Q6sek8bf92,i={count}".encode())


def test_characters_that_scram_does_not_allow_are_not_repeated() -> None:
    with pytest.raises(LoginError) as e:
        step(scram("SCRAM-SHA-256", "etl", "\u0007secret"), None)
    assert "secret" not in str(e.value)
