"""`kafka-quota-proxy throttles`: who is throttled now, by which quota, usage against limit, since when and until when; and what was
refused within the last hour. In: the admin listener of a proxy. Out: tables, JSON; exit code 1 when the proxy does not answer."""

from __future__ import annotations

import http.client
import json
import sys
import time
from typing import Any, Final, NoReturn

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
@click.option("--watch", is_flag=True, help="Look again every two seconds until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables; with --watch one line each time.")
def throttles(admin: str, watch: bool, as_json: bool) -> None:
    """Who is throttled now, by which quota, until when."""
    try:
        address = parse_server(admin)
    except ValueError as e:
        click.echo(f"--admin {admin}: {e}", err=True)
        sys.exit(2)
    try:
        _show(address, watch, as_json)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as e:
        _fail(address, e)


def _show(address: HostPort, watch: bool, as_json: bool) -> None:
    if not watch:
        found = look(address)
        if as_json:
            click.echo(json.dumps(found, indent=2))
        else:
            show.console().print(tables(found))
        return
    if as_json:
        while True:
            click.echo(json.dumps(look(address)))
            time.sleep(PERIOD)
    with Live(tables(look(address)), console=show.console(), auto_refresh=False) as live:
        while True:
            time.sleep(PERIOD)
            live.update(tables(look(address)), refresh=True)


def look(address: HostPort) -> dict[str, Any]:
    """What the proxy says."""
    connection = http.client.HTTPConnection(address.host, address.port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/throttles")
        answer = connection.getresponse()
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
    named = (("user", "user"), ("client_id", "client-id"), ("topic", "topic"), ("address", "address"))
    entity = one["entity"]
    return ", ".join(f"{label} {entity[key]}" for key, label in named if entity.get(key) is not None) or "everybody"


def quota(one: dict[str, Any]) -> str:
    """A quota, and whether it is in force."""
    return str(one["quota"]) + (" (observed only)" if one["mode"] == "observe" else "")


def _fail(address: HostPort, error: Exception) -> NoReturn:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    click.echo(f"the admin listener of a proxy does not answer at {address}: {reason}", err=True)
    sys.exit(1)
