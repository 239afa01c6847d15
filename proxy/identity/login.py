"""The proxy's own login at a broker: the tokens of one SASL exchange (RFC 4616, RFC 5802, RFC 7628; KIP-255 for OAUTHBEARER).

In: mechanism, name and secret; then the broker's tokens, which are sent into the exchange. Out: the proxy's tokens, which it
yields. It ends when the broker has said all that it has to; `LoginError` when the broker's tokens are not right, which in SCRAM
includes that it cannot prove that it knows the password. No message holds a secret."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from scramp import ScramClient, ScramException

Exchange = Generator[bytes, bytes, None]
MIN_ITERATIONS: Final = 4096
"""Kafka's lower bound: a server that asks for less wants to guess the password."""
MAX_ITERATIONS: Final = 100_000
"""Kafka's upper bound is 16384; a server that asks for much more wants this process to be busy."""


class LoginError(Exception):
    """The exchange cannot go on; the message says why."""


def step(exchange: Exchange, answer: bytes | None) -> bytes | None:
    """The next token, after this answer of the broker's (None to begin); None when the exchange is over."""
    try:
        return exchange.send(answer)  # type: ignore[arg-type]
    except StopIteration:
        return None


def plain(username: str, password: str) -> Exchange:
    """PLAIN: one token, which the broker answers with nothing."""
    yield b"\0".join((b"", username.encode(), password.encode()))


def scram(mechanism: str, username: str, password: str) -> Exchange:
    """SCRAM-SHA-256 or SCRAM-SHA-512. The second answer is the broker's proof."""
    try:
        client = ScramClient([mechanism], username, password)
    except ScramException:
        raise LoginError(f"{mechanism} does not allow the characters of its name or password") from None
    try:
        first = (yield client.get_client_first().encode()).decode()
        _check_iterations(first)
        client.set_server_first(first)
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except UnicodeDecodeError:
        raise LoginError("the broker's token is not UTF-8") from None
    except ScramException as e:
        raise LoginError(f"the broker's side of {mechanism} is not right: {e}") from None


def bearer(token: str) -> Exchange:
    """OAUTHBEARER. A broker that refuses says why first, is told that this was heard, and then refuses."""
    if (yield f"n,,\x01auth=Bearer {token}\x01\x01".encode()):
        yield b"\x01"


def _check_iterations(server_first: str) -> None:
    count = next((part[2:] for part in server_first.split(",") if part.startswith("i=")), "")
    if not count.isdecimal() or not MIN_ITERATIONS <= int(count[:9]) <= MAX_ITERATIONS:
        raise LoginError(f"the broker wants {count[:9] or 'no'} SCRAM iterations; must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
