"""Few rows that Python has, as a DataFrame or as a Parquet file, without the Python process that Spark starts for a list of rows.

In: rows, their Spark schema. Out: a DataFrame that is planned as local data; Arrow's schema of a Spark schema; a Parquet file. Left
to others: what the rows are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

_TYPES: Final[dict[type[t.DataType], pa.DataType]] = {
    t.StringType: pa.string(),
    t.BooleanType: pa.bool_(),
    t.IntegerType: pa.int32(),
    t.LongType: pa.int64(),
    t.DoubleType: pa.float64(),
    t.DateType: pa.date32(),
    t.TimestampType: pa.timestamp("us", "UTC"),
}


def table_schema(text: str) -> t.StructType:
    """The schema that a text as in SQL says, such as `name string, bytes bigint`; of simple types. Spark's needs a session."""
    kinds = {kind().simpleString(): kind() for kind in _TYPES}
    return t.StructType([t.StructField(name, kinds[kind]) for name, kind in (column.split() for column in text.split(","))])


def local_frame(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: str | t.StructType) -> DataFrame:
    """`rows` as a DataFrame of `schema`, which may be a text as in SQL. Times have to have a time zone."""
    fields = schema if isinstance(schema, t.StructType) else table_schema(schema)
    columns = zip(*rows, strict=True) if rows else [()] * len(fields)
    kinds = arrow_schema(fields)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, kinds, strict=True)]
    return spark.createDataFrame(pa.Table.from_arrays(arrays, schema=kinds), fields)


def arrow_schema(schema: t.StructType) -> pa.Schema:
    """The same schema for Arrow, as Spark's Parquet files have it."""
    return pa.schema([pa.field(field.name, _arrow_type(field.dataType)) for field in schema.fields])


def release_memory() -> None:
    """Give back what Arrow keeps of the memory that it no longer uses: Java needs it."""
    pa.default_memory_pool().release_unused()


def write_file(rows: pa.Table, folder: Path) -> None:
    """One Parquet file in a folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(rows, folder / "part-00000.zstd.parquet", compression="zstd", store_schema=False)


def write_no_rows(schema: t.StructType, folder: Path) -> None:
    """A Parquet file with the columns of `schema` and no row. Without a file a table would have no columns either."""
    write_file(arrow_schema(schema).empty_table(), folder)


def _arrow_type(kind: t.DataType) -> pa.DataType:
    match kind:
        case t.StructType():
            return pa.struct(list(arrow_schema(kind)))
        case t.ArrayType():
            return pa.list_(_arrow_type(kind.elementType))
        case t.MapType():
            return pa.map_(_arrow_type(kind.keyType), _arrow_type(kind.valueType))
        case _:
            return _TYPES[type(kind)]
