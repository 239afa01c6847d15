"""Job: the whole report, from the logs to the out folder.

In: `Options`. Out: tables, a page with its plots and `summary.json` in the out folder, and the `Report`. This file is also what
`spark-submit` runs: it takes the options of `kafka-quota-proxy report` and the session of its submitter. Left to others: the
command line (`reports.cli`), each step (`reports.read`, `absorb`, `whole`, `write`, `summary`, `render`), going on for ever
(`reports.follow`).
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from reports.absorb import Place, absorb
from reports.charge import Prices, write_csv
from reports.filling import Filling
from reports.folder import check_logs, log_size
from reports.forecast import models
from reports.kafka import is_kafka, packages
from reports.parquet import write_table
from reports.quotas.file import QuotaFile, read_quotas
from reports.read import load
from reports.render.page import page
from reports.render.plots import write_plots
from reports.session import small_queries, spark_session
from reports.summary.build import summarize
from reports.summary.model import Report
from reports.tables import NAMES
from reports.together import together
from reports.whole import Made, Wanted, whole_tables
from reports.write import Staging, replacing

PAGE = "report.html"
SUMMARY = "summary.json"
CHARGEBACK = "chargeback.csv"
PLOTS = "plots"
OUTCOME = (*NAMES, PLOTS, CHARGEBACK, SUMMARY, PAGE)
"""Everything in the out folder that is a report's."""

QUICK_BYTES = 64 * 2**20
"""Logs of fewer bytes are read by a Spark that is made for little work."""

Say = Callable[[str], None]
"""Told each step as it begins."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the person asked for; `bucket` in seconds, `memory` of the driver as Java has it. `made` is the time now."""

    logs: str
    out: Path
    made: datetime
    master: str = "local[*]"
    memory: str = "1500m"
    bucket: int | None = None
    incremental: bool = False
    quotas: Path | None = None
    what_if: Path | None = None
    prices: Prices = field(default_factory=Prices)
    settings: Mapping[str, str] | None = None

    def wanted(self) -> Wanted:
        """Its files, read."""
        return Wanted(_quotas(self.quotas), _quotas(self.what_if), self.prices)


def make_report(options: Options, say: Say) -> Report:
    """Read the logs and replace the report in the out folder, or add to it.

    Raises:
        ReportError: the logs, the out folder, a file, the bucket or Spark is not fit for it; the out folder is as it was.
    """
    check_logs(options.logs)
    connector = packages(options.logs)
    wanted = options.wanted()
    with replacing(options.out, OUTCOME) as staging, ThreadPoolExecutor(1) as aside:
        say("starting Spark")
        aside.submit(models.load)  # while Spark starts
        size = log_size(options.logs)
        quick = size is not None and size < QUICK_BYTES
        settings = {**connector, **(options.settings or {})}
        with spark_session(options.master, quick=quick, memory=options.memory, settings=settings) as spark:
            say(f"reading {options.logs}")
            place = place_of(options, staging, rereads=not is_kafka(options.logs))
            load(spark, options.logs, options.made, place)
            report = make_from_stored(spark, place, options, wanted, say)
            drawn = aside.submit(draw, report, staging.path)  # while Spark stops
        drawn.result()
        return report


def place_of(options: Options, staging: Staging, *, rereads: bool = True) -> Place:
    """Where the report is made. It adds to the last one only where there is one."""
    adds = options.incremental and bool(staging.kept.get("lengths")) and (options.out / "lines").exists()
    if not adds:
        staging.kept.clear()
    return Place(options.out, staging, options.logs, adds, rereads)


def make_from_stored(spark: SparkSession, place: Place, options: Options, wanted: Wanted, say: Say) -> Report:
    """The report of the lines that stand in the staging folder (`reports.absorb.store_lines`), all but what `draw` makes of it."""
    staging = place.staging.path
    say("summing")
    absorbed = absorb(spark, place, options.bucket)
    tables = dict(absorbed.tables)
    say("forecasting")
    fillings: tuple[Filling, ...] = ()
    with together() as pool:
        made = [
            pool.submit(_write_whole, spark, staging / name, make) for name, make in whole_tables(spark, absorbed, wanted).items()
        ]
        for one in made:
            name, table, found = one.result()
            tables[name] = table
            fillings = fillings or found
    say("writing the page")
    with small_queries(spark):
        report = summarize(tables, absorbed, fillings, wanted, options)
        write_csv(tables["chargeback"], staging / CHARGEBACK)
    spark.catalog.clearCache()  # a session that follows the logs makes report after report
    return report


def draw(report: Report, folder: Path) -> None:
    """The report as a page, its plots and values."""
    write_plots(report, folder / PLOTS)
    (folder / SUMMARY).write_text(json.dumps(asdict(report), indent=1, default=_plain), encoding="utf-8")
    (folder / PAGE).write_text(page(report), encoding="utf-8")


def _write_whole(spark: SparkSession, path: Path, make: Callable[[], Made]) -> tuple[str, DataFrame, tuple[Filling, ...]]:
    """Make a table and write it: its name, what was written, and what was forecast."""
    table, found = make()
    write_table(table, path)
    return path.name, spark.read.schema(table.schema).parquet(f"file:{path.absolute()}"), found


def _quotas(path: Path | None) -> QuotaFile | None:
    return None if path is None else read_quotas(path)


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    raise TypeError(f"no JSON for {value!r}")


if __name__ == "__main__":
    from reports.cli import report

    report()
