"""Job: the whole report, from the logs folder to the out folder.

In: folders, a Spark master, the length of buckets. Out: tables, a page and `summary.json` in the out folder, and the `Report`.
This file is also what `spark-submit` runs: it takes the options of `kafka-quota-proxy report` and the session of its submitter.
Left to others: the command line (`reports.cli`), each step (`reports.read`, `tables`, `write`, `summary`, `render`).
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from reports.folder import check_logs, log_size
from reports.read import load
from reports.render.page import page
from reports.render.text import counted
from reports.session import spark_session
from reports.summary.build import summarize
from reports.summary.model import Report
from reports.tables import NAMES, bucket_length, make_tables
from reports.write import replacing, write_tables

PAGE = "report.html"
SUMMARY = "summary.json"

QUICK_BYTES = 64 * 2**20
"""Logs of fewer bytes are read by a Spark that is made for little work."""

Say = Callable[[str], None]
"""Told each step as it begins."""


def make_report(logs: str, out: Path, *, master: str, bucket: int | None, made: datetime, say: Say) -> Report:
    """Read all of `logs` and replace the report in `out`.

    `bucket` is the length of the tables' buckets in seconds; None for that of the logs' intervals. `made` is the time now.

    Raises:
        ReportError: the logs, the out folder, the bucket or Spark is not fit for it; `out` is as it was.
    """
    check_logs(logs)
    with replacing(out, [*NAMES, SUMMARY, PAGE]) as staging:
        say("starting Spark")
        size = log_size(logs)
        with spark_session(master, quick=size is not None and size < QUICK_BYTES) as spark:
            say(f"reading {logs}")
            parsed = load(spark, logs)
            say(f"summing {counted(parsed.count(), 'line')}")
            seconds = bucket_length(parsed, bucket)
            tables = write_tables(spark, make_tables(parsed, logs, seconds), staging)
            say("writing the page")
            report = summarize(tables, parsed, logs, seconds, made)
        (staging / SUMMARY).write_text(json.dumps(asdict(report), indent=1, default=_time), encoding="utf-8")
        (staging / PAGE).write_text(page(report), encoding="utf-8")
    return report


def _time(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    raise TypeError(f"no JSON for {value!r}")


if __name__ == "__main__":
    from reports.cli import report

    report()
