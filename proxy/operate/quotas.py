"""`kafka-quota-proxy quotas`: describe and alter, with the flags of kafka-configs.sh; export, import and diff of settings files.

In: arguments. Out: tables or JSON on standard output; exit code 0, 1 when something was refused or failed, or differs (`diff`),
2 when what was given is not right."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from advice.limits import HEADROOM
from advice.use import LEAST_INTERVALS, PERCENTILE
from proxy.apis.client_quotas import TENANT, who_of
from proxy.config.limits import limits_of, table_of
from proxy.config.load import SettingsError, load_settings
from proxy.config.tenants import tenants_of
from proxy.config.units import HostPort, parse_server
from proxy.operate import plan, show, suggest
from proxy.operate.access import AccessError, upstream_of
from proxy.operate.controller.command import controller, controller_crd
from proxy.operate.entities import TYPES, filter_of, notes_of, ops_of, parts_of, spelled_out, who_of_parts
from proxy.upstream.connector import BrokerError, Upstream
from proxy.upstream.quota_client import QuotaClient, ask, result_text
from proxy.wire.client_quotas import DONE, Entry, Filter, Result, Who
from quota.entity import Entity
from quota.keys import wrong_value
from quota.overrides import Change, Difference, Table, changed
from quota.tenants import TenantEntity

T = TypeVar("T")
Limits = dict[Who, dict[str, float]]
EVERYTHING = Filter((), strict=False)


@dataclass(frozen=True)
class Target:
    """Which proxy, and how to get in."""

    servers: list[HostPort]
    upstream: Upstream

    def ask(self, work: Callable[[QuotaClient], Awaitable[T]]) -> T:
        try:
            return ask(self.servers, self.upstream, work)
        except BrokerError as e:
            fail(str(e), 1)

    def describe(self, wanted: Filter = EVERYTHING) -> Limits:
        """Brokers refuse a filter for tenants, whom they do not know: then all is asked for."""
        if not any(one.type == TENANT for one in wanted.components):
            return self.ask(lambda client: client.describe(wanted))
        return {who: values for who, values in self.describe().items() if wanted.matches(who)}


class ByType(click.Command):
    """A command whose names belong to the types before them, as kafka-configs.sh has it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spelled_out(args))


