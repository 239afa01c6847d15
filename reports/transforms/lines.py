"""Lines: the good ones, each once, and how complete they are.

In: parsed lines (`reports.parse`). Out: `good`, `gaps`, `writers`. Left to others: bad lines (`quarantine`), what the lines say.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

IDENTITY = ("proxy", "boot", "seq")
"""What identifies a line: a second one with the same is a copy."""


def good(parsed: DataFrame) -> DataFrame:
    """The lines that are not in quarantine, copies included."""
    return parsed.where(F.col("reason").isNull()).drop("reason", "field", "raw")


def without_copies(lines: DataFrame) -> DataFrame:
    """Good lines, each once."""
    return lines.dropDuplicates(list(IDENTITY))


def gaps(lines: DataFrame) -> DataFrame:
    """What the proxies say they lost: `at`, `proxy`, `boot`, `lines`."""
    return lines.where(F.col("type") == "gap").select("at", "proxy", "boot", "lines")


def writers(lines: DataFrame) -> DataFrame:
    """One row for each start of a proxy, from good lines with their copies.

    Out: `proxy`, `boot`; `first_seq`, `last_seq`; `lines` (each once); `duplicates`; `missing`: numbers between the first and the
    last that no good line has, because it was lost, is in quarantine or is in a file that is not here; `first`, `last`: the time
    that its lines are about, end excluded.
    """
    # An instant lasts a millisecond, so that `last` is an end, excluded, whatever kind of line it is from.
    first, last = F.least("start", "at"), F.greatest("end", F.col("at") + F.expr("INTERVAL 1 MILLISECOND"))
    rows = lines.select(*IDENTITY, first.alias("first"), last.alias("last"))
    by_boot = rows.groupBy("proxy", "boot").agg(
        F.min("seq").alias("first_seq"),
        F.max("seq").alias("last_seq"),
        F.count("*").alias("all"),
        F.count_distinct("seq").alias("lines"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
    )
    missing = F.col("last_seq") - F.col("first_seq") + 1 - F.col("lines")
    duplicates = F.col("all") - F.col("lines")
    return by_boot.select(
        "proxy", "boot", "first_seq", "last_seq", "lines", duplicates.alias("duplicates"), missing.alias("missing"), "first", "last"
    )
