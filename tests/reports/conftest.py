"""Fixtures of the report's tests: one Spark for all of them, and a way to make a whole report with it."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from reports.summary.model import Report


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """A real Spark. It compiles quickly rather than well: tests are many queries over a few rows."""
    from reports.session import spark_session

    with spark_session("local[2]", size=0) as session:
        yield session


@dataclass(frozen=True)
class Made:
    """A report that was made: its values and its folder."""

    spark: "SparkSession"
    report: "Report"
    out: Path

    def table(self, name: str) -> "DataFrame":
        """A table as a person would read it."""
        return self.spark.read.parquet(str(self.out / name))

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of a table, in order."""
        return sorted((tuple(row) for row in self.table(name).select(*columns).collect()), key=repr)

    @property
    def page(self) -> str:
        """The page."""
        return (self.out / "report.html").read_text(encoding="utf-8")


def make_with(spark: "SparkSession", logs: Path | str, out: Path, *, slides: bool = False, **options: Any) -> Made:
    """Make a report of `logs`, a folder or a URI, in `out` with a Spark that runs already; with plots for slides, which take two
    seconds, if asked."""
    from reports import pipeline

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "spark_session", lambda _master, **_: nullcontext(spark))
        if not slides:
            patch.setattr("reports.render.plots.write_plots", lambda _report, folder: folder.mkdir())
        given = pipeline.Options(**{"logs": str(logs), "out": out, "made": datetime(2026, 4, 2, tzinfo=UTC)} | options)
        report = pipeline.make_report(given, lambda _: None)
    return Made(spark, report, out)


@pytest.fixture
def make(spark: "SparkSession", tmp_path: Path) -> Callable[..., Made]:
    """Make a report of the folder `logs` of the test in its folder `out`; takes what `Options` has."""
    return partial(make_with, spark, tmp_path / "logs", tmp_path / "out")
