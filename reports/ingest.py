"""Ingestion: new lines are added to the tables. A full report, an incremental one and a stream all use it.

In: lines as they were read, the existing tables. Out: in the staging folder, the lines without duplicates, and every table by day
for the days of the new lines. Other days do not change. Left to others: finding lines (`reports.read`), parsing them
(`reports.fast_parse`, `reports.parse`), tables of the whole period (`reports.period_tables`), moving all into
place (`reports.publish`).
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.arrow_rows import arrow_schema, local_frame, release_memory, write_no_rows
from reports.errors import ReportError
from reports.fast_parse import parse_fast
from reports.line_counts import (
    WRITERS,
    duplicates_by_day,
    lines_of_files,
    places_of_copies,
    seconds_told,
    sequence_counts,
    writers,
)
from reports.line_store import by_type_and_day, deduplicate, stored_schema, valid_lines, with_row_position
from reports.log_files import relative_names, spark_path
from reports.parquet import FEW_LINES, days_in, link, write_rows, write_table, write_tables
from reports.parse import parse_carefully
from reports.publish import Staging
from reports.reasons import QUARANTINED, Reason
from reports.schema import COMMON, FIELDS, UNPARSED, Kind
from reports.session import collect_garbage
from reports.stored import Part, Stored, sums
from reports.tables import BY_DAY, LINES, MADE_OF, SAMPLE, Lengths, bucket_lengths, tables_by_day
from reports.transforms.lines import FILES
from reports.transforms.quarantine import QUARANTINE, quarantine

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
    replace those of the last run, but for the `grown` ones (URIs). `known` is what the last report left for this one.
    """

    out: Path
    staging: Staging
    logs: str
    incremental: bool = False
    replaces_files: bool = True
    known: Mapping[str, Any] = field(default_factory=dict)
    grown: set[str] = field(default_factory=set)

    @property
    def incoming(self) -> Path:
        """Where lines are stored first, copies included."""
        return self.staging.path / "incoming"


@dataclass(frozen=True, slots=True)
class Ingested:
    """`tables` by day and of what was read, of the whole period; `lines`, each once, of the whole period."""

    tables: Mapping[str, Stored]
    lines: DataFrame
    lengths: Lengths
    line_folders: tuple[Path, ...]
    """The folders of `lines`, one for each type and day."""


def store_lines(lines: DataFrame, now: datetime, destination: Destination, damaged: DataFrame | None = None) -> None:
    """Parse lines (`file`, `raw`) and write them as they come; `damaged` are bad rows besides. May be called again after it failed.

    Lines that `parse_fast` leaves are first written as text and then parsed by a second query: the code that Spark generates for
    every type of line takes longer to compile than the usual lines take to parse.
    """
    spark = lines.sparkSession
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", _SEVERAL_WRITERS)
    _write_lines(parse_fast(lines, now), destination.incoming, "overwrite")
    store_unparsed(spark, now, destination, damaged)


def store_unparsed(spark: SparkSession, now: datetime, destination: Destination, damaged: DataFrame | None = None) -> None:
    """Parse with care the lines that were left as text, and write them beside the others."""
    unparsed = destination.incoming / f"type={UNPARSED}"
    if not unparsed.exists() and damaged is None:
        return
    texts = spark.read.schema(TEXTS).parquet(spark_path(str(unparsed))) if unparsed.exists() else local_frame(spark, [], TEXTS)
    parsed = parse_carefully(texts, now)
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
    days = {path.name for path in destination.incoming.glob("type=*/date=[0-9]*")}
    # All that is asked of the incoming lines is asked here, as their files move.
    of_reading = _of_reading(spark, destination)
    counted = sequence_counts(_files_by_day(destination, days))
    release_memory()
    lengths = _lengths(counted, destination, bucket)
    _keep_lines(spark, destination, counted, days)
    lines = _stored(spark, destination.staging.path / LINES)
    present = {folder.name.removeprefix("type=") for folder in (destination.staging.path / LINES).glob("type=*")}
    empty = [name for name, kind in MADE_OF.items() if kind not in present]
    few = (pc.sum(counted["all"]).as_py() or 0) <= FEW_LINES
    by_day = write_tables(tables_by_day(lines, lengths), destination.staging.path, empty, few=few)
    if not few:
        collect_garbage(spark)
    by_day["writers"] = write_rows(writers(counted), WRITERS, destination.staging.path / "writers")
    if destination.incremental:
        # A table that an older version did not make is moved as a whole, so that it is there even without a day.
        destination.staging.days |= {name: sorted(days) for name in BY_DAY if (destination.out / name).exists()}
    tables = {name: _whole_table(destination, name, schema, days) for name, schema in {**by_day, **of_reading}.items()}
    return Ingested(tables, _all_lines(spark, destination, days), lengths, tuple(_line_folders(destination, days)))


