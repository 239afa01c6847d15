"""Refusals: items refused, by quota and by who asked, over time. Complete, as usage lines sum every request.

In: good lines, each once. Out: `refusals`. Left to others: whose quota it was, and why (`decisions`, which are a sample).
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start, dated
from reports.transforms.traffic import OTHER


def refusals(lines: DataFrame, seconds: int) -> DataFrame:
    """Sums for each bucket of `seconds`, quota, principal, client id and API: items (topics or partitions) refused.

    Only lines about whole requests count, so that an item is not counted again in the line about its topic.
    """
    sums = f"""
        with each as (
            select {bucket_start("start", seconds)} as start, principal, client_id, api, explode(refused) as (quota, items)
            from {{lines}} where type = 'usage' and (topic is null or topic = '{OTHER}')
        )
        select start, quota, principal, client_id, api, sum(items) as items
        from each group by start, quota, principal, client_id, api having sum(items) > 0
    """
    return query(dated(sums, seconds), lines=lines)
