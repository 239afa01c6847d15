"""The steps of a report, from the logs to the out folder.

In: `Options`. Out: tables, a page with its plots and `summary.json` in the out folder, and the `Report`. Left to others: the
command line (`reports.cli`), each step (`reports.read`, `ingest`, `period_tables`, `publish`, `summary`, `render`), updating
the report until it is stopped (`reports.follow`).
"""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from reports.chargeback import Prices, write_csv
from reports.errors import ReportError
from reports.ingest import Destination, ingest, put_large_counts_aside
from reports.java import Java
from reports.kafka import is_kafka, packages
from reports.log_files import check_logs, is_local, log_size
from reports.period_tables import Inputs, forecasts, write_forecasts, write_period_tables
from reports.publish import Staging, replacing
from reports.quotas.limits import QuotaFile
from reports.read import FAILURES, load, parse_local
from reports.session import is_of_this_machine, spark_session
from reports.summary.build import summarize
from reports.summary.model import Report
from reports.tables import NAMES
from reports.unchanged import keep_asked, report_of_last_run

PAGE = "report.html"
SUMMARY = "summary.json"
CHARGEBACK = "chargeback.csv"
PLOTS = "plots"
OUTCOME = (*NAMES, PLOTS, CHARGEBACK, SUMMARY, PAGE)
"""Everything in the out folder that is a report's."""

_OF_QUOTAS = ("quotas", "what_if")
"""Tables that are there only where quotas were given."""

Progress = Callable[[str], None]
"""Called with the name of each step when it begins."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for; `bucket` in seconds, `memory` of the driver as Java has it. `made` is the time now."""

    logs: str
    out: Path
    made: datetime
    master: str = "local[*]"
    memory: str = "800m"
    bucket: int | None = None
    incremental: bool = False
    quotas: Path | None = None
    what_if: Path | None = None
    prices: Prices = field(default_factory=Prices)
    settings: Mapping[str, str] | None = None
    note: str = ""
    """A sentence for the top of the page."""

    def inputs(self) -> Inputs:
        """The quota files, read, and the prices."""
        return Inputs(_quotas(self.quotas), _quotas(self.what_if), self.prices)


def make_report(options: Options, progress: Progress, java: Java | None = None) -> Report:
    """Read the logs and replace the report in the out folder, or add to it; `java` was started for it, or None.

    Raises:
        ReportError: the logs, the out folder, a file, the bucket or Spark cannot be used; the out folder is unchanged.
    """
    check_logs(options.logs)
    connector = packages(options.logs)
    inputs = options.inputs()
    with replacing(options.out, OUTCOME) as staging, ThreadPoolExecutor(2) as aside:
        unchanged = make_again(options, inputs, staging)
        if unchanged is not None:
            progress("nothing is new: the tables stay as they are")
            return unchanged
        progress("starting Spark")
        # Both while Spark starts.
        destination = destination_of(options, staging, replaces_files=not is_kafka(options.logs))
        parsed = aside.submit(parse_ahead, options, destination)
        aside.submit(_import_ahead)
        size = log_size(options.logs)
        settings = {**connector, **(options.settings or {})}
        with spark_session(options.master, size=size, memory=options.memory, settings=settings, java=java) as spark:
            progress(f"reading {options.logs}")
            report = read_and_make(spark, destination, options, inputs, progress, parsed=parsed.result())
            drawn = aside.submit(draw, report, staging.path)  # while Spark stops
        drawn.result()
        return report


def make_again(options: Options, inputs: Inputs, staging: Staging) -> Report | None:
    """The last report as of now, where there is nothing new to read: its page and values are made again, and nothing else."""
    kept = [*(name for name in NAMES if name not in _OF_QUOTAS), PLOTS, CHARGEBACK]
    if not options.incremental or not all((options.out / name).exists() for name in kept):
        return None
    report = report_of_last_run(options, options.bucket, inputs, staging, options.out / SUMMARY)
    if report is not None:
        staging.keep([name for name in OUTCOME if name not in (PAGE, SUMMARY)])
        write_page(report, staging.path)
    return report


