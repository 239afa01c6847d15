"""The console command. In: arguments. Out: exit code 0, 1 when something failed, 2 when what was given is not right.

The model of settings is imported by the commands that read them: it takes longer to build than other commands take to start.
"""

from __future__ import annotations

import json
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from proxy.compiled import hot_path

if TYPE_CHECKING:
    from proxy.config.models import Settings


class LazyGroup(click.Group):
    """Commands of other packages are imported when they are run: `serve` needs no Spark."""

    others = {  # noqa: RUF012
        "tenants": ("proxy.operate.tenants", "tenants", "Tenants: who belongs to each, what it owns and uses."),
        "throttles": ("proxy.operate.throttles", "throttles", "Who is throttled now, by which quota, until when."),
        "quotas": (
            "proxy.operate.plan_commands",
            "quotas",
            "Quotas of a running proxy: describe, alter, export, import, diff, plan, apply.",
        ),
        "report": ("reports.cli", "report", "Turn usage logs into the capacity report (PySpark)."),
        "loadtest": ("loadtest.cli", "loadtest", "Drive load at any cluster, and check what a quota does to it."),
        "demo": ("demo.cli", "demo", "Real Kafka, proxy, load and report on this machine."),
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self.others])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.others:
            return super().get_command(ctx, cmd_name)
        module, name, _ = self.others[cmd_name]
        try:
            command: click.Command = getattr(__import__(module, fromlist=[name]), name)
        except ModuleNotFoundError as e:
            if e.name != module.partition(".")[0]:
                raise
            raise click.UsageError(
                f"{cmd_name} is not part of the package: run `make {cmd_name}` in a checkout of the project"
            ) from None
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Of an unknown command, say which known one is like it: click would only look at those that are imported."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and (similar := get_close_matches(name, known, n=1)):
            ctx.fail(f"No such command '{name}'. Did you mean '{similar[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        texts = {name: command.get_short_help_str(80) for name, command in self.commands.items()}
        texts |= {name: text for name, (_, _, text) in self.others.items()}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(texts.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    package_name="kafka-quota-proxy", prog_name="kafka-quota-proxy", message=f"%(prog)s %(version)s (hot path: {hot_path()})"
)
def main() -> None:
    """A proxy for shared Apache Kafka clusters that enforces quotas for the whole cluster."""


CONFIG = click.option("--config", "config", type=click.Path(path_type=Path, dir_okay=False), help="Settings file (YAML).")


@main.command()
@click.option("--upstream", metavar="HOST:PORT[,…]", help="Brokers to ask first; replaces upstream.bootstrap_servers.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where clients bootstrap; brokers get the ports above. Replaces listen.bootstrap. [127.0.0.1:9192]",
)
@click.option("--admin", metavar="HOST:PORT", help="Where /metrics is served; replaces admin.listen. [127.0.0.1:9190]")
@click.option("--logs", metavar="DIR", help="Folder for the usage log; replaces logs.usage.path.")
@click.option("--proxy-id", metavar="NAME", help="Name of this proxy in logs; replaces proxy_id. [the host's name]")
@click.option(
    "--reuse-port",
    is_flag=True,
    help="Share all listeners' ports with other proxies of this machine that say so too; sets reuse_port of all listeners."
    " Each needs an --admin and a --proxy-id of its own.",
)
@click.option("--workers", metavar="N|auto", help="Processes that share the work, one for each processor; replaces workers. [1]")
@CONFIG
def serve(
    upstream: str | None,
    listen: str | None,
    admin: str | None,
    logs: str | None,
    proxy_id: str | None,
    reuse_port: bool,
    workers: str | None,
    config: Path | None,
) -> None:
    """Run the proxy until SIGTERM."""
    over: dict[str, Any] = {}
    if upstream:
        over["upstream"] = {"bootstrap_servers": upstream.split(",")}
    if listen:
        over["listen"] = {"bootstrap": listen}
    if admin:
        over["admin"] = {"listen": admin}
    if logs:
        over["logs"] = {"usage": {"path": logs}}
    if proxy_id:
        over["proxy_id"] = proxy_id
    if workers:
        over["workers"] = int(workers) if workers.isdecimal() else workers
    every_listener = {"reuse_port": True} if reuse_port else {}
    settings = _load(config, over, every_listener)
    if not settings.upstream.bootstrap_servers:
        _fail("which cluster? give --upstream HOST:PORT, or set `upstream.bootstrap_servers` in the settings file")
    from proxy.config.load import load_settings
    from proxy.process.serve import run

    sys.exit(run(settings, lambda: load_settings(config, over, every_listener), config))


@main.command("check-config")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--no-files", is_flag=True, help="Leave out the certificates that it names, where they are not there yet.")
@click.option("--cluster", is_flag=True, help="Ask the cluster for its topics, too: which prefixes of tenants none of them has.")
@click.option("--print-schema", is_flag=True, help="Print the JSON Schema of the settings file instead.")
def check_config(file: Path | None, no_files: bool, cluster: bool, print_schema: bool) -> None:
    """Check a settings file, and the certificates that it names: exit code 0 when all is right, 2 when not."""
    from proxy.config.alone import enforces_alone
    from proxy.config.models import Settings, deprecated_names
    from proxy.config.tenants import useless

    if print_schema:
        click.echo(json.dumps(Settings.model_json_schema(), indent=2))
        return
    if file is None:
        _fail("which file? kafka-quota-proxy check-config FILE")
    settings = _load(file, {})
    from proxy.tls import TlsError, contexts_of

    try:
        if not no_files:
            contexts_of(settings)
    except TlsError as e:
        _fail(f"{file}: {e}")
    if (alone := enforces_alone(settings)) is not None:
        click.echo(f"{file}: warning: {alone}", err=True)
    for note in deprecated_names(settings):
        click.echo(f"{file}: warning: {note}", err=True)
    for note in useless(settings.tenants):
        click.echo(f"{file}: warning: {note}", err=True)
    for note in _unmatched(settings) if cluster else ():
        click.echo(f"{file}: warning: {note}", err=True)
    click.echo(f"{file}: right, {len(settings.quotas.entities)} quota(s)")


def _unmatched(settings: Settings) -> list[str]:
    from proxy.process.check_topics import prefixes_without_topics
    from proxy.tls import TlsError
    from proxy.upstream.connector import BrokerError

    try:
        return prefixes_without_topics(settings)
    except (BrokerError, TlsError) as e:
        click.echo(f"kafka-quota-proxy: the cluster cannot be asked for its topics: {e}", err=True)
        sys.exit(1)


def _load(path: Path | None, over: dict[str, Any], every_listener: dict[str, Any] | None = None) -> Settings:
    from proxy.config.load import SettingsError, load_settings

    try:
        return load_settings(path, over, every_listener)
    except SettingsError as e:
        _fail(str(e))


def _fail(message: str) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(2)
