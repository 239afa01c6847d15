"""Lines: how complete they are.

In: valid lines without duplicates, or stored lines. Out: `gaps`, `files`. Left to others: `writers` (`reports.line_store`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.arrow_rows import table_schema
from reports.log_files import relative_name
from reports.reasons import QUARANTINED

FILES = table_schema("file string, proxy string, boot string, lines bigint, quarantined bigint")
"""The table `files`."""


def gaps(lines: DataFrame) -> DataFrame:
    """What the proxies say they lost: `date`, `at`, `proxy`, `boot`, `lines`."""
    return lines.where(F.col("type") == "gap").select("date", "at", "proxy", "boot", "lines")


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
