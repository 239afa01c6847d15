"""Quarantine: the lines that no sum has, with the reason.

In: stored lines (`reports.line_store`). Out: `quarantine`. Left to others: the rules (`reports.validation`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.arrow_rows import table_schema
from reports.log_files import relative_name
from reports.reasons import QUARANTINED

QUARANTINE = table_schema("reason string, field string, file string, raw string")
"""The table `quarantine`."""


def quarantine(stored: DataFrame, logs: str) -> DataFrame:
    """Bad lines: `reason`, `field` (at fault, or null), `file` (relative to `logs`), `raw` (cut; null for a whole file)."""
    file = relative_name(F.col("file"), logs).alias("file")
    return stored.where(F.col("type") == QUARANTINED).select("reason", "field", file, "raw")
