"""Lines of a summary: how many, of which kind, how complete.

In: parsed lines, the tables `writers`, `gaps`, `quarantine`. Out: `Lines`, `Writer`s, `Quarantined`.
"""

from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from reports.summary.model import Lines, Quarantined, Writer
from reports.tables import Tables

EXAMPLE_LENGTH = 200
"""Characters of a bad line that are shown."""


def count_lines(parsed: DataFrame, writers: tuple[Writer, ...]) -> Lines:
    """How many lines there are; copies are taken off the kinds that they are of by `writers`, and counted apart."""
    kinds = parsed.select("type", F.col("reason").isNotNull().alias("bad"), "proxy", "boot", "seq")
    rows = (
        kinds.groupBy("type", "bad")
        .agg(F.count("*").alias("all"), F.count_distinct("proxy", "boot", "seq").alias("once"))
        .collect()
    )
    once = {row["type"]: int(row["once"]) for row in rows if not row["bad"]}
    return Lines(
        read=sum(int(row["all"]) for row in rows),
        usage=once.get("usage", 0),
        decisions=once.get("decision", 0),
        gaps=once.get("gap", 0),
        duplicates=sum(writer.duplicates for writer in writers),
        quarantined=sum(int(row["all"]) for row in rows if row["bad"]),
    )


def list_writers(tables: Tables) -> tuple[Writer, ...]:
    """Every start of a proxy, in order, with what it says it lost."""
    lost = tables["gaps"].groupBy("proxy", "boot").agg(F.sum("lines").alias("lost"))
    rows = tables["writers"].join(lost, on=["proxy", "boot"], how="left").orderBy("proxy", "first", "boot")
    columns = ("proxy", "boot", "first_seq", "last_seq", "lines", "duplicates", "missing")
    counted = rows.select(*columns, F.coalesce("lost", F.lit(0)).alias("lost"), *epochs("first", "last"))
    return tuple(
        Writer(**{name: row[name] for name in (*columns, "lost")}, first=moment(row["first"]), last=moment(row["last"]))
        for row in counted.collect()
    )


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
