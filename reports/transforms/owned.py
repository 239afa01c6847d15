"""Owned: what tenants, users and topics had at the end of each day: topics, partitions, stored bytes.

In: good lines, each once; several proxies tell the same, once a minute. Out: `owned`. Left to others: whose budget it is
(`reports.summary.tenants`), what would be refused (`reports.quotas.replay`).
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start

OWNER = ("tenant", "user", "topic")
"""Who has it; one of the three is set."""
FIGURES = ("topic_count", "partition_count", "stored_bytes")
_LOOK = 300
"""Seconds in which each proxy has told at least once. Those that end a day tell what there was at its end."""


def owned(lines: DataFrame) -> DataFrame:
    """A row for each day and owner, with the start of the last interval as `at`. Each figure is the largest of any proxy in the
    last five minutes that tell of it: a proxy that does not know all topics yet tells of fewer, and one that was there in the
    morning alone is out of date."""
    figures = ", ".join(f"max(if({name} is null, null, struct(look, {name}))).{name} as {name}" for name in FIGURES)
    return query(
        f"""
        select date, {", ".join(OWNER)}, max(start) as at, {figures}
        from (select *, {bucket_start("start", _LOOK)} as look from {{lines}} where type = 'owned')
        group by date, {", ".join(OWNER)}
        """,
        lines=lines,
    )
