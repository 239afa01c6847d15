"""Quarantine: the lines that no sum has, with the reason.

In: parsed lines. Out: `quarantine`. Left to others: the rules (`reports.verdict`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.folder import relative_name


def quarantine(parsed: DataFrame, logs: str) -> DataFrame:
    """Bad lines: `reason`, `field` (at fault, or null), `file` (relative to `logs`), `raw` (cut; null for a whole file)."""
    bad = parsed.where(F.col("reason").isNotNull()).select("reason", "field", "file", "raw")
    return bad.withColumn("file", relative_name(F.col("file"), logs))
