"""Ingestion: new lines are added to the tables. A full report, an incremental one and a stream all use it.

In: lines as they were read, the existing tables. Out: in the staging folder, the lines without duplicates, and every table by day
for the days of the new lines. Other days do not change. Left to others: finding lines (`reports.read`), parsing them
(`reports.fast_parse`, `reports.parse`), tables of the whole period (`reports.period_tables`), moving all into
place (`reports.publish`).
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.errors import ReportError
from reports.fast_parse import parse_fast
from reports.line_store import (
    by_type_and_day,
    deduplicate,
    duplicates_by_day,
    sequence_counts,
    stored_schema,
    valid_lines,
    with_row_position,
)
from reports.log_files import spark_path
from reports.parallel import run_concurrently
from reports.parquet import days_in, link, read_table, write_table, write_tables
from reports.parse import Parse, parser
from reports.publish import Staging
from reports.reasons import Reason
from reports.schema import COMMON, FIELDS, UNPARSED, Kind
from reports.tables import BY_DAY, LINES, MADE_OF, OF_READING, Lengths, bucket_lengths, tables_by_day
from reports.transforms.lines import files
from reports.transforms.quarantine import quarantine

TEXTS = "file string, raw string"
"""Lines as they were read."""

_LARGEST_SUM = 2**61
"""Sums of two counts are summed too, and must fit in 64 bits."""
_SUMMED = ("usage", "decision", "producer_ids", "latency", "gap")
"""Types of lines whose counts are summed over lines."""
_SEVERAL_WRITERS = "64"
"""Files that one task may write to at a time. With too few, Spark sorts the lines first."""

_USAGE = (*COMMON, *FIELDS["usage"])
# Features of Parquet that cost more than they give here: dictionaries of numbers that are mostly different, minimum and maximum of
# texts, and statistics of their lengths.
_PARQUET_OPTIONS = {
    "parquet.size.statistics.enabled": "false",
    **{
        f"parquet.enable.dictionary#{field.name}": "false"
        for field in _USAGE
        if field.kind in (Kind.COUNT, Kind.TIME) and field.name not in ("v", "api_key")
    },
    **{
        f"parquet.column.statistics.enabled#{name}": "false"
        for name in ("file", *[field.name for field in _USAGE if field.kind is Kind.TEXT])
    },
}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a report is written: first into `staging`, from there into `out`. File names are relative to `logs`.

    `incremental`: the report adds to the one in `out`. `replaces_files`: each file is read from its start, so that its counts
    replace those of the last run. `known` is what the last report left for this one.
    """

    out: Path
    staging: Staging
    logs: str
    incremental: bool = False
    replaces_files: bool = True
    known: Mapping[str, Any] = field(default_factory=dict)

    @property
    def incoming(self) -> Path:
        """Where lines are stored first, copies included."""
        return self.staging.path / "incoming"


@dataclass(frozen=True, slots=True)
class Ingested:
    """`tables` by day and of what was read, of the whole period; `lines`, each once, of the whole period."""

    tables: Mapping[str, DataFrame]
    lines: DataFrame
    lengths: Lengths


def store_lines(lines: DataFrame, now: datetime, destination: Destination, damaged: DataFrame | None = None) -> None:
    """Parse lines (`file`, `raw`) and write them as they come; `damaged` are bad rows besides. May be called again after it failed.

    Lines that `parse_fast` leaves are first written as text and then parsed by a second query: the code that Spark generates for
    every type of line takes longer to compile than the usual lines take to parse.
    """
    spark = lines.sparkSession
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", _SEVERAL_WRITERS)
    parsed_fast = parse_fast(lines, now)
    with run_concurrently() as pool:
        prepared = pool.submit(parser, now)  # while the usual lines are parsed
        _write_lines(parsed_fast, destination.incoming, "overwrite")
    store_unparsed(spark, now, destination, damaged, prepared.result)


