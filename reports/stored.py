"""Tables as they lie in folders, read by Arrow in parts, and sums of them: to plan a query costs more than to read a small table.

In: folders of Parquet files that Spark wrote. Out: rows as Python has them, summed by Arrow part by part, so that memory does not
grow with a table. Left to others: which tables there are (`reports.tables`), their sums by day, which are Spark's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.arrow_rows import arrow_schema
from reports.log_files import spark_path

Row = Mapping[str, Any]
Part: TypeAlias = "pa.RecordBatch | pa.Table"
"""Rows of a table."""
Expression = Callable[[Part], Any]
"""What is made of the columns of a part: one column."""

_PART_ROWS: Final = 1 << 18
LARGEST_SUM: Final = 2.0**63
"""What does not fit in 64 bits."""
_ORDER: Final = "_order"


@dataclass(frozen=True, slots=True)
class Stored:
    """A table. `folders`: each with the days of it that count (`date=2026-03-01`), all of them for None."""

    schema: t.StructType
    folders: tuple[tuple[Path, frozenset[str] | None], ...]

    def frame(self, spark: SparkSession) -> DataFrame:
        """The table for Spark."""
        parts = [self._days(spark, folder, days) for folder, days in self.folders if folder.exists()]
        return reduce(DataFrame.unionByName, parts)

    def _days(self, spark: SparkSession, folder: Path, days: Iterable[str] | None) -> DataFrame:
        table = spark.read.schema(self.schema).parquet(spark_path(str(folder)))
        if days is None:
            return table
        return table.where(F.col("date").isin([F.lit(day.removeprefix("date=")).cast("date") for day in days]))

    def parts(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of the table, in parts of bounded size, days in their order; one part at least. Rows of a file keep their
        order."""
        kinds = arrow_schema(t.StructType([self.schema[name] for name in columns]))
        held: list[pa.Table] = [kinds.empty_table()]
        rows = 0
        for day, file in sorted(self._files(), key=lambda item: (item[0] or "", item[1])):
            for batch in _batches(file, day, kinds):
                held.append(batch)
                rows += batch.num_rows
                if rows >= _PART_ROWS:
                    yield _one_batch(pa.concat_tables(held))
                    held, rows = [], 0
        if held:
            yield _one_batch(pa.concat_tables(held))

    def _files(self) -> Iterator[tuple[str | None, Path]]:
        for folder, days in self.folders:
            yield from ((None, file) for file in folder.glob("*.parquet") if days is None)
            for day in folder.glob("date=*"):
                if days is None or day.name in days:
                    yield from ((day.name, file) for file in day.glob("*.parquet"))

    def rows(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Rows of a table that is not large."""
        for part in self.parts(columns):
            yield from part.to_pylist()


def _batches(file: Path, day: str | None, kinds: pa.Schema) -> Iterator[pa.Table]:
    with pyarrow.parquet.ParquetFile(file) as opened:
        there = [name for name in kinds.names if name in opened.schema_arrow.names]
        for batch in opened.iter_batches(_PART_ROWS, columns=there, use_threads=False):
            yield pa.Table.from_arrays([_column(batch, field, day) for field in kinds], schema=kinds)


def _column(batch: pa.RecordBatch, field: pa.Field, day: str | None) -> pa.Array:
    """A column of a file; where it is not in the file, the day of its folder, or nulls."""
    if field.name in batch.schema.names:
        return batch[field.name].cast(field.type)
    value = day.removeprefix("date=") if field.name == "date" and day else None
    return pa.repeat(pa.scalar(value).cast(field.type), batch.num_rows)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def number_of_rows(part: Part) -> pa.Array:
    """An expression whose sum is the number of rows."""
    return pa.repeat(pa.scalar(1, pa.int64()), part.num_rows)


def of_api(api: str, column: str) -> Expression:
    """An expression: the column where the row is about this API, else 0."""
    return lambda part: pc.if_else(pc.equal(part["api"], api), part[column], 0)


def sums(
    parts: Iterable[Part], keys: Mapping[str, str | Expression], figures: Mapping[str, tuple[str | Expression, str]]
) -> list[dict[str, Any]]:
    """The rows of `summed`, as Python has them."""
    found: list[dict[str, Any]] = summed(parts, keys, figures).to_pylist()
    return found


def summed(
    parts: Iterable[Part], keys: Mapping[str, str | Expression], figures: Mapping[str, tuple[str | Expression, str]]
) -> pa.Table:
    """`figures` for each value of `keys`, in no order: name -> a column and sum, min or max. Without keys one row. A figure is null
    where there was nothing but nulls.

    Raises:
        OverflowError: a sum does not fit in 64 bits.
    """
    columns = {name: column for name, (column, _) in figures.items()}
    ways = {name: way for name, (_, way) in figures.items()}
    made = [_grouped(_prepared(part, keys, columns), list(keys), ways) for part in parts]
    return _grouped(pa.concat_tables(made), list(keys), ways)


def with_columns_of(rows: pa.Table, other: pa.Table, keys: Sequence[str]) -> pa.Table:
    """`rows` with the columns of `other` that are not `keys`, null where it has no row of the same `keys`, which are texts, and
    there once at most. Nulls are the same here; Arrow's own joins take them for different."""
    place = pc.index_in(_text_of(rows, keys), value_set=_text_of(other, keys))
    for name in other.column_names:
        if name not in keys:
            rows = rows.append_column(name, other[name].take(place))
    return rows


def _text_of(table: pa.Table, keys: Sequence[str]) -> pa.Array:
    """One text for the texts of each row, another one for other texts."""
    texts = []
    for name in keys:
        length = pc.utf8_length(table[name]).cast(pa.string())
        texts.append(pc.coalesce(pc.binary_join_element_wise(length, table[name], ":"), pa.scalar("-")))
    return pc.binary_join_element_wise(*texts, "").combine_chunks()


def latest(
    parts: Iterable[pa.RecordBatch], keys: Mapping[str, str | Expression], order: str | Expression, columns: Sequence[str]
) -> list[dict[str, Any]]:
    """For each value of `keys` the `columns` of the row with most of `order`; rows where that is null do not count."""
    wanted = {_ORDER: order, **{name: name for name in columns}}
    made = [_last(_prepared(part, keys, wanted), list(keys), columns) for part in parts]
    found: list[dict[str, Any]] = _last(pa.concat_tables(made), list(keys), columns).to_pylist()
    return found


def largest(parts: Iterable[pa.RecordBatch], order: Sequence[tuple[str | Expression, str]], count: int) -> list[dict[str, Any]]:
    """The first `count` rows in an order of columns, each ascending or descending; nulls come first."""
    columns = {f"{_ORDER}{number}": column for number, (column, _) in enumerate(order)}
    ways = list(zip(columns, (way for _, way in order), strict=True))
    made = [_first(_prepared(part, {name: name for name in part.column_names}, columns), ways, count) for part in parts]
    found: list[dict[str, Any]] = _first(pa.concat_tables(made), ways, count).drop_columns(list(columns)).to_pylist()
    return found


def _prepared(part: Part, keys: Mapping[str, str | Expression], columns: Mapping[str, str | Expression]) -> pa.Table:
    return pa.table({name: part[one] if isinstance(one, str) else one(part) for name, one in {**keys, **columns}.items()})


def _grouped(table: pa.Table, keys: list[str], ways: Mapping[str, str]) -> pa.Table:
    for name, way in ways.items():
        if way == "sum" and pa.types.is_integer(table[name].type):
            _check_sum(table, keys, name)
    found = table.group_by(keys).aggregate(list(ways.items()))
    columns = [found[f"{name}_{way}"] for name, way in ways.items()]
    return pa.table([*(found[key] for key in keys), *columns], names=[*keys, *ways])


def _check_sum(table: pa.Table, keys: list[str], name: str) -> None:
    """Arrow's sums begin again from below where they are too large."""
    values = table[name].cast(pa.float64(), safe=False)
    if (pc.sum(values).as_py() or 0.0) < LARGEST_SUM / 2:
        return
    each = pa.table([*(table[key] for key in keys), values], names=[*keys, name]).group_by(keys).aggregate([(name, "sum")])
    if (pc.max(each[f"{name}_sum"]).as_py() or 0.0) >= LARGEST_SUM:
        raise OverflowError(f"sums of {name} do not fit in 64 bits")


def _last(table: pa.Table, keys: list[str], columns: Sequence[str]) -> pa.Table:
    ordered = table.filter(pc.is_valid(table[_ORDER])).sort_by(_ORDER)
    keep = pc.ScalarAggregateOptions(skip_nulls=False)
    names = [_ORDER, *columns]
    found = ordered.group_by(keys, use_threads=False).aggregate([(name, "last", keep) for name in names])
    return pa.table([*(found[key] for key in keys), *(found[f"{name}_last"] for name in names)], names=[*keys, *names])


def _first(table: pa.Table, order: Sequence[tuple[str, str]], count: int) -> pa.Table:
    return in_order(table, order).slice(0, count)


def in_order(table: pa.Table, order: Sequence[tuple[str, str]]) -> pa.Table:
    """The rows in an order of columns, nulls first."""
    # How Arrow is told where nulls go depends on its version.
    keys = {}
    for number, (name, way) in enumerate(order):
        keys[f"valid {number}"] = pc.is_valid(table[name]).cast(pa.int8()), "ascending"
        keys[f"value {number}"] = table[name], way
    sorted_by = pa.table({name: column for name, (column, _) in keys.items()})
    return table.take(pc.sort_indices(sorted_by, [(name, way) for name, (_, way) in keys.items()]))
