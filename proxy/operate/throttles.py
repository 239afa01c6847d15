"""`kafka-quota-proxy throttles`: who is throttled now, by which quota, usage against limit, since when and until when; and what was
refused within the last hour. In: the admin listener of a proxy. Out: tables, JSON; exit code 1 when the proxy does not answer."""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NoReturn, TextIO

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from proxy.config.units import HostPort, parse_server
from proxy.operate import show

TIMEOUT: Final = 10.0
PERIOD: Final = 2.0
"""Seconds between two looks."""


@click.command()
@click.option("--admin", default="127.0.0.1:9190", show_default=True, metavar="HOST:PORT", help="The proxy's admin listener.")
@click.option("--tls", "use_tls", is_flag=True, help="It has TLS (admin.tls).")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Who its certificate is trusted by (PEM).")
@click.option("--token-file", type=click.File(encoding="utf-8"), help="File with the token of admin.auth.")
@click.option("--watch", is_flag=True, help="Look again every two seconds until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables; with --watch one line each time.")
def throttles(admin: str, use_tls: bool, ca_file: str | None, token_file: TextIO | None, watch: bool, as_json: bool) -> None:
    """Who is throttled now, by which quota, until when."""
    try:
        address = parse_server(admin)
    except ValueError as e:
        click.echo(f"--admin {admin}: {e}", err=True)
        sys.exit(2)
    try:
        context = ssl.create_default_context(cafile=ca_file) if use_tls or ca_file else None
        headers = {} if token_file is None else {"Authorization": f"Bearer {token_file.read().strip()}"}
        _show(partial(look, address, context, headers), watch, as_json)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as e:
        _fail(address, e)


def _show(look: Callable[[], dict[str, Any]], watch: bool, as_json: bool) -> None:
    if not watch:
        found = look()
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            show.console().print(tables(found))
        return
    if as_json:
        while True:
            click.echo(json.dumps(look()))
            time.sleep(PERIOD)
    with Live(tables(look()), console=show.console(), auto_refresh=False) as live:
        while True:
            time.sleep(PERIOD)
            live.update(tables(look()), refresh=True)


def look(address: HostPort, tls: ssl.SSLContext | None, headers: dict[str, str]) -> dict[str, Any]:
    """What the proxy says."""
    connection = (
        http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT)
        if tls is None
        else http.client.HTTPSConnection(address.host, address.port, timeout=TIMEOUT, context=tls)
    )
    try:
        connection.request("GET", "/throttles", headers=headers)
        answer = connection.getresponse()
        if answer.status == 401:
            raise ValueError("it wants a login: give --token-file")
        if answer.status != 200:
            raise ValueError(f"it answers with status {answer.status}")
        found: dict[str, Any] = json.loads(answer.read())
        return found
    finally:
        connection.close()


def tables(found: dict[str, Any]) -> Group:
    """The same for people."""
    now = show.table("who", "quota", "action", "usage", "limit", "since", "left", "requests", "last client", title="Throttled now")
    for one in found["throttled"]:
        last = ", ".join(filter(None, (one["principal"], one["client_id"], one["client_address"])))
        figures = (f"{one['usage']:,g}", f"{one['limit']:,g}", one["since"][11:19], f"{one['seconds_left']:.1f} s")
        now.add_row(*map(Text, (whose(one), quota(one), one["action"], *figures, str(one["requests"]), last)))
    hour = show.table("who", "quota", "topic", "refused", title="Refused within the last hour")
    for one in found["refused_last_hour"]:
        hour.add_row(*map(Text, (whose(one), quota(one), one["topic"] or "(not named)", f"{one['items']:,}")))
    nothing = Text("no client is throttled") if not found["throttled"] else now
    return Group(Text(f"{found['proxy']}, {found['at']}"), nothing, hour if hour.row_count else Text("nothing was refused"))


def whose(one: dict[str, Any]) -> str:
    """An entity for people."""
    named = (("user", "user"), ("client_id", "client-id"), ("topic", "topic"), ("address", "address"), ("tenant", "tenant"))
    entity = one["entity"]
    return ", ".join(f"{label} {entity[key]}" for key, label in named if entity.get(key) is not None) or "everybody"


def quota(one: dict[str, Any]) -> str:
    """A quota, and whether it is in force."""
    return str(one["quota"]) + (" (observed only)" if one["mode"] == "observe" else "")


def _fail(address: HostPort, error: Exception) -> NoReturn:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    click.echo(f"the admin listener of a proxy does not answer at {address}: {reason}", err=True)
    sys.exit(1)