def to_proxy(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say which proxy; the command gets a `Target`."""

    @wraps(function)
    def withto_proxy(bootstrap_server: str, command_config: Path | None, **others: Any) -> None:
        try:
            servers = [parse_server(server) for server in bootstrap_server.split(",")]
            place = Target(servers, upstream_of(command_config))
        except (AccessError, ValueError) as e:
            fail(str(e) if isinstance(e, AccessError) else f"--bootstrap-server {bootstrap_server}: {e}")
        function(place, **others)

    config = click.option(
        "--command-config",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Properties file with how to get in, as Kafka's own tools take it.",
    )
    server = click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="The proxy.")
    return server(config(withto_proxy))


def _entity(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say whose quotas; `spelled_out` makes the others of these."""
    shown = "--user, --client-id, --ip NAME, --user-defaults, --client-defaults and --ip-defaults say the same in short."
    name = click.option("--entity-name", "names", multiple=True, help="Its name, after its type; or --entity-default.")
    kind = click.option("--entity-type", "types", multiple=True, type=click.Choice([*TYPES]), help=f"May be given twice. {shown}")
    return kind(name(function))


AS_JSON = click.option("--json", "as_json", is_flag=True, help="JSON instead of a table.")
PRUNE = click.option("--prune", is_flag=True, help="Limits that are not in the file go; those in a proxy's own file cannot.")
ONLY = click.option("--validate-only", is_flag=True, help="Say whether it would do, and change nothing.")
FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@click.group()
def quotas() -> None:
    """Quotas of a running proxy: describe, alter, export, import, diff, plan, apply."""


quotas.add_command(controller)
quotas.add_command(controller_crd)


@quotas.command(cls=ByType)
@to_proxy
@_entity
@AS_JSON
def describe(place: Target, types: Sequence[str], names: Sequence[str], as_json: bool) -> None:
    """Show quotas: all, or those of an entity. Those of the brokers are shown beside the proxy's."""
    found = place.describe(filter_of(_right(lambda: parts_of(types, names))))
    if as_json:
        click.echo(json.dumps(plan.as_json(found), indent=2))
    elif found:
        show.console().print(show.limits(found))
    else:
        click.echo("no quotas")


@quotas.command(cls=ByType)
@to_proxy
@_entity
@click.option("--add-config", "add", multiple=True, metavar="KEY=VALUE[,…]", help="Limits to set; rates of bytes may be 20MiB.")
@click.option("--delete-config", "delete", multiple=True, metavar="KEY[,…]", help="Limits to take away.")
@ONLY
@AS_JSON
def alter(
    place: Target,
    types: Sequence[str],
    names: Sequence[str],
    add: Sequence[str],
    delete: Sequence[str],
    validate_only: bool,
    as_json: bool,
) -> None:
    """Set quotas of an entity, or take them away."""
    who = _right(lambda: who_of_parts(parts_of(types, names)))
    entry = Entry(who, _right(lambda: ops_of(add, delete)))
    for note in _right(lambda: notes_of(entry.ops)):
        click.echo(note, err=True)
    results = place.ask(lambda client: client.alter([entry], validate_only=validate_only))
    _report(results, as_json, "would do" if validate_only else "altered")


@quotas.command()
@to_proxy
def export(place: Target) -> None:
    """Print the quotas of the proxy as a settings file."""
    found = place.describe()
    click.echo(plan.as_settings(plan.own(found)), nl=False)
    if left := plan.theirs(found):
        click.echo(f"left out: {left} limit(s) of brokers, which cannot stand in the proxy's settings", err=True)


@quotas.command("import")
@to_proxy
@FILE
@PRUNE
@ONLY
@AS_JSON
def import_(place: Target, file: Path, prune: bool, validate_only: bool, as_json: bool) -> None:
    """Make the quotas of the proxy those of a settings file."""
    wanted = wanted_of(file)
    found = plan.steps(plan.own(place.describe()), wanted, prune=prune)
    if not found and not as_json:
        click.echo("nothing to do")
        return
    entries = plan.entries_of(found)
    results = place.ask(lambda client: client.alter(entries, validate_only=validate_only)) if entries else []
    _report(results, as_json, "would do" if validate_only else "altered")


@quotas.command()
@to_proxy
@FILE
@PRUNE
@AS_JSON
def diff(place: Target, file: Path, prune: bool, as_json: bool) -> None:
    """Show what an import would change; exit code 1 if anything."""
    found = plan.steps(plan.own(place.describe()), wanted_of(file), prune=prune)
    if as_json:
        click.echo(json.dumps([_difference(one) for one in found], indent=2))
    elif found:
        show.console().print(show.changes(found))
    else:
        click.echo("no difference")
    sys.exit(bool(found))


@quotas.command("suggest")
@click.option(
    "--from",
    "folders",
    required=True,
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of usage logs; may be given several times.",
)
@click.option(
    "--by",
    type=click.Choice(["user", "client-id", "both", suggest.TOPIC, suggest.TENANT]),
    default="user",
    show_default=True,
    help="Whose limits.",
)
@click.option(
    "--tenants",
    "tenants_file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Settings file that says who belongs to which tenant, for --by tenant.",
)
@click.option(
    "--percentile", type=click.FloatRange(1, 100), default=100 * PERCENTILE, show_default=True, help="Of the use per interval."
)
@click.option(
    "--headroom", type=click.FloatRange(1, 1000), default=HEADROOM, show_default=True, help="What the demand is multiplied by."
)
@click.option(
    "--min-intervals",
    "least",
    type=click.IntRange(1),
    default=LEAST_INTERVALS,
    show_default=True,
    help="Who was seen less, and not held back, gets no limit.",
)
@click.option("--yaml", "as_yaml", is_flag=True, help="A settings file instead of a table.")
@AS_JSON
def suggest_(
    folders: Sequence[Path],
    by: str,
    tenants_file: Path | None,
    percentile: float,
    headroom: float,
    least: int,
    as_yaml: bool,
    as_json: bool,
) -> None:
    """Propose limits from usage logs. What was throttled, refused and held back counts as demand."""
    whose = _whose(by, tenants_file)
    try:
        found = suggest.read(folders, whose)
    except OSError as e:
        fail(f"{e.filename}: cannot be read: {e.strerror}", 1)
    if not found.lines:
        fail(f"no lines of usage in {', '.join(map(str, folders))}: files usage-*.jsonl are looked for", 1)
    made = suggest.suggest(found, part=percentile / 100, headroom=headroom, least=least)
    if as_yaml and by == suggest.TOPIC:
        click.echo(plan.as_topic_settings((one.entity.topic or "", one.key, one.limit) for one in made), nl=False)
    elif as_yaml:
        click.echo(plan.as_settings(changed({}, [Change(one.entity, one.key, one.limit) for one in made])), nl=False)
    elif as_json:
        click.echo(json.dumps([{"entity": _suggested_for(one.entity)} | one.as_json() for one in made], indent=2))
    else:
        show.console().print(show.suggestions(made, percentile))
    told = {(one.entity, one.key) for one in made}
    left = len({which[0] for which, seen in found.histograms.items() if seen.total < least and which not in told})
    text = f"{found.lines:,} lines, {found.intervals:,} intervals from {found.first} to {found.last}"
    text += f"; {found.bad} line(s) could not be read" * bool(found.bad)
    text += f"; {left} had too few intervals for some limit" * bool(left)
    click.echo(text, err=True)


def _whose(by: str, tenants_file: Path | None) -> suggest.Whose:
    if (by == suggest.TENANT) != (tenants_file is not None):
        fail("--by tenant and --tenants FILE go together: usage logs say which users there are, not whose they are")
    if tenants_file is None:
        return suggest.Whose(by)
    try:
        settings = load_settings(tenants_file)
    except SettingsError as e:
        fail(str(e))
    if not settings.tenants:
        fail(f"{tenants_file}: there are no `tenants`")
    return suggest.Whose(by, tenants_of(settings.tenants), limits_of(settings).exempt)


def wanted_of(file: Path) -> Table:
    """The limits that a file wants; none that the proxy would refuse one by one."""
    try:
        table = table_of(load_settings(file))
    except SettingsError as e:
        fail(str(e))
    wrongs = [wrong_value(entity, key, value) for entity, values in table.items() for key, value in values.items()]
    if (wrong := next(filter(None, wrongs), None)) is not None:
        fail(f"{file}: {wrong}")
    return table


def _difference(one: Difference) -> dict[str, Any]:
    return {"entity": _entity_of(one.entity), "quota": one.key, "old": one.old, "new": one.new}


def _entity_of(entity: Entity) -> dict[str, str | None]:
    return {"user": entity.user, "client_id": entity.client_id} if entity.topic is None else dict(who_of(entity))


def _suggested_for(entity: Entity) -> dict[str, str | None]:
    if isinstance(entity, TenantEntity):
        return dict(who_of(entity))
    return {"user": entity.user, "client_id": entity.client_id} if entity.topic is None else {"topic": entity.topic}


def _report(results: Sequence[tuple[Entry, Result]], as_json: bool, done: str) -> None:
    """What became of each entry; exit code 1 when any was refused."""
    if as_json:
        lines = [{"entity": dict(entry.who), "error": result.error, "message": result.message} for entry, result in results]
        click.echo(json.dumps(lines, indent=2))
    else:
        for entry, result in results:
            click.echo(f"{show.name_of(entry.who)}: {done if result == DONE else result_text(result)}", err=result != DONE)
    sys.exit(any(result != DONE for _, result in results))


def _right(make: Callable[[], T]) -> T:
    try:
        return make()
    except ValueError as e:
        fail(str(e))


def fail(message: str, code: int = 2) -> NoReturn:
    """The end."""
    click.echo(message, err=True)
    sys.exit(code)
