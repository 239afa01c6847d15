"""What owners of limits want: what they used in the busy intervals of the logs, and how the limits in force held them back.

In: what owners wanted (`reports.quotas.replay`), decisions, and a `QuotaFile`. Out: the columns of COLUMNS for each owner, of which
`advice.limits` makes a suggestion. `kafka-quota-proxy quotas suggest` reads the same lines in its own way
(`proxy/operate/suggest.py`), and a test holds both to the same outcome.

Who asked decides whose limit it was, as with traffic: a limit of a tenant holds back the user who asked, too, and one of a user its
tenant. Limits of what there is at a time are those of whom the decision names, as topics are not of who asks.
"""

from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, TimestampType

from advice.use import LEVEL_SECONDS, PERCENTILE
from reports.arrow_rows import local_frame
from reports.quotas.catalogue import TOPIC_STORED
from reports.quotas.holders import holders, tenants
from reports.quotas.limits import LEVELS, QuotaFile, of_tenants
from reports.quotas.replay import NOBODY, OWNER, SCHEMA, WHO, Wanted
from reports.sql import query, text_list
from reports.transforms.buckets import bucket_start

COLUMNS = (
    "intervals bigint, used double, largest double, throttled bigint, throttled_told double, refused bigint, held bigint, "
    "hit_intervals bigint, hit_limit double"
)
"""`used` is the 99th percentile of the rates of `intervals` with any use, `largest` the largest. `throttled`, `refused` and `held`
are decisions, `throttled_told` the seconds of the throttles in the log, `hit_intervals` the intervals in which there was any of
these, `hit_limit` the highest limit; null where it was one of another level."""


def with_demand(
    spark: SparkSession, replayed: DataFrame, by_owner: Wanted, decided: DataFrame, quotas: QuotaFile, interval: int
) -> DataFrame:
    """The outcome of a replay with COLUMNS behind it, and with rows of owners of whom nothing passed."""
    histories = [] if by_owner.rates is None else [_used(by_owner.rates, interval)]
    histories += [] if by_owner.levels is None else [_most(by_owner.levels)]
    parts = [replayed, *histories, *_hits(spark, decided, quotas, interval)]
    columns = local_frame(spark, [], f"{SCHEMA}, {COLUMNS}")
    both = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts, columns)
    figures = [field for field in columns.schema.fields if field.name not in WHO]
    firsts = ", ".join(f"first({field.name}, true) as {field.name}" for field in figures)
    limited = f"""
        with sums as (select {OWNER}, {firsts} from {{both}} group by {OWNER})
        select {OWNER}, {", ".join(map(_or_nothing, figures))}
        from (select * except (limit), coalesce(limit, hit_limit) as limit from sums) where limit is not null
    """
    return query(limited, both=both)


def _or_nothing(field: StructField) -> str:
    """SQL: 0 in place of null; what has no 0 stays as it is."""
    if field.name == "hit_limit" or field.dataType == TimestampType():
        return field.name
    return f"coalesce({field.name}, cast(0 as {field.dataType.simpleString()})) as {field.name}"


def _used(rates: DataFrame, interval: int) -> DataFrame:
    rate = f"demand / {interval}D"
    used = f"""
        select {OWNER}, count(*) as intervals, percentile_approx({rate}, {PERCENTILE}D) as used, max({rate}) as largest
        from {{rates}} group by {OWNER}
    """
    return query(used, rates=rates)


def _most(levels: DataFrame) -> DataFrame:
    most = f"select {OWNER}, count(*) as intervals, max(level) as used, max(level) as largest from {{levels}} group by {OWNER}"
    return query(most, levels=levels)


def _hits(spark: SparkSession, decided: DataFrame, quotas: QuotaFile, interval: int) -> list[DataFrame]:
    """Decisions of users and clients, those of topics, and those of tenants."""
    told = _enforced(decided, interval)
    kinds = [kind for kind, limits in quotas.of_topics().items() if limits]
    kinds += ["bytes_in"] if quotas.topics or quotas.topics_total is not None else []
    named = f"""
        select kind, {NOBODY}, explode(topics) as topic, at, action, hit, throttle_ms, times, true as of_level
        from {{told}} where kind in ({text_list(kinds)})
    """
    found = [_held_back(named, told=told)] if kinds else []
    if any(one.rates for one in quotas.tenants.values()):
        found.append(_of_tenants(spark, told, quotas))
    found += _of_levels(spark, told, quotas)
    rates = [limit for limit in quotas.limits if limit.kind not in LEVELS]
    if rates:
        pairs = query("select distinct principal, client_id from {told}", told=told)
        clients = """
            select owned.kind, owner_user, owner_client, cast(null as string) as topic, at, action, hit, throttle_ms, times,
                if(owner_client is null, of_user, of_client) as of_level
            from {told} as told join {owned} as owned
                on told.principal <=> owned.principal and told.client_id <=> owned.client_id and told.kind <=> owned.kind
        """
        found.append(_held_back(clients, told=told, owned=holders(spark, pairs, rates)))
    return found


