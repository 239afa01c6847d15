"""`kafka-quota-proxy tenants`: who belongs to each tenant, what it owns, and how it stands against its limits. In: the admin
listener of a proxy. Out: tables, JSON; exit code 1 when the proxy does not answer."""

from __future__ import annotations

import json
from typing import Any

import click
from rich.console import Group
from rich.text import Text

from proxy.operate import show
from proxy.operate.admin import Ask, of_admin


@click.command()
@of_admin
@click.option("--json", "as_json", is_flag=True, help="JSON instead of tables.")
def tenants(ask: Ask, as_json: bool) -> None:
    """Tenants: who belongs to each, what it owns and uses."""
    found = ask("/tenants")
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        show.console().print(tables(found))


def tables(found: dict[str, Any]) -> Group:
    """The same for people."""
    if not found["tenants"]:
        return Group(Text(f"{found['proxy']}: no tenants"))
    made = show.table("tenant", "users", "topic prefixes", "topics", "partitions", "quota", "usage", "limit", "unit")
    for one in found["tenants"]:
        users = ", ".join([*one["users"], *(f"{prefix}*" for prefix in one["user_prefixes"])])
        prefixes = ", ".join(f"{it} (no topics)" if it in one["prefixes_without_topics"] else it for it in one["topic_prefixes"])
        whose = (one["tenant"], users, prefixes, f"{one['topics']:,}", f"{one['partitions']:,}")
        for i, quota in enumerate(one["quotas"] or [None]):
            name = "" if quota is None else quota["quota"] + (" (observed only)" if quota["observed"] else "")
            figures = ("", "", "") if quota is None else (f"{quota['usage']:,.4g}", f"{quota['limit']:,g}", quota["unit"])
            made.add_row(*map(Text, (*(("",) * 5 if i else whose), name, *figures)))
    nobody = found["of_nobody"]
    return Group(made, Text(f"{nobody['topics']:,} topics with {nobody['partitions']:,} partitions belong to no tenant"))
