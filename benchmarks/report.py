"""The speed of the capacity report: `make bench-report`, or `python -m benchmarks.report --lines 10000000`.

In: how many lines. Out: lines per second of the whole report on two cores, its CPU time and memory, shuffle bytes for each byte
read; and beside it what DuckDB takes for the same parse and hourly sums in the same run, as a ratio. The logs are generated
(`benchmarks.logs`) and deleted at the end. The report runs as a user's own: the figures are of the command, Java's start included.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks.logs.duck import HOURLY, open_logs, sums
from benchmarks.logs.generate import Wanted, Written, generate
from benchmarks.logs.plan import make_plan
from loadtest.results.sampling import Sampler, Tree, watched


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a process and its children: seconds on the wall, seconds of CPU, the highest memory of all together in bytes."""

    wall: float = 0.0
    cpu: float = 0.0
    memory: int = 0


@click.command()
@click.option("--lines", default=10_000_000, show_default=True)
@click.option("--days", default=14, show_default=True)
@click.option("--tenants", default=200, show_default=True)
@click.option("--skew", default=1.1, show_default=True, help="Exponent of Zipf's law for the topics and traffic of tenants.")
@click.option("--memory", default="800m", show_default=True, help="Heap of the driver.")
@click.option("--cores", default=2, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Where the logs go. A temporary folder.")
def main(lines: int, days: int, tenants: int, skew: float, memory: str, cores: int, folder: Path | None) -> None:
    """Measure the capacity report beside DuckDB."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="bench-report-", dir=folder) as scratch:
        place = Path(scratch)
        plan = make_plan(tenants, 3, 1, skew=skew)
        console.print(f"generating {lines:,} lines of {days} days …", style="dim")
        written = generate(plan, Wanted(lines=lines, days=days), place / "logs")
        console.print(f"the report of {written.lines:,} lines, {written.text_bytes / 2**30:.2f} GiB …", style="dim")
        spark = _report(place, memory, cores)
        shuffled = _shuffled(place / "events")
        console.print("the same by DuckDB …", style="dim")
        duck = _duck(place / "logs", cores)
        console.print(_table(written, spark, duck, shuffled))


def _report(place: Path, memory: str, cores: int) -> Cost:
    (place / "events").mkdir()
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{place / 'events'}",
        "spark.eventLog.compress": "false",
    }
    options = [option for key, value in settings.items() for option in ("--spark-conf", f"{key}={value}")]
    command = [sys.executable, "-m", "proxy", "report", "--logs", str(place / "logs"), "--out", str(place / "out")]
    command += ["--master", f"local[{cores}]", "--memory", memory, *options]
    begin = time.time()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process, Sampler({"report": Tree(process.pid)}) as sampler:
        if code := process.wait():
            raise SystemExit(f"the report ended with exit code {code}")
        end = time.time()
        found = watched("report", sampler.readings("report"), begin, end)
    return Cost(end - begin, found.cpu_s, found.memory_max_bytes)


def _shuffled(events: Path) -> int:
    """Bytes that Spark's tasks wrote for others, by its event log."""
    total = 0
    for file in events.rglob("*"):
        if not file.is_file():
            continue
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                if '"Event":"SparkListenerTaskEnd"' in line:
                    metrics = json.loads(line).get("Task Metrics") or {}
                    total += metrics.get("Shuffle Write Metrics", {}).get("Shuffle Bytes Written", 0)
    return total


def _duck(logs: Path, cores: int) -> Cost:
    wall, cpu = time.monotonic(), time.process_time()
    with open_logs(logs, once=False, threads=cores) as connection:
        for name in HOURLY:
            sums(connection, name)
    return Cost(time.monotonic() - wall, time.process_time() - cpu)


def _table(written: Written, spark: Cost, duck: Cost, shuffled: int) -> Table:
    table = Table(title=f"{written.lines:,} lines, {written.text_bytes / 2**30:.2f} GiB of plain JSON", title_justify="left")
    for head in ("", "seconds", "lines/s", "CPU seconds", "CPU µs a line", "memory"):
        table.add_column(head, justify="left" if not head else "right")
    for name, cost in (("the whole report (Spark)", spark), ("parse and hourly sums (DuckDB)", duck)):
        each, memory = cost.cpu / written.lines * 1e6, f"{cost.memory / 2**20:,.0f} MiB" if cost.memory else "–"
        table.add_row(name, f"{cost.wall:.1f}", f"{written.lines / cost.wall:,.0f}", f"{cost.cpu:.0f}", f"{each:.1f}", memory)
    table.caption = (
        f"Spark to DuckDB: {spark.wall / duck.wall:.1f} by the clock, {spark.cpu / duck.cpu:.1f} in CPU; "
        f"{shuffled / written.text_bytes:.3f} bytes shuffled for each byte read"
    )
    return table


if __name__ == "__main__":
    main()
