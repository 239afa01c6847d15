"""Quarantine: the lines that no sum has, with the reason.

In: stored lines (`reports.line_store`). Out: `quarantine`. Left to others: the rules (`reports.validation`).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.arrow_rows import table_schema
from reports.log_files import root
from reports.reasons import QUARANTINED

QUARANTINE = table_schema("reason string, field string, file string, raw string")
"""The table `quarantine`."""


def quarantine(stored: DataFrame, logs: str) -> DataFrame:
    """Bad lines: `reason`, `field` (at fault, or null), `file` (relative to `logs`), `raw` (cut; null for a whole file)."""
    file = _relative_name(F.col("file"), logs).alias("file")
    return stored.where(F.col("type") == QUARANTINED).select("reason", "field", file, "raw")


def _relative_name(file: Column, logs: str) -> Column:
    """The same as `reports.log_files.relative_names`."""
    # url_decode would take a plus for a space, which Spark's URIs do not mean.
    decoded = F.coalesce(F.try_url_decode(F.replace(file, F.lit("+"), F.lit("%2B"))), file)
    path = F.regexp_replace(decoded, "^file:/+", "/")
    folder = root(logs)
    return F.when(F.startswith(path, F.lit(folder)), F.substring(path, len(folder) + 1, 2**31 - 1)).otherwise(path)
