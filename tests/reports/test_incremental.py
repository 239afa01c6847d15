"""A daily run: it reads what is new, makes anew what changed, and comes to what a whole run comes to."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.reports.conftest import make_with
from tests.reports.logs import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
DAY = 86_400


def files(out: Path) -> dict[str, int]:
    """Every Parquet file with a day, and which it is."""
    return {str(path.relative_to(out)): path.stat().st_ino for path in out.rglob("date=*/*.parquet")}


def test_a_daily_run_comes_to_what_a_whole_run_comes_to(spark: "SparkSession", tmp_path: Path) -> None:
    logs, out = tmp_path / "logs", tmp_path / "out"
    a = Log("proxy-a", "a1")
    a.usage(0, requests=1, request_bytes=100).usage(0, topic="t", record_bytes=90, requests=1).raw(b"torn").write(logs)
    a.usage(DAY, requests=2, request_bytes=200)
    second = list(a.lines)
    a.write(logs, 2)
    first = make_with(spark, logs, out, incremental=True)
    assert first.report.lines.read == 4
    before = files(out)

    # The second file grew, a third is new, a line of the second day came again in it.
    for line in second:
        a.raw(line)
    a.usage(DAY + 10, requests=4, request_bytes=400)
    new = a.lines[-1]
    a.write(logs, 2)
    a.raw(new).usage(2 * DAY, requests=8, request_bytes=800).raw(b"{}").write(logs, 3)
    whole = make_with(spark, logs, tmp_path / "whole")
    next(logs.glob("*000001.jsonl")).unlink()  # what was read of it stays
    daily = make_with(spark, logs, out, incremental=True)

    after = files(out)
    kept = {name for name in before if "2026-03-01" in name}
    assert kept
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}  # not even written again
    for name in ("traffic", "topics", "writers", "rates", "quarantine", "files", "entities"):
        columns = [column for column in whole.table(name).columns if column not in ("file", "raw")]
        assert daily.rows(name, *columns) == whole.rows(name, *columns), name
    assert daily.report.lines == whole.report.lines
    assert (daily.report.lines.read, daily.report.lines.duplicates, daily.report.lines.quarantined) == (8, 1, 2)
    assert daily.table("lines").count() == 5
    assert sum(size for (size,) in daily.rows("traffic", "request_bytes")) == 1500
