"""The commands of `kafka-quota-proxy loadtest`: to run scenarios, to look at them, and what is done with results.

In: arguments. Out: tables, files, exit codes; errors as exceptions of ERRORS, which `loadtest.cli` prints."""

from __future__ import annotations

import hashlib
import json as json_texts
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from configfile.access import Access, AccessError, access_of
from configfile.load import FileError
from loadtest.endpoint import Cluster, EndpointError, same_cluster
from loadtest.interrupt import interruptible
from loadtest.library import description, find, load, names
from loadtest.results import tables
from loadtest.results.compare import in_turn
from loadtest.results.diff import DiffError, apart, diff, thresholds
from loadtest.results.files import AnyResult, put, read, read_runs, write
from loadtest.results.measures import KINDS
from loadtest.results.merge import MergeError, merge_runs
from loadtest.results.model import Endpoint, RunResult
from loadtest.results.sampling import WatchError, watch
from loadtest.results.sweep import find_knee
from loadtest.results.terminal import View, print_result, print_rows
from loadtest.run import Options, RunError, run_once
from loadtest.scenario import Scenario, assess

ERRORS: Final[dict[type[Exception], int]] = {
    RunError: 1,
    **dict.fromkeys((AccessError, DiffError, EndpointError, FileError, MergeError, WatchError), 2),
}
"""Errors that a user should read, and their exit codes."""
_RUN_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FILE: Final = click.Path(path_type=Path, dir_okay=False)
JSON: Final = click.option("--json", metavar="FILE", help="Write the result; `-`: one line on standard output.")
HTML: Final = click.option("--html", type=_FILE, help="Write a page with plots.")
SET: Final = click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="A parameter of the scenario, or a key such as phases[0].duration."
)


@dataclass(frozen=True, slots=True)
class Given:
    """What the options common to `run` and `sweep` say."""

    scenario: Scenario
    clusters: list[Cluster]
    options: Options
    json: str | None
    html: Path | None
    console: Console

    def write(self, result: AnyResult) -> None:
        """Everything that was asked for."""
        try:
            finish(result, self.json, self.html)
        except FileError as e:
            raise RunError(str(e)) from None


