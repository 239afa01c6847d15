"""Quarantine: the lines that no sum has, with the reason.

In: stored lines (`reports.store`). Out: `quarantine`. Left to others: the rules (`reports.verdict`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.folder import relative_name
from reports.store import bad


def quarantine(stored: DataFrame, logs: str) -> DataFrame:
    """Bad lines: `reason`, `field` (at fault, or null), `file` (relative to `logs`), `raw` (cut; null for a whole file)."""
    return bad(stored).withColumn("file", relative_name(F.col("file"), logs))