def store_unparsed(
    spark: SparkSession,
    now: datetime,
    destination: Destination,
    damaged: DataFrame | None = None,
    parse: Callable[[], Parse] | None = None,
) -> None:
    """Parse with care the lines that were left as text, and write them beside the others."""
    unparsed = destination.incoming / f"type={UNPARSED}"
    if not unparsed.exists() and damaged is None:
        return
    texts = spark.read.schema(TEXTS).parquet(spark_path(str(unparsed))) if unparsed.exists() else spark.createDataFrame([], TEXTS)
    parsed = parse()(texts) if parse else parser(now)(texts)
    if damaged is not None:
        parsed = parsed.unionByName(damaged, allowMissingColumns=True)
    _write_lines(by_type_and_day(parsed), destination.incoming, "append")
    shutil.rmtree(unparsed, ignore_errors=True)


def put_large_counts_aside(spark: SparkSession, destination: Destination) -> None:
    """Move lines with counts so large that the sum of all lines might not fit in 64 bits into quarantine.

    For logs whose sums did not fit: no such sums are true, so that lines far above what all can have are what is wrong.
    """
    folder = destination.incoming
    stored = _stored(spark, folder)
    most = _LARGEST_SUM // max(1, stored.count())
    summed = [field for name in _SUMMED for field in FIELDS[name]]
    counts = {field.name: F.col(field.name) for field in summed if field.kind is Kind.COUNT}
    counts |= {field.name: F.array_max(F.map_values(field.name)) for field in summed if field.kind is Kind.COUNTS}
    at_fault = F.coalesce(*[F.when(value > most, F.lit(name)) for name, value in counts.items()])
    bad = F.col("type").isin(list(_SUMMED)) & at_fault.isNotNull()
    fields = [name for name in stored.columns if name not in ("file", "reason", "field", "raw", "date")]
    judged = stored.select(
        "file",
        F.when(bad, F.lit(Reason.TOO_LARGE.value)).otherwise(F.col("reason")).alias("reason"),
        F.when(bad, at_fault).otherwise(F.col("field")).alias("field"),
        F.when(bad, F.to_json(F.struct(*fields))).otherwise(F.col("raw")).alias("raw"),
        *[F.when(~bad, F.col(name)).alias(name) for name in fields],
    )
    believed = folder.with_name(f"{folder.name}-believed")
    _write_lines(by_type_and_day(judged), believed, "overwrite")
    shutil.rmtree(folder)
    believed.rename(folder)


def _write_lines(rows: DataFrame, target: Path, mode: str) -> None:
    writer = rows.write.mode(mode).options(**_PARQUET_OPTIONS).partitionBy("type", "date")
    writer.parquet(f"file:{target.absolute()}")


def ingest(spark: SparkSession, destination: Destination, bucket: int | None) -> Ingested:
    """Make the tables of what `store_lines` wrote; `bucket` is the wanted length of the tables' buckets in seconds.

    Raises:
        ReportError: the bucket does not fit the logs, or the tables that are there.
    """
    incoming = _stored(spark, destination.incoming)
    days = {path.name for path in destination.incoming.glob("type=*/date=[0-9]*")}
    both = valid_lines(with_row_position(incoming))
    if destination.incremental:
        both = both.unionByName(with_row_position(_stored(spark, destination.out / LINES)).where(F.col("date").isin(_dates(days))))
    counted = sequence_counts(both).persist()
    # All that is asked of `both` is asked here, as its files move.
    with run_concurrently() as pool:
        read = pool.submit(_of_reading, spark, incoming, destination)
        counted.count()
        lengths, of_reading = _lengths(both, counted, destination, bucket), read.result()
    _keep_lines(destination, both, counted, days)
    lines = _stored(spark, destination.staging.path / LINES)
    present = {folder.name.removeprefix("type=") for folder in (destination.staging.path / LINES).glob("type=*")}
    empty = [name for name, kind in MADE_OF.items() if kind not in present]
    by_day = write_tables(tables_by_day(lines, counted, lengths), destination.staging.path, empty)
    if destination.incremental:
        destination.staging.days |= dict.fromkeys(BY_DAY, sorted(days))
    tables = {name: _whole_table(spark, destination, name, table, days) for name, table in {**by_day, **of_reading}.items()}
    return Ingested(tables, _all_lines(spark, destination, days), lengths)


