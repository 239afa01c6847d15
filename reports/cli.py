"""The command `kafka-quota-proxy report`.

In: options. Out: a report, progress and a summary on the terminal, an exit code: 0 made; 1 made, but not one line of the logs could
be used; 2 could not be made, with one line that says why. Imports neither PySpark nor matplotlib before they are needed and known
to be there. Left to others: the work (`reports.pipeline`).
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from reports.errors import ReportError
from reports.java import SUBMITTED, Java, start_java
from reports.log_files import check_logs, check_out, is_local, log_size
from reports.requirements import check_requirements

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST = 366 * 86_400
_ARROW_POOL = "ARROW_DEFAULT_MEMORY_POOL"
_STEPS = 6
NO_VALID_LINE = 1


def _seconds(_ctx: click.Context, _param: click.Parameter, length: str | None) -> int | None:
    """Seconds of a length, from a second to a year."""
    if length is None:
        return None
    found = re.fullmatch(r"(\d{1,9})([smhd])", length)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= seconds <= _LONGEST:
        raise click.BadParameter(f"{length!r} is not a length of time from 1s to 366d, such as 30s, 5m, 1h or 1d")
    return seconds


def _memory(_ctx: click.Context, _param: click.Parameter, size: str) -> str:
    if not re.fullmatch(r"[1-9]\d{0,6}[mg]", size):
        raise click.BadParameter(f"{size!r} is not a size of memory, such as 800m or 2g")
    return size


_PRICE = click.FloatRange(min=0, max=1e9)
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.option(
    "--logs",
    required=True,
    metavar="DIR",
    help="Usage logs of one or more proxies: a folder, searched to its depth; a URI that Spark can read; kafka://HOST:PORT/TOPIC.",
)
@click.option(
    "--out", required=True, metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Folder for the report."
)
@click.option("--quotas", type=_FILE, metavar="FILE", help="Settings file with the quotas in force: adds headroom and suggestions.")
@click.option("--what-if", type=_FILE, metavar="FILE", help="Settings file with proposed quotas: replays the traffic against them.")
@click.option("--incremental", is_flag=True, help="Read only files that are new or grew, and add to the report in the out folder.")
@click.option(
    "--follow",
    callback=_seconds,
    metavar="LENGTH",
    help="Keep the tables current: look for new lines at this interval, such as 30s.",
)
@click.option("--bucket", callback=_seconds, metavar="LENGTH", help="Length of the tables' buckets, such as 1m.")
@click.option("--cost-in", type=_PRICE, default=0.0, metavar="PRICE", help="Cost of a GiB produced.")
@click.option("--cost-out", type=_PRICE, default=0.0, metavar="PRICE", help="Cost of a GiB fetched.")
@click.option(
    "--cost-stored", type=_PRICE, default=0.0, metavar="PRICE", help="Cost of a GiB stored for 30 days, replicas included."
)
@click.option("--currency", default="", metavar="NAME", help="Currency of the costs, such as EUR.")
@click.option("--note", default="", metavar="TEXT", help="A sentence for the top of the page, such as where the logs come from.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master. Under spark-submit, its own master is used.")
@click.option("--memory", default="800m", show_default=True, callback=_memory, help="Heap of the driver, as Java has it.")
@click.option("--spark-conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be given several times.")
def report(**given: Any) -> None:
    """Report from the proxies' logs when each volume fills, who fills it, and who was throttled.

    Writes a page (report.html), its plots, Parquet tables, chargeback.csv and summary.json into the out folder. They replace those
    of the last run.
    """
    console = Console()
    # Arrow's own pools keep 100 MB more of what is no longer used. It looks at this when it is imported.
    os.environ.setdefault(_ARROW_POOL, "system")
    try:
        check_requirements()
        check_out(given["out"])
        every = given.pop("follow")
        with _java_ahead(given, follows=every is not None) as java:
            from reports.follow import follow
            from reports.pipeline import PAGE, make_report
            from reports.render.terminal import print_report

            options = _options(given)
            if every is not None:
                follow(options, every, lambda text: console.print(text, style="dim", markup=False), java)
                return
            with _progress(console) as say:
                made = make_report(options, say, java)
    except ReportError as error:
        click.echo(f"kafka-quota-proxy report: {' '.join(str(error).split())}", err=True)
        raise SystemExit(2) from None
    print_report(console, made, options.out / PAGE)
    if made.first is None and made.lines.read:
        raise SystemExit(NO_VALID_LINE)


@contextmanager
def _java_ahead(given: Mapping[str, Any], *, follows: bool) -> Iterator[Java | None]:
    """Java for the report, where it is sure that it is needed and with what: it starts while Python imports what else is."""
    if SUBMITTED or given["incremental"] or not is_local(given["logs"]):
        yield None
        return
    check_logs(given["logs"])
    size = None if follows else log_size(given["logs"])
    settings = dict(_setting(text) for text in given["spark_conf"])
    with start_java(given["master"], size=size, memory=given["memory"], settings=settings) as java:
        yield java


def _options(given: dict[str, Any]) -> Any:
    from reports.chargeback import Prices
    from reports.pipeline import Options

    prices = Prices(given.pop("cost_in"), given.pop("cost_out"), given.pop("cost_stored"), given.pop("currency"))
    settings = dict(_setting(text) for text in given.pop("spark_conf"))
    return Options(made=datetime.now(UTC), prices=prices, settings=settings, **given)


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ReportError(f"--spark-conf {text} is not a setting of the form KEY=VALUE, such as spark.executor.memory=2g")
    return key, value


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[str], None]]:
    """A bar that goes on with each step; where the output is no terminal, a line for each."""
    if not console.is_terminal:
        yield lambda step: console.print(f"{step} …", style="dim", markup=False)
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=_STEPS)

        def say(step: str) -> None:
            bar.update(task, description=step, advance=1)

        yield say
