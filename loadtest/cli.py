"""`kafka-quota-proxy loadtest`. In: arguments. Out: tables, JSON, a page; exit code 0, 1 when an assertion does not hold or a
run could not be made to its end, 2 when what was given is not right, 130 after Ctrl-C (143 after SIGTERM).

The commands themselves (`loadtest.commands`) are imported once the packages that they need are known to be there."""

from __future__ import annotations

import sys
from typing import Any, Final, NoReturn

import click

_NEEDED: Final = {"confluent_kafka": "confluent-kafka", "hdrh": "hdrhistogram", "psutil": "psutil"}


class Commands(click.Group):
    """Errors that a user should read are printed in one line each."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(self._loaded())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        return self._loaded().get(cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        self._loaded()
        from loadtest.commands import ERRORS

        try:
            return super().invoke(ctx)
        except tuple(ERRORS) as e:
            _fail(str(e), next(code for kind, code in ERRORS.items() if isinstance(e, kind)))

    def _loaded(self) -> dict[str, click.Command]:
        try:
            for module in _NEEDED:
                __import__(module)
        except ImportError as e:
            _fail(f"needs {_NEEDED.get(str(e.name), e.name)}: install kafka-quota-proxy[loadtest]", 2)
        from loadtest.commands import COMMANDS

        return {str(command.name): command for command in COMMANDS}


@click.group(cls=Commands)
def loadtest() -> None:
    """Drive load at any cluster, and check what a quota does to it."""


def _fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"kafka-quota-proxy loadtest: {line}", err=True)
    sys.exit(code)
