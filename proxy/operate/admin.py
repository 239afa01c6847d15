"""Asking the admin listener of a proxy. In: the options that say where it is and how to log in. Out: its JSON; exit code 1 when it
does not answer."""

from __future__ import annotations

import http.client
import json
import ssl
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NoReturn, TextIO

import click

from proxy.config.units import HostPort, parse_server

TIMEOUT: Final = 10.0

Ask = Callable[[str], dict[str, Any]]
"""What the admin listener says at a path."""


def of_admin(function: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that asks an admin listener; the command gets an `Ask`."""

    @wraps(function)
    def asking(admin: str, use_tls: bool, ca_file: str | None, token_file: TextIO | None, **others: Any) -> None:
        try:
            address = parse_server(admin)
        except ValueError as e:
            click.echo(f"--admin {admin}: {e}", err=True)
            sys.exit(2)
        try:
            context = ssl.create_default_context(cafile=ca_file) if use_tls or ca_file else None
            headers = {} if token_file is None else {"Authorization": f"Bearer {token_file.read().strip()}"}
            function(lambda path: look(address, path, context, headers), **others)
        except (OSError, ValueError, KeyError, http.client.HTTPException) as e:
            _fail(address, e)

    token = click.option("--token-file", type=click.File(encoding="utf-8"), help="File with the token of admin.auth.")
    ca = click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Who its certificate is trusted by (PEM).")
    tls = click.option("--tls", "use_tls", is_flag=True, help="It has TLS (admin.tls).")
    where = click.option(
        "--admin", default="127.0.0.1:9190", show_default=True, metavar="HOST:PORT", help="The proxy's admin listener."
    )
    return where(tls(ca(token(asking))))


def look(address: HostPort, path: str, tls: ssl.SSLContext | None, headers: dict[str, str]) -> dict[str, Any]:
    """What the proxy says."""
    connection = (
        http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT)
        if tls is None
        else http.client.HTTPSConnection(address.host, address.port, timeout=TIMEOUT, context=tls)
    )
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        if answer.status == 401:
            raise ValueError("it wants a login: give --token-file")
        if answer.status != 200:
            raise ValueError(f"it answers with status {answer.status}")
        found: dict[str, Any] = json.loads(answer.read())
        return found
    finally:
        connection.close()


def _fail(address: HostPort, error: Exception) -> NoReturn:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    click.echo(f"the admin listener of a proxy does not answer at {address}: {reason}", err=True)
    sys.exit(1)
