"""Rates: for how long each principal, client id and topic had which rate, from which percentiles of any period can be computed.

In: good lines, each once. Out: `rates`, a histogram for each day. Histograms of days add up, which percentiles do not. Bins
are an eighth of a doubling wide, so that a percentile is right to within 4.5 %; sums and peaks are exact.
"""

from pyspark.sql import DataFrame

from reports.sql import query
from reports.transforms.buckets import bucket_start

STEPS = 8
"""Bins for each doubling of the rate."""
SCOPES = ("principal", "client", "topic")
DIRECTIONS = ("produced", "fetched")
ENTITY = ("scope", "principal", "client_id", "topic")


def rates(lines: DataFrame, seconds: int) -> DataFrame:
    """Seconds at each rate, the rate averaged over buckets of `seconds`; time without traffic is left out.

    Out: `date`, `scope` (principal, client or topic), `principal`, `client_id`, `topic` (null where not of the scope), `direction`,
    `bin` (rates from 2^(bin/8) bytes per second on), `seconds`, `bytes`, `peak` (bytes per second, the highest).
    """
    start, entity = bucket_start("start", seconds), ", ".join(ENTITY)
    requests, records = (
        f"sum(if(api = 'Produce', {produced}, 0)) as produced, sum(if(api = 'Fetch', {fetched}, 0)) as fetched"
        for produced, fetched in (("request_bytes", "response_bytes"), ("record_bytes", "record_bytes"))
    )
    return query(
        f"""
        with used as (select * from {{lines}} where type = 'usage' and api in ('Produce', 'Fetch')),
        clients as (select {start} as start, principal, client_id, {requests} from used where topic is null group by all),
        every as (
            select start, 'client' as scope, principal, client_id, null as topic, produced, fetched from clients
            union all
            select start, 'principal', principal, null, null, sum(produced), sum(fetched) from clients group by start, principal
            union all
            select {start}, 'topic', null, null, topic, {records} from used where topic is not null group by all
        ),
        long as (select start, {entity}, stack(2, 'produced', produced, 'fetched', fetched) as (direction, bytes) from every),
        rated as (select to_date(start) as date, {entity}, direction, bytes, bytes / {seconds} as rate from long where bytes > 0)
        select date, {entity}, direction, cast(floor(log2(rate) * {STEPS}) as int) as bin,
            count(*) * {seconds} as seconds, sum(bytes) as bytes, max(rate) as peak
        from rated group by all
        """,
        lines=lines,
    )
