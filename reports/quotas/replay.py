"""Replay: the traffic of the logs against limits. In: good lines, each once, and a `QuotaFile`. Out: one row for each owner of a
limit: how much of it was used, and what the limit would have done.

The traffic is what passed: where other limits held somebody back, that one would have sent more. A limit is replayed as the
proxy enforces it: a rate lets 10 s of itself pass at once, what comes beyond is a debt that is paid at the rate, and while there is
a debt its owner is throttled. Who sends again as soon as it may stays at the limit, and counts as throttled for as long as that.

Limits of what there is at a time (topics, partitions, stored bytes) are held against what the logs say that tenants, users and
topics had: what is there stays, and what would come on top of the limit is refused. So what had not passed at the end is growth
alone, and an owner counts as throttled for as long as it had more than the limit, as nothing could be added then.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from advice.use import LEVEL_SECONDS
from reports.arrow_rows import local_frame
from reports.quotas.catalogue import KEYS, TOPIC_RATES, TOPIC_STORED, Measure
from reports.quotas.holders import holders, tenants
from reports.quotas.limits import LEVELS, QuotaFile, of_tenants
from reports.sql import query
from reports.tables import Lengths
from reports.transforms.buckets import interval_bucket

BURST_SECONDS = 10
"""Seconds of a rate that pass at once, as in the proxy."""
_AT_LIMIT = 0.05
"""The part of a burst by which somebody may be below a limit and count as at it: requests do not end with the interval."""
_SHORT = 0.1
"""The part of a burst that passes in a short interval, at most."""
NEAR = 0.8
"""The part of a limit from which on somebody is near it."""
_NO_RATES = {"producer_ids", *LEVELS}
NOBODY = "cast(null as string) as owner_user, cast(null as string) as owner_client"
"""SQL: the owner of a limit that is of no user and no client id."""
WHO = ("kind", "owner_user", "owner_client", "topic")
"""Whose limit a row is about. The kinds of tenants have the name of the tenant in `topic`, as ledgers do."""
OWNER = ", ".join(WHO)
"""The same in SQL."""
SCHEMA = (
    "kind string, owner_user string, owner_client string, topic string, limit double, burst double, p50 double, p95 double, "
    "p99 double, peak double, total double, seconds bigint, seconds_over bigint, seconds_throttled double, longest_wait double, "
    "waiting double, first_over timestamp, last_over timestamp, times bigint"
)
"""Of the outcome. Figures are in the quota's unit per second; `total` and `waiting` in the unit; `waiting` is what had not passed
at the end; `seconds` is how long there was traffic, `seconds_over` how long its average was above the limit, `times` how
often its throttling began."""


class Wanted(NamedTuple):
    """What owners of limits wanted, in WHO, `limit` and `at` (seconds since the epoch): of rates, in each interval, `burst` and
    `demand`, which is above 0; of what there is at a time, in each LEVEL_SECONDS, `level`, the most that one proxy saw. None
    without such a limit."""

    rates: DataFrame | None
    levels: DataFrame | None


def wanted(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, interval: int) -> Wanted:
    """`interval` is that of the logs, in seconds."""
    return Wanted(_rates(spark, lines, quotas, interval), _levels(spark, lines, quotas))


def replay(spark: SparkSession, lines: DataFrame, by_owner: Wanted, quotas: QuotaFile, lengths: Lengths) -> DataFrame:
    """Every limit of `quotas` against the traffic; see SCHEMA. Queues are walked by the logs' intervals, rates are averages over
    `lengths.rates`. Limits without traffic have no row."""
    seconds = lengths.rates
    found = local_frame(spark, [], SCHEMA)
    if by_owner.rates is not None:
        found = found.unionByName(_queued(by_owner.rates, lengths))
    if any(limit.kind == "producer_ids" for limit in quotas.limits):
        found = found.unionByName(_ids(spark, lines, quotas, seconds))
    if quotas.topics_total is not None or quotas.topics:
        found = found.unionByName(_topics(spark, lines, quotas, seconds))
    return found if by_owner.levels is None else found.unionByName(_held(by_owner.levels))


def _rates(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame | None:
    found = []
    if any(limit.kind not in _NO_RATES for limit in quotas.limits):
        found.append(_demand(spark, lines, quotas, seconds))
    if any(quotas.topic_rates.values()):
        found.append(_topic_demand(spark, lines, quotas, seconds))
    if any(one.rates for one in quotas.tenants.values()):
        found.append(_tenant_demand(spark, lines, quotas, seconds))
    return reduce(DataFrame.unionByName, found) if found else None


def _demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """What came for each owner: `at` (seconds since the epoch), `demand`, above 0."""
    kinds = _measures(limit.kind for limit in quotas.limits)
    # Of the lines themselves: of their sums, Spark would reckon these a second time.
    pairs = query("select distinct principal, client_id from {lines} where type = 'usage'", lines=lines)
    return query(
        f"""
        select kind, owner_user, owner_client, cast(null as string) as topic, limit, burst, at,
            cast(sum(demand) as double) as demand
        from ({_came(kinds, ("principal", "client_id"), seconds)}) as came join {{owned}} as owned
            on came.principal = owned.principal and came.client_id <=> owned.client_id and came.of = owned.kind
        group by all
        """,
        lines=lines,
        owned=holders(spark, pairs, [limit for limit in quotas.limits if limit.kind in kinds]),
    )


def _tenant_demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """The same for each tenant, of all its users together."""
    kinds = _measures(kind for one in quotas.tenants.values() for kind in one.rates)
    limits = [(name, kind, of_tenants(kind), rate) for name, one in quotas.tenants.items() for kind, rate in one.rates.items()]
    principals = query("select distinct principal from {lines} where type = 'usage'", lines=lines)
    return query(
        f"""
        select /*+ broadcast(rates) */ kind, {NOBODY}, tenant as topic, limit, 0D as burst, at,
            cast(sum(demand) as double) as demand
        from ({_came(kinds, ("principal",), seconds)}) join {{members}} using (principal) join {{rates}} as rates using (tenant, of)
        group by all
        """,
        lines=lines,
        members=tenants(spark, principals, quotas),
        rates=local_frame(spark, limits, "tenant string, of string, kind string, limit double"),
    )


def _levels(spark: SparkSession, lines: DataFrame, quotas: QuotaFile) -> DataFrame | None:
    limits = [limit for limit in quotas.limits if limit.kind in LEVELS]
    of_groups = [(name, of_tenants(kind), limit) for name, one in quotas.tenants.items() for kind, limit in one.levels.items()]
    of_topics = [(topic, TOPIC_STORED, limit) for topic, limit in quotas.topics_stored.items()]
    found = []
    if limits:
        had = _had(lines, {kind: LEVELS[kind] for kind in {limit.kind for limit in limits}}, "user")
        pairs = query("select distinct name as principal, cast(null as string) as client_id from {had}", had=had)
        mine = """
            select kind, owner_user, owner_client, cast(null as string) as topic, limit, at, level
            from {had} as had join {owned} as owned on had.name = owned.principal and had.of = owned.kind
        """
        found.append(query(mine, had=had, owned=holders(spark, pairs, limits)))
    for rows, name, fields in (
        (of_groups, "tenant", {of_tenants(kind): level for kind, level in LEVELS.items()}),
        (of_topics, "topic", {TOPIC_STORED: "stored_bytes"}),
    ):
        if rows:
            sought = {kind: field for kind, field in fields.items() if any(kind == row[1] for row in rows)}
            theirs = f"""
                select /*+ broadcast(limits) */ of as kind, {NOBODY}, name as topic, limit, at, level
                from {{had}} join {{limits}} as limits using (name, of)
            """
            limited = local_frame(spark, rows, "name string, of string, limit double")
            found.append(query(theirs, had=_had(lines, sought, name), limits=limited))
    return reduce(DataFrame.unionByName, found) if found else None


def _had(lines: DataFrame, fields: Mapping[str, str], name: str) -> DataFrame:
    """`name`, `of` (a kind), `at`, `level` of those whose name is in a column of lines `owned`; `fields`: kind -> field."""
    told = f"""
        select name, of, at, cast(max(level) as double) as level from (
            select {name} as name, {interval_bucket(LEVEL_SECONDS)} as at, {_stack(fields)} as (of, level)
            from {{lines}} where type = 'owned' and {name} is not null
        ) where level is not null group by name, of, at
    """
    return query(told, lines=lines)


def _held(had: DataFrame) -> DataFrame:
    """The outcome for limits of what there is at a time."""
    start = "named_struct('had', 0D, 'before', cast(null as double), 'refused', 0D, 'times', 0, 'limit', first(limit))"
    walk = f"aggregate(array_sort(collect_list(struct(at, level))), {start}, (state, look) -> {_look()})"
    throttled = f"count_if(level > limit) * {LEVEL_SECONDS}"
    rows = f"select *, level * {LEVEL_SECONDS} as demand, 0D as burst from {{had}}"
    figures = _told(rows, LEVEL_SECONDS, throttled=throttled, waiting="walk.refused", times="walk.times", total="peak", walk=walk)
    return query(figures, had=had)


def _look() -> str:
    """SQL: one look. `had`: what there would be under the limit; `before`: what the look before saw, null before the first."""
    had = "if(state.before is null, look.level, state.had)"
    then = f"({had} + look.level - coalesce(state.before, look.level))"
    now = f"if({then} > {had}, least({then}, greatest({had}, state.limit)), greatest({then}, 0D))"
    begins = "look.level > state.limit and coalesce(state.before, 0D) <= state.limit"
    return f"""named_struct(
        'had', {now},
        'before', look.level,
        'refused', state.refused + greatest({then} - {now}, 0D),
        'times', state.times + if({begins}, 1, 0),
        'limit', state.limit
    )"""


def _measures(kinds: Iterable[str]) -> dict[str, Measure]:
    """What these kinds of users and client ids measure, of those that logs tell of."""
    limited = set(kinds)
    return {key.kind: key.measure for key in KEYS if key.measure is not None and key.kind in limited}


def _came(measures: Mapping[str, Measure], by: Sequence[str], seconds: int) -> str:
    """SQL: what came in each bucket, of `lines`: `at`, the columns of `by`, `of` (a kind), `demand` above 0."""
    keys, sums = ", ".join(by), ", ".join(f"sum({_measured(measure)}) as {kind}" for kind, measure in measures.items())
    return f"""
        select * from (
            select at, {keys}, {_stack({kind: kind for kind in measures})} as (of, demand) from (
                select {interval_bucket(seconds)} as at, {keys}, {sums} from {{lines}} where type = 'usage' group by all
            )
        ) where demand > 0
    """


def _stack(columns: Mapping[str, str]) -> str:
    """SQL: a row for each name and column in place of one row with all columns."""
    pairs = ", ".join(f"'{name}', {column}" for name, column in columns.items())
    return f"stack({len(columns)}, {pairs})"


def _topic_demand(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """The same for each topic that has a rate of its own, of everybody together."""
    limits = [(kind, topic, rate) for kind, rates in quotas.topic_rates.items() for topic, rate in rates.items()]
    kind = " ".join(f"when {_measured(one.measure)} > 0 then '{one.kind}'" for one in TOPIC_RATES)
    return query(
        f"""
        with sums as (
            select {interval_bucket(seconds)} as at, topic, case {kind} end as kind, cast(sum(record_bytes) as double) as demand
            from {{lines}} where type = 'usage' and topic is not null group by all
        )
        select /*+ broadcast(rates) */ kind, {NOBODY}, topic, limit, 0D as burst, at, demand
        from sums join {{rates}} as rates using (kind, topic)
        """,
        lines=lines,
        rates=local_frame(spark, limits, "kind string, topic string, limit double"),
    )


def _measured(measure: Measure) -> str:
    """SQL: what a line counts towards a limit, 0 where the limit is about other lines."""
    mine = f"topic is {'not null' if measure.by_topic else 'null'}"
    if measure.apis:
        mine += f" and api_key in ({', '.join(map(str, measure.apis))})"
    return f"if({mine}, {measure.field}, 0)"


def _queued(demand: DataFrame, lengths: Lengths) -> DataFrame:
    start = """named_struct(
        'level', -first(burst), 'end', 0D, 'throttled', 0D, 'longest', 0D, 'times', 0, 'limit', first(limit), 'burst', first(burst)
    )"""
    walk = f"aggregate(array_sort(flatten(collect_list(parts))), {start}, (state, part) -> {_step(float(lengths.interval))})"
    each = f"""
        select {OWNER}, limit, burst, at - at % {lengths.rates} as at,
            sum(demand) as demand, collect_list(struct(at, demand)) as parts
        from (select {OWNER}, limit, if(burst > 0, burst, limit * {BURST_SECONDS}) as burst, at, demand from {{demand}})
        group by all
    """
    told = _told(
        each,
        lengths.rates,
        throttled="walk.throttled",
        wait="walk.longest / walk.limit",
        waiting="greatest(walk.level, 0D)",
        times="walk.times",
        walk=walk,
    )
    return query(told, demand=demand)


def _step(length: float) -> str:
    """SQL: one interval. `level` is what came beyond the burst less what could go: above 0 it is a debt, at -burst nothing was
    used.

    Who waits as told is never far above 0, and at 0 as long as there is something to send. When in the interval it came is not
    known: at its start it would be gone soonest, but it cannot have come sooner than who waits as told may send it. In an interval
    longer than the burst takes it came evenly.
    """
    limit, burst = "state.limit", "state.burst"
    passes = f"({limit} * {length}D)"
    gap = "greatest(part.at - state.`end`, 0D)"
    before = f"greatest(state.level - {limit} * {gap}, -{burst})"
    sooner = f"greatest({before} + part.demand - {passes}, -{burst})"
    last = f"part.demand * least({burst} / {passes}, 1D)"
    later = f"least(greatest({before} - {passes}, -{burst}) + {last}, 0D)"
    level = f"greatest({sooner}, {later})"
    # What came in a short interval is reckoned up to an interval too soon, so that its owner seems to have that much left.
    near = f"-greatest({burst} * {_AT_LIMIT}D, if({passes} <= {burst} * {_SHORT}D, {passes}, 0D))"
    begin = f"if({before} >= {near} and {before} < 0, 0D, {before})"
    at_limit = f"({before} >= {near} or {level} >= {near})"
    throttled = f"if({at_limit}, least(greatest(({begin} + part.demand) / {limit}, 0D), {length}D), 0D)"
    # What was left of a debt when the interval before ended was paid in the time without traffic.
    # Who is still at the limit after it has waited: no request came, as it was told to wait.
    goes_on = f"(state.throttled > 0 and state.level >= {near} and {before} >= {near})"
    paid = f"if({goes_on}, {gap}, least(greatest(state.level, 0D) / {limit}, {gap}))"
    begins = f"{throttled} > 0 and not {goes_on}"
    return f"""named_struct(
        'level', {level},
        'end', part.at + {length}D,
        'throttled', state.throttled + {throttled} + {paid},
        'longest', greatest(state.longest, {level}),
        'times', state.times + if({begins}, 1, 0),
        'limit', {limit},
        'burst', {burst}
    )"""


def _told(
    rows: str,
    seconds: int,
    *,
    throttled: str,
    times: str,
    wait: str = "0D",
    waiting: str = "0D",
    total: str = "sum(demand)",
    walk: str = "null",
) -> str:
    """SQL of the outcome, in SCHEMA, of `rows` (SQL, too): WHO, `limit`, `burst`, `at`, `demand`. The others are sums over all rows
    of an owner, or parts of `walk`, which is such a sum."""
    rate = f"(demand / {seconds}D)"
    over = f"{rate} > `limit`"
    return f"""
        select * except (quantiles, walk) from (
            select {OWNER}, first(limit) as limit, first(burst) as burst,
                percentile_approx({rate}, array(0.5D, 0.95D, 0.99D)) as quantiles,
                quantiles[0] as p50, quantiles[1] as p95, quantiles[2] as p99,
                max({rate}) as peak, {total} as total,
                count(*) * {seconds} as seconds, count_if({over}) * {seconds} as seconds_over,
                {walk} as walk, cast({throttled} as double) as seconds_throttled,
                {wait} as longest_wait, {waiting} as waiting, cast({times} as bigint) as times,
                min(if({over}, timestamp_seconds(at), null)) as first_over,
                max(if({over}, timestamp_seconds(at), null)) as last_over
            from ({rows}) group by {OWNER}
        )
    """


def _ids(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """New producer ids within a window: over the limit every Produce of the user is throttled."""
    users = query(
        # A level, not a sum over time.
        f"""
        select at, user, sum(counted) * {seconds} as demand from (
            select {interval_bucket(seconds)} as at, user, proxy, cast(max(counted) as double) as counted
            from {{lines}} where type = 'producer_ids' group by all
        ) group by at, user
        """,
        lines=lines,
    )
    pairs = query("select distinct user as principal, cast(null as string) as client_id from {users}", users=users)
    rows = """
        select kind, owner_user, owner_client, cast(null as string) as topic, limit, burst, at, demand
        from {users} as users join {owned} as owned on users.user = owned.principal
    """
    over = f"count_if(demand / {seconds} > `limit`)"
    told = _told(rows, seconds, throttled=f"{over} * {seconds}", times=over, total="peak")
    return query(told, users=users, owned=holders(spark, pairs, [one for one in quotas.limits if one.kind == "producer_ids"]))


def _topics(spark: SparkSession, lines: DataFrame, quotas: QuotaFile, seconds: int) -> DataFrame:
    """Bytes into topics: a topic over its threshold is refused while all together are over the total. Without a threshold of its
    own a topic has an equal share of what the others leave of the total."""
    own, total = quotas.topics or {}, quotas.topics_total
    rest = "null" if total is None else f"{max(float(total - sum(own.values())), 0.0)}D / greatest(others, 1)"
    rows = f"""
        with sums as (
            select {interval_bucket(seconds)} as at, topic, cast(sum(record_bytes) as double) as demand
            from {{lines}} where type = 'usage' and topic is not null and api = 'Produce' group by all
        ),
        both as (select /*+ broadcast(named) */ at, topic, demand, own from sums left join {{named}} as named using (topic)),
        others as (select count(distinct topic) as others from both where own is null),
        limited as (
            select /*+ broadcast(others) */ at, topic, demand, coalesce(own, {rest}) as limit from both cross join others
        )
        select 'bytes_in' as kind, {NOBODY}, topic, limit, 0D as burst, at, demand,
            sum(demand) over (partition by at) / {seconds}D as together
        from limited where limit > 0
    """
    excess = f"(demand - `limit` * {seconds})"
    refused = f"{excess} > 0 and together > {float(total or 0)}D"
    told = _told(
        rows,
        seconds,
        throttled=f"count_if({refused}) * {seconds}",
        waiting=f"sum(if({refused}, {excess}, 0D))",
        times=f"count_if({refused})",
    )
    return query(told, lines=lines, named=local_frame(spark, list(own.items()), "topic string, own double"))
