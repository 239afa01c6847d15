"""A SASL login, without I/O. In: a mechanism, a name and a password, and the broker's answers. Out: the requests to send."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from scramp import ScramClient, ScramException

from loadtest.entities import error_name

HANDSHAKE, AUTHENTICATE = (17, 1), (36, 1)
"""(key, version)"""
Request = tuple[tuple[int, int], dict[str, Any]]
"""Key and version of an API, and the request's fields."""


class LoginFailed(Exception):
    """The login is not accepted. The message says why."""


def log_in(mechanism: str, username: str, password: str) -> Generator[Request, Any, None]:
    """Yields each request of a login, and is sent the broker's answer as kio reads it. Raises LoginFailed."""
    answer = yield HANDSHAKE, {"mechanism": mechanism}
    if answer.error_code:
        raise LoginFailed(f"the broker does not know {mechanism}, but {', '.join(answer.mechanisms) or 'no mechanism'}")
    tokens = _tokens(mechanism, username, password)
    token: bytes | None = next(tokens)
    while token is not None:
        answer = yield AUTHENTICATE, {"auth_bytes": token}
        if answer.error_code:
            raise LoginFailed(answer.error_message or error_name(answer.error_code))
        try:
            token = tokens.send(bytes(answer.auth_bytes))
        except StopIteration:
            token = None


def _tokens(mechanism: str, username: str, password: str) -> Generator[bytes, bytes, None]:
    """Yields each token of the client, and is sent the broker's token that answers it. Raises LoginFailed for a wrong one."""
    if mechanism == "PLAIN":
        yield f"\0{username}\0{password}".encode()
        return
    client = ScramClient([mechanism], username, password)
    try:
        client.set_server_first((yield client.get_client_first().encode()).decode())
        client.set_server_final((yield client.get_client_final().encode()).decode())
    except ScramException as e:
        raise LoginFailed(f"{mechanism}: the broker's answer is not right: {e}") from None
