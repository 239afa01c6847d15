"""Traffic: whole requests and what they weigh on the wire, by principal, client id and API, over time.

In: good lines, each once. Out: `traffic`. Left to others: topics, who refused what.
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start, dated

OTHER = "<other>"
"""Name under which a proxy sums what goes beyond its `max_keys`, lines about requests and about topics together."""


def traffic(lines: DataFrame, seconds: int) -> DataFrame:
    """Sums for each bucket of `seconds`, principal, client id and API: requests, bytes, mutations charged, throttle time asked for.

    `requests` leaves out lines of `<other>`, where requests cannot be told apart from the topics that they name.
    """
    sums = f"""
        select {bucket_start("start", seconds)} as start, principal, client_id, api,
            sum(if(topic is null, requests, 0)) as requests, sum(request_bytes) as request_bytes,
            sum(response_bytes) as response_bytes, sum(mutations) as mutations, sum(throttle_ms) as throttle_ms
        from {{lines}} where type = 'usage' and (topic is null or topic = '{OTHER}') group by all
    """
    return query(dated(sums, seconds), lines=lines)
