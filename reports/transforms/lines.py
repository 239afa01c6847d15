"""Lines: how complete they are.

In: valid lines without duplicates, or their `sequence_counts` (`reports.line_store`). Out: `gaps`, `writers`, `files`.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.log_files import relative_name
from reports.reasons import QUARANTINED


def gaps(lines: DataFrame) -> DataFrame:
    """What the proxies say they lost: `date`, `at`, `proxy`, `boot`, `lines`."""
    return lines.where(F.col("type") == "gap").select("date", "at", "proxy", "boot", "lines")


def writers(counted: DataFrame) -> DataFrame:
    """One row for each hour and start of a proxy: `date`, `start`, `proxy`, `boot`, `first_seq`, `last_seq`, `lines`, `first`,
    `last`: see `reports.line_store.sequence_counts`."""
    return counted.groupBy("date", "start", "proxy", "boot").agg(
        F.min("first_seq").alias("first_seq"),
        F.max("last_seq").alias("last_seq"),
        F.sum("lines").alias("lines"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )


def files(stored: DataFrame, logs: str) -> DataFrame:
    """What was read of each file: `file` (relative to `logs`), `proxy`, `boot` (null for bad lines), `lines`, `quarantined`, copies
    included."""
    bad = F.col("type") == QUARANTINED
    whose = [F.when(~bad, F.col(name)).alias(name) for name in ("proxy", "boot")]
    counted = stored.groupBy("file", *whose, bad.alias("bad")).agg(F.count("*").alias("lines"))
    # Named after they are counted: a URI is dear to take apart.
    return counted.groupBy(relative_name(F.col("file"), logs).alias("file"), "proxy", "boot").agg(
        F.sum(F.when(~F.col("bad"), F.col("lines")).otherwise(0)).alias("lines"),
        F.sum(F.when(F.col("bad"), F.col("lines")).otherwise(0)).alias("quarantined"),
    )
