"""A SASL login, without I/O. In: a mechanism, a name and a password, and what the broker answers. Out: tokens to send to it."""

from __future__ import annotations

from collections.abc import Generator

from scramp import ScramClient, ScramException


class LoginFailed(Exception):
    """The login is not accepted; the message says why."""


def tokens(mechanism: str, username: str, password: str) -> Generator[bytes, bytes, None]:
    """Yields each token that the client sends, and is sent the broker's answer to it. Raises LoginFailed for a wrong answer."""
    if mechanism == "PLAIN":
        yield f"\0{username}\0{password}".encode()
        return
    client = ScramClient([mechanism], username, password)
    try:
        client.set_server_first((yield client.get_client_first().encode()).decode())
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except ScramException as e:
        raise LoginFailed(f"{mechanism}: the broker's answer is not right: {e}") from None
