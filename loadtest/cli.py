"""`kafka-quota-proxy loadtest`. In: arguments. Out: tables, JSON, a page; exit code 0, 1 when an assertion does not hold or a
run could not be made to its end, 2 when what was given is not right, 130 after Ctrl-C (143 after SIGTERM).

Imports little before it is called: `--help` needs no Kafka client."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.console import Console

from configfile.access import Access, AccessError, access_of
from configfile.load import FileError
from loadtest.interrupt import interruptible

if TYPE_CHECKING:
    from loadtest.endpoint import Cluster
    from loadtest.results.model import Comparison, RunResult, Sweep
    from loadtest.run import Options
    from loadtest.scenario import Scenario

_RUN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NEEDED = {"confluent_kafka": "confluent-kafka", "hdrh": "hdrhistogram", "psutil": "psutil"}


class WithResults(click.Group):
    """Commands on results are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self._results()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self._results().get(cmd_name)

    def _results(self) -> dict[str, click.Command]:
        _check_packages()
        from loadtest.results.commands import COMMANDS

        return {str(command.name): command for command in COMMANDS}


@click.group(cls=WithResults)
def loadtest() -> None:
    """Drive load at any cluster, and check what a quota does to it."""
    _check_packages()


def _check_packages() -> None:
    try:
        for module in _NEEDED:
            __import__(module)
    except ImportError as e:
        _fail(f"needs {_NEEDED.get(str(e.name), e.name)}: install kafka-quota-proxy[loadtest]")


@dataclass(frozen=True, slots=True)
class Given:
    """What the options common to `run` and `sweep` say."""

    scenario: Scenario
    clusters: list[Cluster]
    options: Options
    json: str | None
    html: Path | None
    console: Console

    def write(self, result: RunResult | Comparison | Sweep) -> None:
        """Everything that was asked for."""
        from loadtest.results.commands import finish
        from loadtest.results.files import FileError as NotWritten

        try:
            finish(result, self.json, str(self.html) if self.html else None)
        except NotWritten as e:
            _fail(str(e), 1)


def _given(function: Callable[..., None]) -> Callable[..., None]:
    """The options that say what is driven; the command gets a `Given`."""

    @wraps(function)
    def with_given(
        scenario: str,
        bootstrap: str,
        command_config: Path | None,
        sets: Sequence[str],
        duration_scale: float,
        watch: Sequence[str],
        run_id: str | None,
        json: str | None,
        html: Path | None,
        compare: Sequence[str] = (),
        driver_index: int = 0,
        driver_count: int = 1,
        **others: Any,
    ) -> None:
        from loadtest.endpoint import Cluster, EndpointError, same_cluster
        from loadtest.results.sampling import WatchError
        from loadtest.results.sampling import watch as watched
        from loadtest.run import Options, RunError

        try:
            if not 0 <= driver_index < driver_count:
                raise FileError(
                    f"--driver-index {driver_index}: of {driver_count} drivers the first is 0, the last {driver_count - 1}"
                )
            if driver_count > 1 and run_id is None:
                raise FileError("--driver-count: drivers of one run share a --run-id")
            if driver_count > 1 and compare:
                raise FileError(
                    "--compare: several drivers cannot take turns; run each endpoint by itself, and `loadtest diff` them"
                )
            if run_id is not None and not _RUN_ID.fullmatch(run_id):
                raise FileError(f"--run-id {run_id}: 1 to 64 letters, digits, `.`, `_` or `-` are right")
            found = load(scenario, sets).scaled(duration_scale)
            options = Options(_short_id(run_id), driver_index, driver_count, dict(watched(text) for text in watch))
            _writable(json, html)
            access = Access() if command_config is None else access_of(command_config)
            clusters = [Cluster.at(address, access) for address in (bootstrap, *compare)]
            same_cluster(clusters)
        except (FileError, AccessError, WatchError, EndpointError) as e:
            _fail(str(e))
        console = Console(stderr=json == "-")
        with interruptible(lambda: console.print("stopped; what the run made is removed", highlight=False)):
            try:
                function(Given(found, clusters, options, json, html, console), **others)
            except EndpointError as e:
                _fail(str(e))
            except RunError as e:
                _fail(str(e), 1)

    for option in reversed(_OPTIONS):
        with_given = option(with_given)
    return with_given


