"""Foresee: the replay alone, without the rest of a report, for a plan of quotas.

In: logs, quotas, from when on. Out: one row for each owner of a limit (`reports.quotas.replay`), and the
time that the logs tell of. One Spark session. Of each line only what limits count is read, and stored in columns in a temporary
folder while Spark starts. Lines that cannot be read are left out; a report says which they are. Copies of a line are counted once.
"""

import tempfile
from dataclasses import dataclass
from datetime import datetime
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from reports.columns import write_columns
from reports.errors import ReportError
from reports.line_counts import duplicates_by_day, places_of_copies, sequence_counts
from reports.line_store import deduplicate, with_row_position
from reports.log_files import check_logs, is_local, log_size, spark_path
from reports.parallel import run_concurrently
from reports.quotas.limits import LEVELS, QuotaFile
from reports.quotas.replay import replay, wanted
from reports.read import FAILURES
from reports.requirements import check_requirements
from reports.schema import LARGEST_COUNT, VERSIONS
from reports.session import spark_session
from reports.tables import SAMPLE, Lengths, usual_interval

_LEVELS = tuple(LEVELS.values())
_COUNTS = ("api_key", "requests", "response_bytes", "record_bytes", "mutations", "counted", *_LEVELS)
_TEXTS = ("type", "proxy", "boot", "principal", "client_id", "topic", "api", "user", "tenant")
_TYPES = ("usage", "producer_ids", "owned")
_TIME = pa.timestamp("us", "UTC")
_FIELDS = pa.schema(
    [("v", pa.int64()), ("seq", pa.int64()), ("start", _TIME), ("end", _TIME)]
    + [(name, pa.string()) for name in _TEXTS]
    + [(name, pa.int64()) for name in _COUNTS]
)
_REQUIRED = ("seq", "proxy", "boot", "start", "end")


@dataclass(frozen=True, slots=True)
class Foreseen:
    """`rows` as of `replay`; the time that the logs tell of, both None where they have no line of it; the length of their intervals
    in seconds; of which LEVELS they say how much there was."""

    rows: tuple[dict[str, Any], ...]
    lines: int
    first: datetime | None
    last: datetime | None
    interval: int
    levels: frozenset[str] = frozenset()


def foresee(logs: str, quotas: QuotaFile, since: datetime | None = None, *, memory: str = "800m") -> Foreseen:
    """What `quotas` would have done with the traffic of the logs, or with that of intervals that end after `since`.

    Raises:
        ReportError: the logs cannot be read, or Spark is not there or does not start.
    """
    check_requirements()
    if not is_local(logs):
        raise ReportError(f"{logs} is not a local folder: copy the logs of the time that counts here")
    check_logs(logs)
    with tempfile.TemporaryDirectory() as folder, run_concurrently() as pool:
        stored = Path(folder, "lines")
        narrowed = pool.submit(narrow, logs, since, stored)  # while Spark starts
        with spark_session("local[*]", size=log_size(logs), memory=memory) as spark:
            try:
                narrowed.result()
                return foresee_with(spark, stored, quotas)
            except OSError as error:
                raise ReportError(f"the temporary folder {folder} cannot be written: {error.strerror or error}") from error
            except FAILURES as error:
                raise ReportError(f"the logs in {logs} cannot be replayed: {str(error).strip().splitlines()[0]}") from error


def foresee_with(spark: SparkSession, stored: Path, quotas: QuotaFile) -> Foreseen:
    """The same with a Spark that runs already, and with lines as `narrow` stores them."""
    rows = with_row_position(spark.read.parquet(spark_path(str(stored))))
    some_usage = rows.where(F.col("type") == "usage").select("start", "end").limit(SAMPLE)
    with run_concurrently() as pool:
        counting, some = pool.submit(sequence_counts, [sorted(stored.glob("*.parquet"))]), pool.submit(some_usage.toArrow)
        had = [F.count(field).alias(field) for field in _LEVELS]
        told = rows.agg(F.count("*").alias("lines"), F.min("start").alias("first"), F.max("end").alias("last"), *had).first()
    if told is None or not told["lines"]:
        return Foreseen((), 0, None, None, 0)
    counted, interval = counting.result(), usual_interval(some.result()) or 10
    copies = sum(duplicates_by_day(counted).values())
    lines = deduplicate(rows, spark.createDataFrame(places_of_copies(counted)), copies) if copies else rows
    # The longer of both is what rates are averages over, and has to be a multiple of the other.
    rates = interval * max(1, -(-60 // interval))
    outcome = replay(spark, lines, wanted(spark, lines, quotas, interval), quotas, Lengths(rates, rates, interval))
    found = tuple(row.asDict() for row in outcome.collect())
    first, last = (told[name].astimezone() for name in ("first", "last"))
    levels = frozenset(kind for kind, field in LEVELS.items() if told[field])
    return Foreseen(found, told["lines"] - copies, first, last, interval, levels)


def narrow(logs: str, since: datetime | None, stored: Path) -> None:
    """Store the fields that limits count, of good lines about usage, producer ids and what owners have. OSError where
    they cannot be written."""
    write_columns(logs, _FIELDS, partial(_good, since=since), stored)


def _good(lines: pa.Table, since: datetime | None) -> pa.Table:
    rules = [pc.is_in(lines["v"], pa.array(VERSIONS)), pc.is_in(lines["type"], pa.array(_TYPES))]
    rules += [pc.is_valid(lines[name]) for name in _REQUIRED]
    counts = [pc.fill_null(lines[name], 0) for name in _COUNTS if name != "api_key"]  # that is -1 for many APIs
    rules += [pc.and_(pc.greater_equal(count, 0), pc.less_equal(count, LARGEST_COUNT)) for count in counts]
    if since is not None:
        rules.append(pc.greater(lines["end"], pa.scalar(since, _TIME)))
    good = lines.filter(reduce(pc.and_, rules))
    good = good.append_column("at", pa.nulls(good.num_rows, _TIME))
    return good.append_column("date", pc.cast(good["start"], pa.date32()))
