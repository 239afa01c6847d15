"""`loadtest diff`, `merge` and `render`: commands on results. In: files. Out: tables, files, exit codes.

0: no problem. 1: a regression, or a merged run that has not passed. 2: wrong input, explained in one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final, NoReturn

import click
from pydantic import ValidationError
from rich.console import Console

from loadtest.results import say
from loadtest.results.diff import DiffError, apart, diff, thresholds
from loadtest.results.files import AnyResult, FileError, put, read, read_runs, write
from loadtest.results.measures import KINDS
from loadtest.results.merge import MergeError, merge_runs
from loadtest.results.model import AssertionResult, RunResult
from loadtest.results.terminal import print_result, print_rows

JSON = click.option("--json", "json_file", metavar="FILE", help="Write the result there; - for one line on standard output.")
HTML = click.option("--html", "html_file", metavar="FILE", help="Write a page with plots there.")


@click.command("diff")
@click.argument("before")
@click.argument("after")
@click.option(
    "--threshold",
    "limits",
    multiple=True,
    metavar="NAME=PERCENT",
    help=f"How much worse a figure may be: {', '.join((*KINDS, 'knee'))}. Can be given several times.",
)
def diff_command(before: str, after: str, limits: tuple[str, ...]) -> None:
    """Compare two results (files of --json): exit code 1 if AFTER is worse than BEFORE by more than is allowed."""
    try:
        older, newer = read(before), read(after)
        changes = diff(older, newer, thresholds(limits))
    except (FileError, DiffError) as e:
        _fail(str(e))
    console = _console()
    print_rows(console, say.changes(changes))
    for text in apart(older, newer):
        console.print(f"⚠ {text}", style="yellow", markup=False, soft_wrap=True)
    for path, result in ((before, older), (after, newer)):
        for warning in result.warnings:
            console.print(f"⚠ {path}: {warning.code}: {warning.text}", style="yellow", markup=False, soft_wrap=True)
    regressions = [change for change in changes if change.regressed]
    console.print(f"{len(regressions)} regressions in {len(changes)} figures", style="bold red" if regressions else "bold green")
    sys.exit(1 if regressions else 0)


@click.command("merge")
@click.argument("files", nargs=-1, required=True)
@JSON
@HTML
def merge_command(files: tuple[str, ...], json_file: str | None, html_file: str | None) -> None:
    """Merge the results of the N drivers of one run, exactly. FILES may also be logs of pods (- for standard input)."""
    try:
        merged = merge_runs(read_runs(files), _assess())
    except (FileError, MergeError) as e:
        _fail(str(e))
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        _fail(f"the scenario of these results is not valid in this version: {key}: {first['msg']}")
    _finish(merged, json_file, html_file)
    sys.exit(0 if merged.passed else 1)


@click.command("render")
@click.argument("file")
@HTML
def render_command(file: str, html_file: str | None) -> None:
    """Show a result (a file of --json) as tables, and as a page."""
    try:
        result = read(file)
    except FileError as e:
        _fail(str(e))
    _finish(result, None, html_file)


COMMANDS: Final[list[click.Command]] = [diff_command, merge_command, render_command]


def _finish(result: AnyResult, json_file: str | None, html_file: str | None) -> None:
    try:
        finish(result, json_file, html_file)
    except FileError as e:
        _fail(str(e))


def finish(result: AnyResult, json_file: str | None, html_file: str | None) -> None:
    """Print a result, and write the files that were asked for. Raises FileError."""
    print_result(_console(stderr=json_file == "-"), result)
    if json_file:
        write(result, json_file)
    if html_file:
        from loadtest.results.page import page

        put(html_file, page(result))


def _console(*, stderr: bool = False) -> Console:
    """A console of the terminal's width, or 160 columns if the output is a file or a log of CI, so that tables are not folded."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=160)


def _assess() -> Callable[[RunResult], list[AssertionResult]]:
    from loadtest.scenario import assess

    return assess


def _fail(message: str) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(2)
