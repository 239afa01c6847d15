"""Decisions: who was throttled, refused or held, whose quota it was, and why.

In: good lines, each once, or the table `decisions`. Out: `decisions`, `throttles` (over time by quota and entity). A proxy writes a
sample of its decisions and counts the rest in `left_out`; counts here have both, but items and throttle times only of those
written. The complete sums are in `refusals` and `traffic`.
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start, dated

_WHAT = ("quota", "mode", "action", "entity_user", "entity_client_id", "entity_tenant")


def decisions(lines: DataFrame) -> DataFrame:
    """The decisions as logged, with `date` (UTC) first and the entity in three columns."""
    return query(
        """
        select date, at, proxy, quota, mode, action,
            entity.user as entity_user, entity.client_id as entity_client_id, entity.tenant as entity_tenant,
            principal, client_id, client_address, api, api_key, api_version, items, topics, usage, limit, left, throttle_ms,
            message, left_out
        from {lines} where type = 'decision'
        """,
        lines=lines,
    )


def throttles(decided: DataFrame, seconds: int) -> DataFrame:
    """Decisions for each bucket of `seconds`, quota, mode, action and entity.

    Out, beside those: `decisions` (written and left out), `written`; of the written ones `items`, `throttle_ms` (sum),
    `max_throttle_ms`, `max_usage`, and `limit` (the lowest in force).
    """
    what = ", ".join(_WHAT)
    sums = f"""
        select {bucket_start("at", seconds)} as start, {what},
            count(*) + sum(left_out) as decisions, count(*) as written,
            sum(items) as items, sum(throttle_ms) as throttle_ms, max(throttle_ms) as max_throttle_ms,
            max(usage) as max_usage, min(limit) as limit
        from {{decided}} group by all
    """
    return query(dated(sums, seconds), decided=decided)
