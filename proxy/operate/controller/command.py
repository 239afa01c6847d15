"""`kafka-quota-proxy quotas controller` and `quotas controller-crd`. In: options. Out: exit code 0 after SIGTERM, 1 when the API
server cannot be found, 2 when what was given is not right."""

from __future__ import annotations

import http.client
import ssl
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import click
import yaml

from proxy.config.units import HostPort, parse_server
from proxy.operate.access import AccessError, upstream_of
from proxy.operate.admin import look
from proxy.operate.controller.definition import definition
from proxy.operate.controller.lease import PASS


@click.command()
@click.option("--bootstrap-server", required=True, metavar="HOST:PORT[,…]", help="The proxy.")
@click.option(
    "--command-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Properties file with how to get in; a user of `quotas.admins`.",
)
@click.option(
    "--namespace", "namespaces", multiple=True, required=True, help="Where KafkaQuota objects are; may be given several times."
)
@click.option("--lease", required=True, metavar="NAMESPACE/NAME", help="The Lease by which one of several controllers works.")
@click.option("--interval", type=click.FloatRange(0.1, 3600), default=5.0, show_default=True, help="Seconds between two passes.")
@click.option("--strimzi", "with_users", is_flag=True, help="Read the quotas of Strimzi's KafkaUsers too.")
@click.option(
    "--strimzi-version", default="v1", show_default=True, metavar="VERSION", help="Version of kafka.strimzi.io that has them."
)
@click.option(
    "--admin",
    "admins",
    multiple=True,
    metavar="HOST:PORT",
    help="Admin listener of a proxy, for who is throttled; may be repeated.",
)
@click.option("--tls", "use_tls", is_flag=True, help="Admin listeners have TLS.")
@click.option("--ca-file", type=click.Path(exists=True, dir_okay=False), help="Who their certificates are trusted by (PEM).")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="File with the token of admin.auth; read anew each time.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Outside of a pod: how to reach the API server.",
)
def controller(
    bootstrap_server: str,
    command_config: Path | None,
    namespaces: Sequence[str],
    lease: str,
    interval: float,
    with_users: bool,
    strimzi_version: str,
    admins: Sequence[str],
    use_tls: bool,
    ca_file: str | None,
    token_file: Path | None,
    kubeconfig: Path | None,
) -> None:
    """Keep the quotas of the proxy as KafkaQuota objects of Kubernetes have them."""
    try:
        import kubernetes_asyncio  # noqa: F401
    except ModuleNotFoundError:
        _fail("the controller is an extra of the package: pip install 'kafka-quota-proxy[controller]'")
    from proxy.operate.controller.api import ApiError
    from proxy.operate.controller.run import Options, run
    from proxy.operate.controller.strimzi import USERS

    try:
        servers = [_address("--bootstrap-server", server) for server in bootstrap_server.split(",")]
        pages = [_address("--admin", admin) for admin in admins]
        # Each server in turn is given a part of the time of a pass, so that one that is gone does not hide the others.
        upstream = replace(upstream_of(command_config), timeout=PASS / (2 * len(servers)))
    except AccessError as e:
        _fail(str(e))
    try:
        tls = ssl.create_default_context(cafile=ca_file) if use_tls or ca_file else None
    except OSError as e:
        _fail(f"--ca-file {ca_file}: cannot be used: {e.strerror or e}")
    place, slash, name = lease.partition("/")
    if not (place and slash and name):
        _fail(f"--lease {lease}: must be NAMESPACE/NAME")
    users = USERS._replace(version=strimzi_version) if with_users else None
    seen = (lambda: _pages(pages, tls, token_file)) if pages else None
    try:
        run(Options(servers, upstream, [*dict.fromkeys(namespaces)], (place, name), interval, users, seen), kubeconfig)
    except ApiError as e:
        _fail(str(e), 1)


def _address(option: str, text: str) -> HostPort:
    try:
        return parse_server(text)
    except ValueError as e:
        _fail(f"{option} {text}: {e}")


def _pages(admins: Sequence[HostPort], tls: ssl.SSLContext | None, token_file: Path | None) -> list[dict[str, object]]:
    headers = {} if token_file is None else {"Authorization": f"Bearer {token_file.read_text(encoding='utf-8').strip()}"}
    pages: list[dict[str, object]] = []
    for admin in admins:
        try:
            pages.append(look(admin, "/throttles", tls, headers))
        except (OSError, ValueError, http.client.HTTPException) as e:
            raise OSError(
                f"{admin}: {e.strerror if isinstance(e, OSError) and e.strerror else str(e) or type(e).__name__}"
            ) from None
    return pages


@click.command("controller-crd")
def controller_crd() -> None:
    """Print the CustomResourceDefinition of KafkaQuota."""
    click.echo(yaml.safe_dump(definition(), sort_keys=False, allow_unicode=True, width=1000), nl=False)


def _fail(message: str, code: int = 2) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)
