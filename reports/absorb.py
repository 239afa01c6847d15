"""Absorbing room: new lines become part of the tables. A whole report, a daily one and a stream all do it this way.

In: lines as they were read, the tables that are there already. Out: in the staging folder the lines, each once, and every table by
day of the days that the new lines are about, made anew; the other days stay as they are. Left to others: finding lines
(`reports.read`), parsing them (`reports.plain`, `reports.parse`), tables of the whole period (`reports.whole`), moving all into
place (`reports.write`).
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.errors import ReportError
from reports.folder import spark_path
from reports.parquet import days_in, link, read_table, write_table, write_tables
from reports.parse import parser
from reports.plain import DOUBTFUL, sort_out
from reports.schema import COMMON, FIELDS, Kind
from reports.store import addressed, by_type_and_day, census, copies_by_day, good, once, stored_schema
from reports.tables import BY_DAY, LINES, OF_READING, Lengths, bucket_lengths, tables_by_day
from reports.together import together
from reports.transforms.lines import files
from reports.transforms.quarantine import quarantine
from reports.write import Staging

TEXTS = "file string, raw string"
"""Lines as they were read."""

_INCOMING = "incoming"
_SEVERAL_WRITERS = "64"
"""Files that one task may write to at a time; with fewer than it needs it would sort its lines first."""

_USAGE = (*COMMON, *FIELDS["usage"])
# What Parquet would do for readers and costs more than it gives: a dictionary of numbers that hardly come twice, the least and
# greatest of texts, and how long they are.
_LEFT_OUT = {
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
class Place:
    """Where a report stands: `out` is its folder, `staging` that of the one in the making. `adds`: it adds to what is in `out`.

    `logs` is what file names are relative to. `rereads`: a file that is read now is read whole, and what was read of it before
    counts no more.
    """

    out: Path
    staging: Staging
    logs: str
    adds: bool = False
    rereads: bool = True


@dataclass(frozen=True, slots=True)
class Absorbed:
    """`tables` by day and of what was read, of the whole period; `lines`, each once, of the whole period."""

    tables: Mapping[str, DataFrame]
    lines: DataFrame
    lengths: Lengths


def store_lines(lines: DataFrame, now: datetime, place: Place, damaged: DataFrame | None = None) -> None:
    """Parse lines (`file`, `raw`) and write them as they come; `damaged` are bad rows besides. May be called again after it failed.

    Lines that are not plain are written as text first and parsed by a query of their own: what all of them might be makes so much
    code that Java's compiler would be at it for longer than the plain lines take.
    """
    spark = lines.sparkSession
    spark.conf.set("spark.sql.maxConcurrentOutputFileWriters", _SEVERAL_WRITERS)
    target = place.staging.path / _INCOMING
    plain = sort_out(lines, now)
    with together() as pool:
        prepared = pool.submit(parser, now)  # while the plain lines are parsed
        _write_lines(plain, target, "overwrite")
    parse = prepared.result()
    doubtful = target / f"type={DOUBTFUL}"
    if not doubtful.exists() and damaged is None:
        return
    texts = spark.read.schema(TEXTS).parquet(spark_path(str(doubtful))) if doubtful.exists() else spark.createDataFrame([], TEXTS)
    parsed = parse(texts)
    if damaged is not None:
        parsed = parsed.unionByName(damaged, allowMissingColumns=True)
    _write_lines(by_type_and_day(parsed), target, "append")
    shutil.rmtree(doubtful, ignore_errors=True)


def _write_lines(rows: DataFrame, target: Path, mode: str) -> None:
    writer = rows.write.mode(mode).options(**_LEFT_OUT).partitionBy("type", "date")
    writer.parquet(f"file:{target.absolute()}")


def absorb(spark: SparkSession, place: Place, bucket: int | None) -> Absorbed:
    """Make the tables of what `store_lines` wrote; `bucket` is the wanted length of the tables' buckets in seconds.

    Raises:
        ReportError: the bucket does not fit the logs, or the tables that are there.
    """
    incoming = _stored(spark, place.staging.path / _INCOMING)
    days = {path.name for path in (place.staging.path / _INCOMING).glob("type=*/date=[0-9]*")}
    both = good(addressed(incoming))
    if place.adds:
        both = both.unionByName(addressed(_stored(spark, place.out / LINES)).where(F.col("date").isin(_dates(days))))
    counted = census(both).persist()
    # All that is asked of `both` is asked here, as its files move.
    with together() as pool:
        read = pool.submit(_of_reading, spark, incoming, place)
        counted.count()
        lengths, of_reading = _lengths(both, counted, place, bucket), read.result()
    _keep_lines(place, both, counted, days)
    lines = _stored(spark, place.staging.path / LINES)
    by_day = write_tables(tables_by_day(lines, counted, lengths), place.staging.path)
    if place.adds:
        place.staging.days |= dict.fromkeys(BY_DAY, sorted(days))
    tables = {name: _whole_table(spark, place, name, table, days) for name, table in {**by_day, **of_reading}.items()}
    return Absorbed(tables, _all_lines(spark, place, days), lengths)


def _stored(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.read.schema(stored_schema()).parquet(spark_path(str(folder)))


def _dates(days: set[str]) -> list[object]:
    return [F.lit(day.removeprefix("date=")).cast("date") for day in sorted(days)]


def _lengths(lines: DataFrame, counted: DataFrame, place: Place, bucket: int | None) -> Lengths:
    kept = place.staging.kept.get("lengths")
    if place.adds and kept:
        lengths = Lengths(*kept)
        if bucket not in (None, lengths.tables):
            raise ReportError(f"--bucket of {bucket} s does not fit the tables that are there, which have {lengths.tables} s")
        return lengths
    row = counted.agg((F.unix_seconds(F.max("last")) - F.unix_seconds(F.min("first"))).alias("span")).first()
    lengths = bucket_lengths(lines, bucket, float((row and row["span"]) or 0))
    place.staging.kept["lengths"] = [lengths.tables, lengths.rates]
    return lengths


def _keep_lines(place: Place, both: DataFrame, counted: DataFrame, days: set[str]) -> None:
    """Put the lines of these days into the staging folder, each once; the files of a day without copies stay what they are."""
    target = place.staging.path / LINES
    target.mkdir()
    copies = copies_by_day(counted)
    copied = {f"date={day}" for day in copies}
    if copied:
        kept = once(both.where(F.col("date").isin(list(copies))), counted, sum(copies.values()))
        _write_lines(kept, target, "overwrite")
    for folder in _day_folders(place.staging.path / _INCOMING, days - copied):
        (target / folder.parent.name).mkdir(exist_ok=True)
        folder.rename(target / folder.parent.name / folder.name)
    if place.adds:
        for folder in _day_folders(place.out / LINES, days - copied):
            link(folder, target / folder.parent.name / folder.name)
        folders = _day_folders(target, days) + _day_folders(place.out / LINES, days)
        place.staging.days[LINES] = sorted({f"{folder.parent.name}/{folder.name}" for folder in folders})


def _day_folders(lines: Path, days: set[str]) -> list[Path]:
    return [folder for folder in lines.glob("type=*/date=*") if folder.name in days]


def _of_reading(spark: SparkSession, incoming: DataFrame, place: Place) -> dict[str, DataFrame]:
    """The tables about what was read, with what is there of files that were not read now."""
    new = {"files": files(incoming, place.logs), "quarantine": quarantine(incoming, place.logs)}
    if place.adds:
        read_now = F.broadcast(new["files"].select("file").distinct())
        for name in OF_READING:
            old = read_table(spark, new[name].schema, (place.out / name, None))
            left = old.join(read_now, on="file", how="left_anti") if place.rereads else old
            new[name] = left.unionByName(new[name])
    sums = new["files"].groupBy("file", "proxy", "boot").agg(*[F.sum(name).alias(name) for name in ("lines", "quarantined")])
    new["files"] = sums
    for name, table in new.items():
        write_table(table, place.staging.path / name)
    return new


def _whole_table(spark: SparkSession, place: Place, name: str, table: DataFrame, days: set[str]) -> DataFrame:
    new = (place.staging.path / name, None)
    if not place.adds or name not in BY_DAY:
        return read_table(spark, table.schema, new)
    return read_table(spark, table.schema, new, (place.out / name, days_in(place.out / name) - days))


def _all_lines(spark: SparkSession, place: Place, days: set[str]) -> DataFrame:
    lines = _stored(spark, place.staging.path / LINES)
    if not place.adds:
        return lines
    return lines.unionByName(_stored(spark, place.out / LINES).where(~F.col("date").isin(_dates(days))))