def _given(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is driven; the command gets a `Given`."""

    @wraps(function)
    def with_given(
        scenario: str,
        bootstrap: str,
        command_config: Path | None,
        sets: Sequence[str],
        duration_scale: float,
        watched: Sequence[str],
        run_id: str | None,
        json: str | None,
        html: Path | None,
        compare: Sequence[str] = (),
        driver_index: int = 0,
        driver_count: int = 1,
        **others: Any,
    ) -> None:
        if not 0 <= driver_index < driver_count:
            raise FileError(f"--driver-index {driver_index}: of {driver_count} drivers the first is 0, the last {driver_count - 1}")
        if driver_count > 1 and run_id is None:
            raise FileError("--driver-count: drivers of one run share a --run-id")
        if driver_count > 1 and compare:
            raise FileError("--compare: several drivers cannot take turns; run each endpoint by itself, and `loadtest diff` them")
        if run_id is not None and not _RUN_ID.fullmatch(run_id):
            raise FileError(f"--run-id {run_id}: must be 1 to 64 letters, digits, `.`, `_` or `-`")
        found = load(scenario, sets).scaled(duration_scale)
        options = Options(_short_id(run_id), driver_index, driver_count, dict(watch(text) for text in watched))
        _writable(json, html)
        access = Access() if command_config is None else access_of(command_config)
        clusters = [Cluster.at(address, access) for address in (bootstrap, *compare)]
        same_cluster(clusters)
        console = Console(stderr=json == "-")
        with interruptible(lambda: console.print("stopped; what the run made is removed", highlight=False)):
            function(Given(found, clusters, options, json, html, console), **others)

    for option in reversed(_OPTIONS):
        with_given = option(with_given)
    return with_given


_OPTIONS = [
    click.argument("scenario"),
    click.option("--bootstrap", required=True, metavar="HOST:PORT[,…]", help="The cluster, or a proxy before it."),
    click.option("--command-config", type=_FILE, help="Properties file with how to get in, as Kafka's own tools take it."),
    SET,
    click.option(
        "--duration-scale", type=click.FloatRange(0.001, 1000), default=1.0, show_default=True, help="Durations times this."
    ),
    click.option(
        "--watch", "watched", multiple=True, metavar="NAME=PID|CGROUP", help="Whose CPU and memory stand beside the figures."
    ),
    click.option("--run-id", metavar="TEXT", help="Of this run: drivers of one run share it. By default random."),
    JSON,
    HTML,
]


@click.command()
@_given
@click.option(
    "--compare", multiple=True, metavar="HOST:PORT", help="Another way to the same cluster; runs take turns. May be repeated."
)
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Of a comparison: fewer than 5 decide nothing."
)
@click.option("--driver-index", type=click.IntRange(0), default=0, help="Which of the drivers this is, from 0.")
@click.option(
    "--driver-count", type=click.IntRange(1), default=1, help="Number of drivers that share the load; see `loadtest merge`."
)
def run(given: Given, rounds: int) -> None:
    """Run a scenario: one that comes along (`loadtest list`), or a file."""
    scenario, clusters = given.scenario, {cluster.bootstrap: cluster for cluster in given.clusters}
    if len(given.clusters) == 1:
        result = _shown_run(given, scenario, given.clusters[0], given.options)
        given.write(result)
        if given.options.count == 1 and not result.passed:
            sys.exit(1)
        return

    def once(endpoint: Endpoint) -> RunResult:
        return _shown_run(given, scenario, clusters[endpoint.bootstrap], replace(given.options, run_id=secrets.token_hex(4)))

    endpoints = [Endpoint(name=one.bootstrap, bootstrap=one.bootstrap, cluster_id=one.id) for one in given.clusters]
    comparison = in_turn(endpoints, rounds, once, scenario.name)
    given.write(comparison)
    sys.exit(not all(one.passed for one in comparison.runs))


@click.command()
@_given
@click.option(
    "--from",
    "low",
    type=click.FloatRange(0, min_open=True),
    required=True,
    metavar="RATE",
    help="The first rate, in operations per second.",
)
@click.option("--to", "high", type=click.FloatRange(0, min_open=True), metavar="RATE", help="No higher one is tried.")
@click.option("--p99", type=click.FloatRange(0, min_open=True), metavar="MS", help="Above this a rate does not hold.")
def sweep(given: Given, low: float, high: float | None, p99: float | None) -> None:
    """Find the highest rate that holds: doubling, then halving the step."""
    if high is not None and high < low:
        raise FileError(f"--to {high:g}: must be at least --from {low:g}")
    given.scenario.at_rate(low)  # before anything runs, as it may raise

    def run_at(rate: float) -> RunResult:
        options = replace(given.options, run_id=secrets.token_hex(4))
        return _shown_run(given, given.scenario.at_rate(rate), given.clusters[0], options)

    limit = None if p99 is None else round(p99 * 1000)
    found = find_knee(run_at, low=low, high=high, p99_limit_us=limit, told=lambda step: given.console.print(step.why, markup=False))
    given.write(found)
    sys.exit(found.knee is None)


@click.command("list")
def list_() -> None:
    """Scenarios that come along."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name in names():
        table.add_row(name, description(name))
    Console().print(table)


@click.command()
@click.argument("scenario")
def show(scenario: str) -> None:
    """Print a scenario, to begin one's own with."""
    try:
        click.echo(find(scenario).read_text(encoding="utf-8"), nl=False)
    except OSError as e:
        raise FileError(str(e)) from None


@click.command()
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    click.echo(json_texts.dumps(Scenario.model_json_schema(), indent=2))


@click.command()
@click.argument("scenario")
@SET
def check(scenario: str, sets: Sequence[str]) -> None:
    """Check a scenario file: exit code 0 when all is right, 2 when not."""
    found = load(scenario, sets)
    seconds = sum(phase.warm_up + phase.duration for phase in found.phases) + found.pause * (len(found.phases) - 1)
    click.echo(f"{found.name}: right, {len(found.phases)} phase(s), {seconds:g} s")


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
    older, newer = read(before), read(after)
    changes = diff(older, newer, thresholds(limits))
    console = _console()
    print_rows(console, tables.changes(changes))
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
def merge_command(files: tuple[str, ...], json: str | None, html: Path | None) -> None:
    """Merge the results of the N drivers of one run, exactly. FILES may also be logs of pods (- for standard input)."""
    try:
        merged = merge_runs(read_runs(files), assess)
    except ValidationError as e:
        first = e.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        text = f"the scenario of these results is not valid in this version: {key}: {first['msg']}"
        raise MergeError(text) from None
    finish(merged, json, html)
    sys.exit(0 if merged.passed else 1)


@click.command("render")
@click.argument("file")
@HTML
def render_command(file: str, html: Path | None) -> None:
    """Show a result (a file of --json) as tables, and as a page."""
    finish(read(file), None, html)


COMMANDS: Final[list[click.Command]] = [run, sweep, list_, show, schema, check, diff_command, merge_command, render_command]


def finish(result: AnyResult, json: str | None, html: Path | None) -> None:
    """Print a result, and write the files that were asked for. Raises FileError."""
    print_result(_console(stderr=json == "-"), result)
    if json:
        write(result, json)
    if html:
        from loadtest.results.page import page  # it needs matplotlib

        put(str(html), page(result))


def _console(*, stderr: bool = False) -> Console:
    """A console of the terminal's width, or 160 columns if the output is a file or a log of CI, so that tables are not folded."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=160)


def _short_id(given: str | None) -> str:
    """Eight characters, which records carry: a longer id (of a Kubernetes Job, say) is shortened to the same by all drivers."""
    if given is None:
        return secrets.token_hex(4)
    return given if len(given) <= 8 else hashlib.sha256(given.encode()).hexdigest()[:8]


def _shown_run(given: Given, scenario: Scenario, cluster: Cluster, options: Options) -> RunResult:
    with View(given.console, scenario.name, cluster.bootstrap) as view:
        return run_once(scenario, cluster, options, view)


def _writable(json: str | None, html: Path | None) -> None:
    """Before the run: afterwards it would be lost. Raises FileError."""
    for option, path in (("--json", None if json in (None, "-") else Path(str(json))), ("--html", html)):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise FileError(f"{option} {path}: is not a file in a folder that exists")