def _enforced(decided: DataFrame, interval: int) -> DataFrame:
    """The decisions that were in force, with `kind` of quota and the start `at` of the interval, or of the look, in which each was
    made. `hit` is the limit, and `times` how many decisions a row stands for."""
    looked = [*LEVELS, *map(of_tenants, LEVELS), TOPIC_STORED]
    stored = [kind for kind in looked if kind.endswith("stored_bytes")]
    looks, intervals = (f"unix_seconds({bucket_start('at', seconds)})" for seconds in (LEVEL_SECONDS, interval))
    return query(
        # Who is slowed down while a budget fills is so by a rate: that is not the limit of the budget.
        f"""
        select if(quota in ({text_list(looked)}), {looks}, {intervals}) as at,
            principal, client_id, regexp_replace(quota, '^{of_tenants("")}', '') as kind,
            startswith(quota, '{of_tenants("")}') as of_tenant,
            entity_user is not null as of_user, entity_client_id is not null as of_client,
            entity_user, entity_tenant, topics, action,
            if(quota in ({text_list(stored)}) and action = 'throttle', null, limit) as hit, throttle_ms, left_out + 1 as times
        from {{decided}} where mode = 'enforce'
        """,
        decided=decided,
    )


def _of_levels(spark: SparkSession, told: DataFrame, quotas: QuotaFile) -> list[DataFrame]:
    """Decisions by limits of what there is at a time, of users and of tenants."""
    found = []
    limits = [limit for limit in quotas.limits if limit.kind in LEVELS]
    if limits:
        mine = f"select * from {{told}} where kind in ({text_list(LEVELS)}) and of_user"
        pairs = query(f"select distinct entity_user as principal, cast(null as string) as client_id from ({mine})", told=told)
        owned = f"""
            select kind, owner_user, owner_client, cast(null as string) as topic,
                at, action, hit, throttle_ms, times, true as of_level
            from ({mine}) join (select * except (principal), principal as entity_user from {{owned}}) using (entity_user, kind)
        """
        found.append(_held_back(owned, told=told, owned=holders(spark, pairs, limits)))
    rows = [(name, kind) for name, one in quotas.tenants.items() for kind in one.levels]
    if rows:
        theirs = f"""
            select /*+ broadcast(limited) */ concat('{of_tenants("")}', kind) as kind, {NOBODY}, entity_tenant as topic,
                at, action, hit, throttle_ms, times, true as of_level
            from (select * from {{told}} where of_tenant) join {{limited}} as limited using (entity_tenant, kind)
        """
        limited = local_frame(spark, rows, "entity_tenant string, kind string")
        found.append(_held_back(theirs, told=told, limited=limited))
    return found


def _of_tenants(spark: SparkSession, told: DataFrame, quotas: QuotaFile) -> DataFrame:
    """Decisions by the tenant of who asked."""
    limits = [(name, kind) for name, one in quotas.tenants.items() for kind in one.rates]
    theirs = f"""
        select /*+ broadcast(limited) */ concat('{of_tenants("")}', kind) as kind, {NOBODY}, tenant as topic,
            at, action, hit, throttle_ms, times, of_tenant as of_level
        from {{told}} join {{members}} using (principal) join {{limited}} as limited using (tenant, kind)
    """
    members = tenants(spark, query("select distinct principal from {told}", told=told), quotas)
    return _held_back(theirs, told=told, members=members, limited=local_frame(spark, limits, "tenant string, kind string"))


def _held_back(decisions: str, **frames: DataFrame) -> DataFrame:
    """Sums for each owner of a limit of what `decisions`, in SQL, says of `frames`."""
    times = {"throttled": "throttle", "refused": "refuse", "held": "hold"}
    sums = ", ".join(f"sum(if(action = '{action}', times, 0)) as {name}" for name, action in times.items())
    return query(
        f"""
        select {OWNER}, {sums}, sum(if(action = 'throttle', throttle_ms, 0)) / 1000 as throttled_told,
            count(distinct at) as hit_intervals, max(if(of_level, hit, null)) as hit_limit
        from ({decisions}) group by {OWNER}
        """,
        **frames,
    )
