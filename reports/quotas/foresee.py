"""Foresee: the replay alone, without the rest of a report, for a plan of quotas.

In: logs, limits of users and client ids, from when on. Out: one row for each owner of a limit (`reports.quotas.replay`), and the
time that the logs tell of. One Spark session. Of each line only what limits count is read, and stored in columns in a temporary
folder. Lines that cannot be read are left out; a report says which they are. Copies of a line are counted once.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as t

from reports.errors import ReportError
from reports.line_store import deduplicate, duplicates_by_day, sequence_counts, with_row_position
from reports.log_files import LOG_FILES, check_logs, is_local, log_size, spark_path
from reports.quotas.file import Limit, QuotaFile
from reports.quotas.replay import replay
from reports.read import FAILURES
from reports.requirements import check_requirements
from reports.schema import LARGEST_COUNT, VERSIONS
from reports.session import spark_session
from reports.tables import Lengths
from reports.transforms.buckets import usual_interval

QUICK_BYTES = 64 * 2**20
"""Logs of fewer bytes are read by a Spark that is configured for small queries."""
_COUNTS = ("api_key", "requests", "response_bytes", "record_bytes", "mutations", "counted")
_TEXTS = ("type", "proxy", "boot", "principal", "client_id", "topic", "api", "user")
_FIELDS = t.StructType(
    [t.StructField("v", t.IntegerType()), t.StructField("seq", t.LongType())]
    + [t.StructField(name, t.TimestampType()) for name in ("start", "end")]
    + [t.StructField(name, t.StringType()) for name in _TEXTS]
    + [t.StructField(name, t.LongType()) for name in _COUNTS]
)


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`rows` as of `replay`; `tenants` those of tenants, with their names as `owner_user`; the time that the logs tell of, both
    None where they have no line of it; the length of their intervals in seconds."""

    rows: tuple[dict[str, Any], ...]
    tenants: tuple[dict[str, Any], ...]
    lines: int
    first: datetime | None
    last: datetime | None
    interval: int


@dataclass(frozen=True, slots=True)
class ByTenant:
    """Limits of tenants, each with the tenant as its `user`, and the tenant of a user."""

    limits: Sequence[Limit]
    of_user: Callable[[str], str | None]


def foresee(
    logs: str, limits: Sequence[Limit], since: datetime | None = None, tenants: ByTenant | None = None, *, memory: str = "1500m"
) -> Foreseen:
    """What `limits` would have done with the traffic of the logs, or with that of intervals that end after `since`.

    Raises:
        ReportError: the logs cannot be read, or Spark is not there or does not start.
    """
    check_requirements()
    if not is_local(logs):
        raise ReportError(f"{logs} is not a local folder: copy the logs of the time that counts here")
    check_logs(logs)
    quick = (log_size(logs) or 0) < QUICK_BYTES
    with spark_session("local[*]", quick=quick, memory=memory) as spark, tempfile.TemporaryDirectory() as scratch:
        try:
            return foresee_with(spark, logs, limits, Path(scratch), since, tenants)
        except FAILURES as error:
            raise ReportError(f"the logs in {logs} cannot be replayed: {str(error).strip().splitlines()[0]}") from error


def foresee_with(
    spark: SparkSession,
    logs: str,
    limits: Sequence[Limit],
    scratch: Path,
    since: datetime | None = None,
    tenants: ByTenant | None = None,
) -> Foreseen:
    """The same with a Spark that runs already; `scratch` is for files that may be deleted afterwards."""
    stored = str(scratch / "lines")
    _narrow(spark, logs, since).write.parquet(stored)
    rows = with_row_position(spark.read.parquet(stored))
    counted = sequence_counts(rows)
    copies = sum(duplicates_by_day(counted).values())
    lines = deduplicate(rows, counted, copies) if copies else rows
    told = rows.agg(F.count("*").alias("lines"), F.min("start").alias("first"), F.max("end").alias("last")).first()
    if told is None or not told["lines"]:
        return Foreseen((), (), 0, None, None, 0)
    interval = usual_interval(rows) or 10
    # The longer of both is what rates are averages over, and has to be a multiple of the other.
    rates = interval * max(1, -(-60 // interval))
    lengths = Lengths(rates, rates, interval)

    def rows_of(lines: DataFrame, limits: Sequence[Limit]) -> tuple[dict[str, Any], ...]:
        return tuple(row.asDict() for row in replay(spark, lines, QuotaFile("plan", tuple(limits)), lengths).collect())

    made = rows_of(lines, limits)
    of_tenants = rows_of(_by_tenant(spark, lines, tenants), tenants.limits) if tenants is not None and tenants.limits else ()
    first, last = (told[name].astimezone() for name in ("first", "last"))
    return Foreseen(made, of_tenants, told["lines"] - copies, first, last, interval)


def _by_tenant(spark: SparkSession, lines: DataFrame, tenants: ByTenant) -> DataFrame:
    """The lines of members of tenants, as if each tenant were one user without a client id."""
    seen = [row["principal"] for row in lines.select("principal").distinct().collect()]
    known = [(name, tenants.of_user(name.removeprefix("User:"))) for name in seen if name is not None]
    owners = spark.createDataFrame([pair for pair in known if pair[1] is not None], "principal string, tenant string")
    joined = lines.join(F.broadcast(owners), on="principal", how="inner")
    return joined.withColumn("principal", F.col("tenant")).withColumn("client_id", F.lit(None).cast("string")).drop("tenant")


def _narrow(spark: SparkSession, logs: str, since: datetime | None) -> DataFrame:
    """The fields that limits count, of good lines about usage and producer ids."""
    reader = spark.read.schema(_FIELDS).option("recursiveFileLookup", "true").option("pathGlobFilter", LOG_FILES)
    read = reader.option("ignoreMissingFiles", "true").option("ignoreCorruptFiles", "true")
    rows = read.json(spark_path(logs), lineSep="\n")
    believed = [F.coalesce(F.col(name), F.lit(0)).between(0, LARGEST_COUNT) for name in _COUNTS]
    good = F.col("v").isin(*VERSIONS) & F.col("type").isin("usage", "producer_ids")
    for name in ("seq", "proxy", "boot", "start", "end"):
        good &= F.col(name).isNotNull()
    for one in believed:
        good &= one
    if since is not None:
        good &= F.col("end") > F.lit(since)
    at = F.lit(None).cast("timestamp").alias("at")
    return rows.where(good).select("*", at, F.to_date("start").alias("date"))
