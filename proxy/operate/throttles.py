"""`kafka-quota-proxy throttles`: who is throttled now, by which quota, usage against limit, since when and until when; and what was
refused within the last hour. In: the admin listener of a proxy. Out: tables, JSON; exit code 1 when the proxy does not answer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

import click
from rich.console import Group
from rich.live import Live
from rich.text import Text

from proxy.operate import show
from proxy.operate.admin import Ask, of_admin

PERIOD: Final = 2.0
"""Seconds between two looks."""


@click.command()
@of_admin
@click.option("--watch", is_flag=True, help="Look again every two seconds until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables; with --watch one line each time.")
def throttles(ask: Ask, watch: bool, as_json: bool) -> None:
    """Who is throttled now, by which quota, until when."""
    _show(lambda: ask("/throttles"), watch, as_json)


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


def tables(found: dict[str, Any]) -> Group:
    """The same for people."""
    now = show.table("who", "quota", "action", "usage", "limit", "since", "left", "requests", "last client", title="Throttled now")
    for one in found["throttled"]:
        last = ", ".join(filter(None, (one["principal"], one["client_id"], one["client_address"])))
        usage, limit = (figure(one[name], one.get("unit", "")) for name in ("usage", "limit"))
        figures = (usage, limit, one["since"][11:19], f"{one['seconds_left']:.1f} s")
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


def figure(value: float | None, unit: str) -> str:
    """A usage or a limit for people, such as 1.09 MiB/s."""
    if value is None:
        return "none"
    if unit not in ("bytes", "bytes/s"):
        return f"{value:,.3f}".rstrip("0").rstrip(".") + (f" {unit}" if unit else "")
    power = min(4, max(0, int(value).bit_length() - 1) // 10)
    return f"{value / 1024**power:,.{2 if power else 0}f} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}{unit.removeprefix('bytes')}"
