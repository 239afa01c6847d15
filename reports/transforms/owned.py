"""Owned: what tenants, users and topics had at the end of each day: topics, partitions, stored bytes.

In: good lines, each once; several proxies tell the same, once a minute. Out: `owned`. Left to others: whose budget it is
(`reports.summary.tenants`), what would be refused (`reports.quotas.replay`).
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

OWNER = ("tenant", "user", "topic")
"""Who has it; one of the three is set."""
FIGURES = ("topic_count", "partition_count", "stored_bytes")
_LOOK = 300
"""Seconds in which each proxy has told at least once. Those that end a day tell what there was at its end."""


def owned(lines: DataFrame) -> DataFrame:
    """A row for each day and owner, with the start of the last interval as `at`. Each figure is the largest of any proxy in the
    last five minutes that tell of it: a proxy that does not know all topics yet tells of fewer, and one that was there in the
    morning alone is out of date."""
    since_epoch = F.unix_seconds("start")
    look = (since_epoch - F.pmod(since_epoch, F.lit(_LOOK))).alias("look")
    told = lines.where(F.col("type") == "owned").select("date", *OWNER, "start", look, *FIGURES)
    last = [F.max(F.when(F.col(name).isNotNull(), F.struct("look", name)))[name].alias(name) for name in FIGURES]
    return told.groupBy("date", *OWNER).agg(F.max("start").alias("at"), *last)
