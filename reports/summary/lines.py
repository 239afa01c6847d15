"""Lines of a summary: how many, of which kind, how complete.

In: the lines, the tables `files`, `writers`, `gaps`, `quarantine`. Out: `Lines`, `Writer`s, `Silence`s, `Quarantined`.
"""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F  # noqa: N812

from reports.summary.model import Lines, Quarantined, Silence, Writer
from reports.tables import HOUR, Tables

EXAMPLE_LENGTH = 200
"""Characters of a bad line that are shown."""

MAX_SILENCES = 20


def count_lines(tables: Tables, lines: DataFrame, writers: tuple[Writer, ...]) -> Lines:
    """How many lines there are; copies are counted apart from the kinds that they are of."""
    # Nearly all lines are of usage: they are what is left of all.
    others = {row["type"]: row["count"] for row in lines.where(F.col("type") != "usage").groupBy("type").count().collect()}
    read = (
        tables["files"]
        .agg(F.coalesce(F.sum("lines"), F.lit(0)).alias("good"), F.coalesce(F.sum("quarantined"), F.lit(0)).alias("bad"))
        .collect()[0]
    )
    return Lines(
        read=read["good"] + read["bad"],
        usage=sum(writer.lines for writer in writers) - sum(others.values()),
        decisions=others.get("decision", 0),
        gaps=others.get("gap", 0),
        volumes=others.get("volume", 0),
        producer_ids=others.get("producer_ids", 0),
        owned=others.get("owned", 0),
        latencies=others.get("latency", 0),
        duplicates=sum(writer.duplicates for writer in writers),
        quarantined=read["bad"],
    )


def list_writers(tables: Tables) -> tuple[Writer, ...]:
    """Every start of a proxy, in order, with what it says it lost and what is missing of it."""
    boot = ["proxy", "boot"]
    once = (
        tables["writers"]
        .groupBy(*boot)
        .agg(
            F.min("first_seq").alias("first_seq"),
            F.max("last_seq").alias("last_seq"),
            F.sum("lines").alias("lines"),
            F.min("first").alias("first"),
            F.max("last").alias("last"),
        )
    )
    read = tables["files"].where(F.col("proxy").isNotNull()).groupBy(*boot).agg(F.sum("lines").alias("read"))
    lost = tables["gaps"].groupBy(*boot).agg(F.sum("lines").alias("lost"))
    rows = once.join(read, on=boot, how="left").join(lost, on=boot, how="left").orderBy("proxy", "first", "boot")
    rows_by_boot = rows.select(
        *boot,
        "first_seq",
        "last_seq",
        "lines",
        (F.col("read") - F.col("lines")).alias("duplicates"),
        (F.col("last_seq") - F.col("first_seq") + 1 - F.col("lines")).alias("missing"),
        F.coalesce("lost", F.lit(0)).alias("lost"),
        *epochs("first", "last"),
    )
    copied = ("proxy", "boot", "first_seq", "last_seq", "lines", "duplicates", "missing", "lost")
    return tuple(
        Writer(**{name: row[name] for name in copied}, first=moment(row["first"]), last=moment(row["last"]))
        for row in rows_by_boot.collect()
    )


def list_silences(tables: Tables) -> tuple[Silence, ...]:
    """When a proxy had no line for an hour or more, between its first and its last; the longest first."""
    hours = tables["writers"].select("proxy", F.unix_seconds("first").alias("first"), F.unix_seconds("last").alias("last"))
    before = F.max("last").over(Window.partitionBy("proxy").orderBy("first").rowsBetween(Window.unboundedPreceding, -1))
    holes = hours.select("proxy", before.alias("from"), (F.col("first") - before).alias("seconds")).where(F.col("seconds") >= HOUR)
    rows = holes.orderBy(F.desc("seconds"), "from").limit(MAX_SILENCES).collect()
    return tuple(Silence(row["proxy"], datetime.fromtimestamp(row["from"], tz=UTC), row["seconds"]) for row in rows)


def list_quarantined(tables: Tables) -> tuple[Quarantined, ...]:
    """Bad lines by reason and field, most frequent first."""
    rows = tables["quarantine"].select("reason", "field", "file", F.left("raw", F.lit(EXAMPLE_LENGTH)).alias("raw"))
    counted = rows.groupBy("reason", "field").agg(
        F.count("*").alias("lines"), F.min_by(F.struct("file", "raw"), "file").alias("example")
    )
    ordered = counted.orderBy(F.desc("lines"), "reason", "field").collect()
    return tuple(
        Quarantined(row["reason"], row["field"], row["lines"], row["example"]["file"], row["example"]["raw"]) for row in ordered
    )


def epochs(*names: str) -> list[Column]:
    """Timestamp columns as microseconds since the epoch: the driver's own time zone has no say in numbers."""
    return [F.unix_micros(name).alias(name) for name in names]


def moment(micros: int | None) -> datetime | None:
    """Microseconds since the epoch as a time in UTC."""
    return None if micros is None else datetime.fromtimestamp(micros / 1_000_000, tz=UTC)


def row_moment(row: Row, name: str) -> datetime:
    """The time in a column made by `epochs` that is never null."""
    return datetime.fromtimestamp(row[name] / 1_000_000, tz=UTC)