_FILE = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = [
    click.argument("scenario"),
    click.option("--bootstrap", required=True, metavar="HOST:PORT[,…]", help="The cluster, or a proxy before it."),
    click.option("--command-config", type=_FILE, help="Properties file with how to get in, as Kafka's own tools take it."),
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="A parameter of the scenario, or a key such as phases[0].duration.",
    ),
    click.option(
        "--duration-scale", type=click.FloatRange(0.001, 1000), default=1.0, show_default=True, help="Durations times this."
    ),
    click.option("--watch", multiple=True, metavar="NAME=PID|CGROUP", help="Whose CPU and memory stand beside the figures."),
    click.option("--run-id", metavar="TEXT", help="Of this run: drivers of one run share it. By default random."),
    click.option("--json", metavar="FILE", help="Write the result; `-`: one line on standard output."),
    click.option("--html", type=_FILE, help="Write a page."),
]


@loadtest.command()
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
    from dataclasses import replace

    from loadtest.results.compare import in_turn
    from loadtest.results.model import Endpoint

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


@loadtest.command()
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
    from dataclasses import replace

    from loadtest.results.sweep import find_knee

    if high is not None and high < low:
        _fail(f"--to {high:g}: a rate of at least --from {low:g} is right")
    try:
        given.scenario.at_rate(low)
    except FileError as e:
        _fail(str(e))

    def run_at(rate: float) -> RunResult:
        options = replace(given.options, run_id=secrets.token_hex(4))
        return _shown_run(given, given.scenario.at_rate(rate), given.clusters[0], options)

    limit = None if p99 is None else round(p99 * 1000)
    found = find_knee(run_at, low=low, high=high, p99_limit_us=limit, told=lambda step: given.console.print(step.why, markup=False))
    given.write(found)
    sys.exit(found.knee is None)


@loadtest.command("list")
def list_() -> None:
    """Scenarios that come along."""
    from rich.table import Table

    from loadtest.library import find, names

    table = Table(box=None, pad_edge=False, show_header=False)
    for name in names():
        data, _ = _read(find(name))
        table.add_row(name, " ".join(str(data.get("description", "")).split()))
    Console().print(table)


@loadtest.command()
@click.argument("scenario")
def show(scenario: str) -> None:
    """Print a scenario, to begin one's own with."""
    from loadtest.library import find

    try:
        click.echo(find(scenario).read_text(encoding="utf-8"), nl=False)
    except (FileError, OSError) as e:
        _fail(str(e))


@loadtest.command()
def schema() -> None:
    """Print the JSON Schema of scenario files."""
    from loadtest.scenario import Scenario

    click.echo(json.dumps(Scenario.model_json_schema(), indent=2))


@loadtest.command()
@click.argument("scenario")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="As `run` has it.")
def check(scenario: str, sets: Sequence[str]) -> None:
    """Check a scenario file: exit code 0 when all is right, 2 when not."""
    try:
        found = load(scenario, sets)
    except FileError as e:
        _fail(str(e))
    seconds = sum(phase.warm_up + phase.duration for phase in found.phases) + found.pause * (len(found.phases) - 1)
    click.echo(f"{found.name}: right, {len(found.phases)} phase(s), {seconds:g} s")


def _short_id(given: str | None) -> str:
    """Eight characters, which records carry: a longer id (of a Kubernetes Job, say) is shortened to the same by all drivers."""
    if given is None:
        return secrets.token_hex(4)
    return given if len(given) <= 8 else hashlib.sha256(given.encode()).hexdigest()[:8]


def load(scenario: str, sets: Sequence[str]) -> Scenario:
    """By name or path, with what `--set` gives. Raises FileError."""
    from loadtest.library import find
    from loadtest.scenario import load_scenario

    given = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise FileError(f"--set {text}: KEY=VALUE is right, such as rate=500")
        given[key] = value
    return load_scenario(find(scenario), given)


def _read(path: Path) -> Any:
    from configfile.load import read
    from loadtest.scenario import EXAMPLE

    return read(path, EXAMPLE, kind="key")


def _shown_run(given: Given, scenario: Scenario, cluster: Cluster, options: Options) -> RunResult:
    from loadtest.results.terminal import View
    from loadtest.run import run_once

    with View(given.console, scenario.name, cluster.bootstrap) as view:
        return run_once(scenario, cluster, options, view)


def _writable(json: str | None, html: Path | None) -> None:
    """Before the run: afterwards it would be lost. Raises FileError."""
    for option, path in (("--json", None if json in (None, "-") else Path(str(json))), ("--html", html)):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise FileError(f"{option} {path}: is not a file in a folder that exists")


def _fail(message: str, code: int = 2) -> NoReturn:
    for line in message.splitlines():
        click.echo(f"kafka-quota-proxy loadtest: {line}", err=True)
    sys.exit(code)
