"""Command line: `kafka-quota-proxy report`.

In: options. Out: a report, progress and a summary on the terminal, an exit code: 0 made, 2 could not be made, with one line that
says why. Imports neither PySpark nor matplotlib before they are needed and known to be there. Left to others: the work
(`reports.job`).
"""

import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from reports.errors import ReportError
from reports.requirements import check_requirements

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST = 366 * 86_400


def _seconds(_ctx: click.Context, _param: click.Parameter, length: str | None) -> int | None:
    """Seconds of a length, from a second to a year."""
    if length is None:
        return None
    found = re.fullmatch(r"(\d{1,9})([smhd])", length)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 1 <= seconds <= _LONGEST:
        raise click.BadParameter(f"{length!r} is no length of time from 1s to 366d, such as 30s, 5m, 1h, 1d")
    return seconds


@click.command()
@click.option(
    "--logs", required=True, metavar="DIR", help="Folder with the usage logs of one or more proxies, searched to its depth."
)
@click.option(
    "--out", required=True, metavar="DIR", type=click.Path(path_type=Path, file_okay=False), help="Folder for the report."
)
@click.option("--master", default="local[*]", show_default=True, help="Spark master. Under spark-submit, its own master is used.")
@click.option(
    "--bucket", callback=_seconds, metavar="LENGTH", help="Length of the tables' buckets, 1m say. By default the logs' own."
)
def report(logs: str, out: Path, master: str, bucket: int | None) -> None:
    """Say who used the cluster and who was throttled, from the proxies' logs.

    Writes a page (report.html), Parquet tables and summary.json into the out folder, in place of those of the last run.
    """
    console = Console()
    try:
        check_requirements()
        from reports.job import PAGE, make_report
        from reports.render.terminal import print_report

        made = make_report(logs, out, master=master, bucket=bucket, made=datetime.now(UTC), say=partial(_say, console))
    except ReportError as error:
        click.echo(f"kafka-quota-proxy report: {' '.join(str(error).split())}", err=True)
        raise SystemExit(2) from None
    print_report(console, made, out / PAGE)


def _say(console: Console, step: str) -> None:
    console.print(Text(f"{step} …", style="dim"))
