"""Latencies: how long requests took, by what took the time, broker and API, over time.

In: good lines, each once; their quantiles are of one interval of one proxy. Out: `latencies`. Quantiles of several intervals cannot
be had from theirs: there is their mean, weighted by requests, and the highest.
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start, dated

_KEYS = ("part", "broker_id", "api")


def latencies(lines: DataFrame, seconds: int) -> DataFrame:
    """For each bucket of `seconds`, part, broker and API: `requests`, `p50_ms` and `p99_ms` (means of intervals),
    `worst_p99_ms` (of one interval) and `max_ms`."""
    means = ", ".join(f"sum({name} * requests) / sum(requests) as {name}" for name in ("p50_ms", "p99_ms"))
    sums = f"""
        select {bucket_start("start", seconds)} as start, {", ".join(_KEYS)},
            sum(requests) as requests, {means}, max(p99_ms) as worst_p99_ms, max(max_ms) as max_ms
        from {{lines}} where type = 'latency' and requests > 0 group by all
    """
    return query(dated(sums, seconds), lines=lines)