def _stored(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(stored_schema()).parquet(spark_path(str(folder)))


def _dates(days: set[str]) -> list[object]:
    return [F.lit(day.removeprefix("date=")).cast("date") for day in sorted(days)]


def _lengths(counted: pa.Table, destination: Destination, bucket: int | None) -> Lengths:
    kept = destination.staging.kept.get("lengths")
    if destination.incremental and kept:
        # A report of an older version did not keep the logs' interval.
        interval = kept[2] if len(kept) > 2 else bucket_lengths(_some_usage(destination), None, 0.0).interval
        lengths = Lengths(kept[0], kept[1], interval)
        destination.staging.kept["lengths"] = [lengths.tables, lengths.rates, lengths.interval]
        if bucket not in (None, lengths.tables):
            raise ReportError(
                f"--bucket of {bucket} s differs from the buckets of the tables in the out folder, which are {lengths.tables} s"
            )
        return lengths
    lengths = bucket_lengths(_some_usage(destination), bucket, seconds_told(counted))
    destination.staging.kept["lengths"] = [lengths.tables, lengths.rates, lengths.interval]
    return lengths


def _some_usage(destination: Destination) -> pa.Table:
    """Times of usage lines that were read now; where there are none, of the last report."""
    folders = [folder / "type=usage" for folder in (destination.incoming, destination.out / LINES)]
    stored = Stored(stored_schema(), tuple((folder, None) for folder in folders[: 2 if destination.incremental else 1]))
    return next(stored.parts(["start", "end"])).slice(0, SAMPLE)


def _files_by_day(destination: Destination, days: set[str]) -> Iterator[list[Path]]:
    """The files of the lines that are new, and of those of the same days that are there already."""
    roots = [destination.incoming, *([destination.out / LINES] if destination.incremental else [])]
    for day in sorted(days):
        yield [file for root in roots for file in sorted(root.glob(f"type=*/{day}/*.parquet"))]


def _keep_lines(spark: SparkSession, destination: Destination, counted: pa.Table, days: set[str]) -> None:
    """Put the lines of these days into the staging folder, each once; the files of a day without copies stay what they are."""
    target = destination.staging.path / LINES
    target.mkdir()
    copies = duplicates_by_day(counted)
    copied = {f"date={day}" for day in copies}
    if copied:
        both = valid_lines(with_row_position(_stored(spark, destination.incoming)))
        if destination.incremental:
            both = both.unionByName(with_row_position(_stored(spark, destination.out / LINES)))
        places = spark.createDataFrame(places_of_copies(counted))
        kept = deduplicate(both.where(F.col("date").isin(list(copies))), places, sum(copies.values()))
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


def _of_reading(spark: SparkSession, destination: Destination) -> dict[str, t.StructType]:
    """The tables about what was read, with what is there of files that were not read now: the schema of each."""
    read = _read_now(destination)
    grown = pa.array(relative_names(sorted(destination.grown), destination.logs), pa.string())
    names = pc.unique(read["file"])
    names = names.filter(pc.invert(pc.is_in(names, grown)))
    old = Stored(FILES, ((destination.out / "files", None),)) if destination.incremental else None
    parts: list[Part] = [read]
    if old is not None:
        kept = [part.filter(pc.invert(pc.is_in(part["file"], names))) for part in old.parts(FILES.names)]
        parts += kept if destination.replaces_files else list(old.parts(FILES.names))
    together = sums(parts, {name: name for name in FILES.names[:3]}, {name: (name, "sum") for name in FILES.names[3:]})
    write_rows(pa.Table.from_pylist(together, arrow_schema(FILES)), FILES, destination.staging.path / "files")
    _quarantine(spark, destination, names.to_pylist())
    return {"files": FILES, "quarantine": QUARANTINE}


def _read_now(destination: Destination) -> pa.Table:
    """The rows of the table `files` about what was read now, copies included."""
    both = []
    for bad in (False, True):
        folders = [folder for folder in destination.incoming.glob("type=*") if (folder.name == f"type={QUARANTINED}") is bad]
        rows = lines_of_files((file for folder in folders for file in sorted(folder.rglob("*.parquet"))), bad=bad)
        none = pa.repeat(pa.scalar(0, pa.int64()), rows.num_rows)
        counts = (none, rows["lines"]) if bad else (rows["lines"], none)
        names = pa.array(relative_names(rows["file"].to_pylist(), destination.logs), pa.string())
        both.append(pa.table([names, rows["proxy"], rows["boot"], *counts], schema=arrow_schema(FILES)))
    return pa.concat_tables(both)


def _quarantine(spark: SparkSession, destination: Destination, read_now: Sequence[str]) -> None:
    old = Stored(QUARANTINE, ((destination.out / "quarantine", None),)) if destination.incremental else None
    bad = (destination.incoming / f"type={QUARANTINED}").exists()
    new = quarantine(_stored(spark, destination.incoming), destination.logs) if bad else None
    kept = old.frame(spark) if old is not None and any(part.num_rows for part in old.parts(["reason"])) else None
    if kept is not None and destination.replaces_files:
        kept = kept.join(F.broadcast(local_frame(spark, [(name,) for name in read_now], "file string")), on="file", how="left_anti")
    found = [part for part in (kept, new) if part is not None]
    folder = destination.staging.path / "quarantine"
    if found:
        write_table(reduce(DataFrame.unionByName, found).select(QUARANTINE.names), folder)
    else:
        write_no_rows(QUARANTINE, folder)


def _whole_table(destination: Destination, name: str, schema: t.StructType, days: set[str]) -> Stored:
    new = (destination.staging.path / name, None)
    if not destination.incremental or name not in BY_DAY:
        return Stored(schema, (new,))
    return Stored(schema, (new, (destination.out / name, frozenset(days_in(destination.out / name) - days))))


def _line_folders(destination: Destination, days: set[str]) -> Iterator[Path]:
    yield from (destination.staging.path / LINES).glob("type=*/date=*")
    if destination.incremental:
        yield from (folder for folder in (destination.out / LINES).glob("type=*/date=*") if folder.name not in days)


def _all_lines(spark: SparkSession, destination: Destination, days: set[str]) -> DataFrame:
    lines = _stored(spark, destination.staging.path / LINES)
    if not destination.incremental:
        return lines
    return lines.unionByName(_stored(spark, destination.out / LINES).where(~F.col("date").isin(_dates(days))))
