"""Lines: how complete they are.

In: valid lines without duplicates. Out: `gaps`, the columns of `files`. Left to others: `writers`, what was read of each file
(`reports.line_counts`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.arrow_rows import table_schema

FILES = table_schema("file string, proxy string, boot string, lines bigint, quarantined bigint")
"""The table `files`."""


def gaps(lines: DataFrame) -> DataFrame:
    """What the proxies say they lost: `date`, `at`, `proxy`, `boot`, `lines`."""
    return lines.where(F.col("type") == "gap").select("date", "at", "proxy", "boot", "lines")
