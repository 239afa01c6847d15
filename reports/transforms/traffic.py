"""Traffic: whole requests and what they weigh on the wire, by principal, client id and API, over time.

In: good lines, each once. Out: `traffic`. Left to others: topics, who refused what.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from reports.transforms.buckets import bucket_start, dated

OTHER = "<other>"
"""Name under which a proxy sums what goes beyond its `max_keys`, lines about requests and about topics together."""


def traffic(lines: DataFrame, seconds: int) -> DataFrame:
    """Sums for each bucket of `seconds`, principal, client id and API: requests, bytes, mutations charged, throttle time asked for.

    `requests` leaves out lines of `<other>`, where requests cannot be told apart from the topics that they name.
    """
    of_request = F.col("topic").isNull()
    usage = lines.where((F.col("type") == "usage") & (of_request | (F.col("topic") == OTHER))).select(
        bucket_start("start", seconds).alias("start"),
        "principal",
        "client_id",
        "api",
        F.when(of_request, F.col("requests")).otherwise(0).alias("requests"),
        "request_bytes",
        "response_bytes",
        "mutations",
        "throttle_ms",
    )
    sums = usage.groupBy("start", "principal", "client_id", "api").agg(
        *[F.sum(name).alias(name) for name in ("requests", "request_bytes", "response_bytes", "mutations", "throttle_ms")]
    )
    return dated(sums, seconds)
