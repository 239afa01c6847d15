"""Topics: the part of Produce and Fetch for each topic, by principal and client id, over time.

In: good lines, each once. Out: `topics`. Left to others: whole requests (`traffic`).
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start, dated


def topics(lines: DataFrame, seconds: int) -> DataFrame:
    """Sums for each bucket of `seconds`, topic, principal, client id and API: requests that named it, record bytes, records.

    `topic_id` is set, and `topic` the same, where the proxy had not seen the topic's name. `records` is null where nothing
    counted them.
    """
    sums = f"""
        select {bucket_start("start", seconds)} as start, topic, topic_id, principal, client_id, api,
            sum(requests) as requests, sum(record_bytes) as record_bytes, sum(records) as records
        from {{lines}} where type = 'usage' and topic is not null group by all
    """
    return query(dated(sums, seconds), lines=lines)
