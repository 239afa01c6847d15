"""Lines: how complete they are.

In: valid lines without duplicates. Out: `gaps`, the columns of `files`. Left to others: `writers`, what was read of each file
(`reports.line_counts`).
"""

from pyspark.sql import DataFrame

from reports.arrow_rows import table_schema
from reports.sql import query

FILES = table_schema("file string, proxy string, boot string, lines bigint, quarantined bigint")
"""The table `files`."""


def gaps(lines: DataFrame) -> DataFrame:
    """What the proxies say they lost: `date`, `at`, `proxy`, `boot`, `lines`."""
    return query("select date, at, proxy, boot, lines from {lines} where type = 'gap'", lines=lines)