def _stored(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(stored_schema()).parquet(spark_path(str(folder)))


def _dates(days: set[str]) -> list[object]:
    return [F.lit(day.removeprefix("date=")).cast("date") for day in sorted(days)]


def _lengths(lines: DataFrame, counted: DataFrame, destination: Destination, bucket: int | None) -> Lengths:
    kept = destination.staging.kept.get("lengths")
    if destination.incremental and kept:
        # A report of an older version did not keep the logs' interval.
        interval = kept[2] if len(kept) > 2 else bucket_lengths(lines, None, 0.0).interval
        lengths = Lengths(kept[0], kept[1], interval)
        destination.staging.kept["lengths"] = [lengths.tables, lengths.rates, lengths.interval]
        if bucket not in (None, lengths.tables):
            raise ReportError(
                f"--bucket of {bucket} s differs from the buckets of the tables in the out folder, which are {lengths.tables} s"
            )
        return lengths
    row = counted.agg((F.unix_seconds(F.max("last")) - F.unix_seconds(F.min("first"))).alias("span")).first()
    lengths = bucket_lengths(lines, bucket, float((row and row["span"]) or 0))
    destination.staging.kept["lengths"] = [lengths.tables, lengths.rates, lengths.interval]
    return lengths


def _keep_lines(destination: Destination, both: DataFrame, counted: DataFrame, days: set[str]) -> None:
    """Put the lines of these days into the staging folder, each once; the files of a day without copies stay what they are."""
    target = destination.staging.path / LINES
    target.mkdir()
    copies = duplicates_by_day(counted)
    copied = {f"date={day}" for day in copies}
    if copied:
        kept = deduplicate(both.where(F.col("date").isin(list(copies))), counted, sum(copies.values()))
        _write_lines(kept, target, "overwrite")
    for folder in _day_folders(destination.incoming, days - copied):
        (target / folder.parent.name).mkdir(exist_ok=True)
        folder.rename(target / folder.parent.name / folder.name)
    if destination.incremental:
        for folder in _day_folders(destination.out / LINES, days - copied):
            link(folder, target / folder.parent.name / folder.name)
        folders = _day_folders(target, days) + _day_folders(destination.out / LINES, days)
        destination.staging.days[LINES] = sorted({f"{folder.parent.name}/{folder.name}" for folder in folders})


def _day_folders(lines: Path, days: set[str]) -> list[Path]:
    return [folder for folder in lines.glob("type=*/date=*") if folder.name in days]


def _of_reading(spark: SparkSession, incoming: DataFrame, destination: Destination) -> dict[str, DataFrame]:
    """The tables about what was read, with what is there of files that were not read now."""
    new = {"files": files(incoming, destination.logs), "quarantine": quarantine(incoming, destination.logs)}
    if destination.incremental:
        read_now = F.broadcast(new["files"].select("file").distinct())
        for name in OF_READING:
            old = read_table(spark, new[name].schema, (destination.out / name, None))
            left = old.join(read_now, on="file", how="left_anti") if destination.replaces_files else old
            new[name] = left.unionByName(new[name])
    sums = new["files"].groupBy("file", "proxy", "boot").agg(*[F.sum(name).alias(name) for name in ("lines", "quarantined")])
    new["files"] = sums
    for name, table in new.items():
        write_table(table, destination.staging.path / name)
    return new


def _whole_table(spark: SparkSession, destination: Destination, name: str, table: DataFrame, days: set[str]) -> DataFrame:
    new = (destination.staging.path / name, None)
    if not destination.incremental or name not in BY_DAY:
        return read_table(spark, table.schema, new)
    return read_table(spark, table.schema, new, (destination.out / name, days_in(destination.out / name) - days))


def _all_lines(spark: SparkSession, destination: Destination, days: set[str]) -> DataFrame:
    lines = _stored(spark, destination.staging.path / LINES)
    if not destination.incremental:
        return lines
    return lines.unionByName(_stored(spark, destination.out / LINES).where(~F.col("date").isin(_dates(days))))
