"""Tables as Parquet files: writing them.

In: DataFrames, folders. Out: one folder a table, with one folder a day where it has a `date`. Left to others: which tables there
are (`reports.tables`), reading them (`reports.stored`), how they take the place of older ones (`reports.publish`).
"""

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from reports.arrow_rows import arrow_schema, write_file, write_no_rows
from reports.parallel import run_concurrently


def write_tables(tables: Mapping[str, Callable[[], DataFrame]], folder: Path, empty: Collection[str] = ()) -> dict[str, DataFrame]:
    """Make each table and write it below `folder`, some at a time, the first ones first; the tables as they were made. Those known
    to be `empty` are not computed."""

    def write(name: str, make: Callable[[], DataFrame]) -> DataFrame:
        table = make()
        if name in empty:
            write_no_rows(table.schema, folder / name)
        else:
            write_table(table, folder / name)
        return table

    with run_concurrently() as pool:
        written = {name: pool.submit(write, name, make) for name, make in tables.items()}
        return {name: one.result() for name, one in written.items()}


def write_table(table: DataFrame, path: Path) -> t.StructType:
    """Write one table, with one folder a day where it has a `date`; its schema."""
    target = f"file:{path.absolute()}"
    if "date" not in table.columns:
        table.coalesce(1).write.parquet(target)
        return table.schema
    # Each file in the order of time. As many to a day as there are tasks, which adaptive execution keeps few.
    order = [name for name in ("start", "at") if name in table.columns]
    table.sortWithinPartitions("date", *order).write.partitionBy("date").parquet(target)
    if not any(path.glob("date=*")):
        write_no_rows(table.schema, path)  # it has no day
    return table.schema


def write_rows(rows: pa.Table, schema: t.StructType, path: Path) -> t.StructType:
    """Write few rows that Python has, with one folder a day where they have a `date`; their schema."""
    if not rows.num_rows:
        write_no_rows(schema, path)
        return schema
    wanted = rows.select(schema.names).cast(arrow_schema(schema))
    if "date" not in schema.names:
        write_file(wanted, path)
        return schema
    for day in pc.unique(wanted["date"]):
        write_file(wanted.filter(pc.equal(wanted["date"], day)).drop_columns("date"), path / f"date={day}")
    return schema


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