def destination_of(options: Options, staging: Staging, *, replaces_files: bool = True) -> Destination:
    """Where the report is written. It adds to the last report only if there is one."""
    adds = options.incremental and bool(staging.kept.get("lengths")) and (options.out / "lines").exists()
    if not adds:
        staging.kept.clear()
    return Destination(options.out, staging, options.logs, adds, replaces_files, dict(staging.kept))


def parse_ahead(options: Options, destination: Destination) -> bool:
    """Whether the logs are parsed now, all that can be without Spark; it may start meanwhile."""
    return is_local(options.logs) and is_of_this_machine(options.master) and parse_local(options.logs, options.made, destination)


def read_and_make(
    spark: SparkSession, destination: Destination, options: Options, inputs: Inputs, progress: Progress, *, parsed: bool
) -> Report:
    """Read the logs and make the report of them, all but what `draw` makes of it; `parsed` is what `parse_ahead` says. Where their
    sums do not fit in 64 bits, it is made once more without the lines whose counts are too large to be true."""
    load(spark, options.logs, options.made, destination, parsed=parsed)
    try:
        return make_from_stored(spark, destination, options, inputs, progress)
    except (*FAILURES, OverflowError) as error:
        if not _overflowed(error):
            raise
    progress("putting counts aside that are too large to be true")
    spark.catalog.clearCache()
    destination.staging.clear(destination.known)
    load(spark, options.logs, options.made, destination, parsed=parse_ahead(options, destination))
    put_large_counts_aside(spark, destination)
    try:
        return make_from_stored(spark, destination, options, inputs, progress)
    except (*FAILURES, OverflowError) as error:
        if not _overflowed(error):
            raise
        raise ReportError("sums of these logs and of the tables in the out folder do not fit in 64 bits") from error


def _overflowed(error: Exception) -> bool:
    return isinstance(error, OverflowError) or "ARITHMETIC_OVERFLOW" in str(error) or "long overflow" in str(error)


def make_from_stored(spark: SparkSession, destination: Destination, options: Options, inputs: Inputs, progress: Progress) -> Report:
    """The report of the lines that stand in the staging folder (`reports.ingest.store_lines`), all but what `draw` makes of it."""
    staging = destination.staging.path
    progress("summing")
    ingested = ingest(spark, destination, options.bucket)
    tables = dict(ingested.tables)
    progress("forecasting")
    tables |= write_period_tables(spark, ingested, inputs, staging)
    found = forecasts(tables, inputs)
    tables |= write_forecasts(found, staging)
    progress("writing the page")
    report = summarize(tables, ingested, found, inputs, options)
    write_csv(tables["chargeback"], staging / CHARGEBACK)
    keep_asked(destination.staging, inputs)
    spark.catalog.clearCache()  # a session that follows the logs makes report after report
    return report


def _import_ahead() -> None:
    """Import what takes a second and is needed late: matplotlib."""
    import reports.render.page  # noqa: F401


def draw(report: Report, folder: Path) -> None:
    """The report as a page, its plots and values."""
    from reports.render.plots import write_plots  # takes a second

    write_plots(report, folder / PLOTS)
    write_page(report, folder)


def write_page(report: Report, folder: Path) -> None:
    """The report as a page and as values."""
    from reports.render.page import page  # takes a second

    (folder / SUMMARY).write_text(json.dumps(asdict(report), indent=1, default=_as_json), encoding="utf-8")
    (folder / PAGE).write_text(page(report), encoding="utf-8")


def _quotas(path: Path | None) -> QuotaFile | None:
    if path is None:
        return None
    from reports.quotas.file import read_quotas  # takes a quarter of a second

    return read_quotas(path)


def _as_json(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    raise TypeError(f"no JSON for {value!r}")
