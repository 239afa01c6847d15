"""Tables as Parquet files: writing them.

In: DataFrames, folders. Out: one folder a table, with one folder a day where it has a `date`. Left to others: which tables there
are (`reports.tables`), reading them (`reports.stored`), how they take the place of older ones (`reports.publish`).

Spark writes a table by its tasks, each into a folder of its own first. For a table of few rows that is most of its cost: such
tables are brought here and written by Arrow.
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

FEW_LINES = 1 << 17
"""Tables made of no more lines than this are small enough to be brought here; each has a few rows a line at most."""


def write_tables(
    tables: Mapping[str, Callable[[], DataFrame]], folder: Path, empty: Collection[str] = (), *, few: bool = False
) -> dict[str, t.StructType]:
    """Make each table and write it below `folder`, some at a time, the first ones first; their schemas. Those known to be `empty`
    are not computed. `few`: as in `write_table`."""

    def write(name: str, make: Callable[[], DataFrame]) -> t.StructType:
        table = make()
        if name not in empty:
            return write_table(table, folder / name, few=few)
        write_no_rows(table.schema, folder / name)
        return table.schema

    with run_concurrently() as pool:
        written = {name: pool.submit(write, name, make) for name, make in tables.items()}
        return {name: one.result() for name, one in written.items()}


def write_table(table: DataFrame, path: Path, *, few: bool = False) -> t.StructType:
    """Write one table, with one folder a day where it has a `date`, each file in the order of time; its schema. `few`: its rows are
    so few that they are brought here."""
    order = [name for name in ("start", "at") if name in table.columns]
    if few:
        rows = table.toArrow()
        return write_rows(rows.sort_by([(name, "ascending") for name in order]) if order else rows, table.schema, path)
    target = f"file:{path.absolute()}"
    if "date" not in table.columns:
        table.coalesce(1).write.parquet(target)
        return table.schema
    # As many files to a day as there are tasks, which adaptive execution keeps few.
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
