"""Producer ids: how many were active, by user, over time.

In: good lines, each once. Out: `producer_ids`. Each proxy counts what passes it, and an id may pass several: the maximum of one
proxy is a lower bound, and the sum over proxies an upper one; both are there.
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start, dated


def producer_ids(lines: DataFrame, seconds: int) -> DataFrame:
    """For each bucket of `seconds` and user: `active` and `counted` (the maximum of one proxy), `active_all` (sum over
    proxies), `window_ms`, `limit` (the lowest)."""
    sums = f"""
        with each as (
            select {bucket_start("start", seconds)} as start, user, proxy,
                max(active) as active, max(counted) as counted, max(window_ms) as window_ms, min(limit) as limit
            from {{lines}} where type = 'producer_ids' group by all
        )
        select start, user, max(active) as active, max(counted) as counted, sum(active) as active_all,
            max(window_ms) as window_ms, min(limit) as limit
        from each group by start, user
    """
    return query(dated(sums, seconds), lines=lines)
