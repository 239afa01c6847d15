"""Tables as Parquet files: writing and reading.

In: DataFrames, folders. Out: one folder a table, with one folder a day where it has a `date`. Left to others: which tables there
are (`reports.tables`), how they take the place of older ones (`reports.publish`).
"""

import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.log_files import spark_path
from reports.parallel import run_concurrently


def write_tables(tables: Mapping[str, Callable[[], DataFrame]], folder: Path, empty: Collection[str] = ()) -> dict[str, DataFrame]:
    """Make each table and write it below `folder`, some at a time, the first ones first; the tables as they were made. Those known
    to be `empty` are not computed."""

    def write(name: str, make: Callable[[], DataFrame]) -> DataFrame:
        table = make()
        if name in empty:
            _write_empty(table, folder / name)
        else:
            write_table(table, folder / name)
        return table

    with run_concurrently() as pool:
        written = {name: pool.submit(write, name, make) for name, make in tables.items()}
        return {name: one.result() for name, one in written.items()}


def write_table(table: DataFrame, path: Path) -> None:
    """Write one table, with one folder a day where it has a `date`."""
    target = f"file:{path.absolute()}"
    if "date" not in table.columns:
        table.coalesce(1).write.parquet(target)
        return
    # Each file in the order of time. As many to a day as there are tasks, which adaptive execution keeps few.
    order = [name for name in ("start", "at") if name in table.columns]
    table.sortWithinPartitions("date", *order).write.partitionBy("date").parquet(target)
    if not any(path.glob("date=*")):
        # A table without rows has no day; without a file it would have no columns either.
        _write_empty(table, path)


def _write_empty(table: DataFrame, path: Path) -> None:
    rows = table.sparkSession.createDataFrame([], table.schema)
    rows.coalesce(1).write.mode("overwrite").parquet(f"file:{path.absolute()}")


def read_table(spark: SparkSession, schema: t.StructType, *folders: tuple[Path, Iterable[str] | None]) -> DataFrame:
    """A table that lies in several folders: of each the days that are given (`date=2026-03-01`), all of them for None."""
    parts = [_days(spark, schema, folder, days) for folder, days in folders if folder.exists()]
    table = parts[0]
    for part in parts[1:]:
        table = table.unionByName(part)
    return table


def days_in(folder: Path) -> set[str]:
    """The days of a table: `date=2026-03-01`."""
    return {path.name for path in folder.glob("date=*")}


def link(source: Path, target: Path) -> None:
    """The Parquet files of one folder in another, too, without a copy where the file system can do that."""
    target.mkdir(parents=True, exist_ok=True)
    for file in source.glob("*.parquet"):
        try:
            os.link(file, target / file.name)
        except OSError:
            shutil.copy2(file, target / file.name)


def _days(spark: SparkSession, schema: t.StructType, folder: Path, days: Iterable[str] | None) -> DataFrame:
    table = spark.read.schema(schema).parquet(spark_path(str(folder)))
    if days is None:
        return table
    return table.where(F.col("date").isin([F.lit(day.removeprefix("date=")).cast("date") for day in days]))
