"""Holders: whose limit holds for whom. In: pairs of principal and client id, limits. Out: for each pair and kind of quota the limit
of the most specific of Kafka's eight levels, and its owner: all who share an owner share the limit.
"""

from collections.abc import Sequence
from itertools import product

from pyspark.sql import DataFrame, SparkSession

from reports.arrow_rows import local_frame
from reports.quotas.limits import DEFAULT, Limit, QuotaFile
from reports.sql import query

_RULE = "kind string, rule_user string, rule_client string, limit double, burst double, level int"
_USER = "regexp_replace(principal, '^User:', '')"
# What the rules that fit a user and a client id have for them: Kafka's eight levels. None of both is no rule.
_PAIRS = [*product(("user", f"'{DEFAULT}'", "null"), ("client", f"'{DEFAULT}'", "null"))][:-1]
_LEVELS = ", ".join(f"named_struct('user', cast({user} as string), 'client', cast({client} as string))" for user, client in _PAIRS)


def holders(spark: SparkSession, pairs: DataFrame, limits: Sequence[Limit]) -> DataFrame:
    """`pairs` has `principal` and `client_id`. Out: those, `kind`, `limit` and `burst`, and the owner: `owner_user` and
    `owner_client`, null for a limit of a user. As in `quota.entity`, each user has its own share of a limit of a client id."""
    rows = [(one.kind, one.user, one.client_id, one.rate, one.burst, one.level) for one in limits]
    # All that fits somebody is found by equality: a condition would be tried for every pair and every rule.
    return query(
        f"""
        with named as (select principal, client_id, {_USER} as user, coalesce(client_id, '') as client from {{pairs}}),
        asked as (select *, explode(array({_LEVELS})) as asked from named),
        fitting as (
            select /*+ broadcast(rules) */ asked.*, rules.*,
                row_number() over (partition by principal, client_id, kind order by level) as place
            from asked join {{rules}} as rules on rule_user <=> asked.asked.user and rule_client <=> asked.asked.client
        )
        select principal, client_id, kind, user as owner_user, if(rule_client is null, null, client) as owner_client, limit, burst
        from fitting where place = 1
        """,
        pairs=pairs,
        rules=local_frame(spark, rows, _RULE),
    )


def tenants(spark: SparkSession, principals: DataFrame, quotas: QuotaFile) -> DataFrame:
    """`principals` has `principal`. Out: those that belong to a tenant, and its name as `tenant`. As in `quota.tenants`, who is
    listed goes before prefixes, the longest prefix before shorter ones."""
    rows = [(tenant, name, True) for tenant, one in quotas.tenants.items() for name in one.users]
    rows += [(tenant, prefix, False) for tenant, one in quotas.tenants.items() for prefix in one.user_prefixes]
    lengths = sorted({len(name) for _, name, listed in rows if not listed})
    # As above: the beginnings that may be somebody's prefix.
    names = [(_USER, "true"), *((f"substring({_USER}, 1, {length})", "false") for length in lengths)]
    asked = ", ".join(f"named_struct('name', {name}, 'listed', {listed})" for name, listed in names)
    return query(
        f"""
        with asked as (select principal, inline(array({asked})) from {{principals}}),
        fitting as (
            select /*+ broadcast(members) */ principal, tenant,
                row_number() over (partition by principal order by listed desc, length(name) desc) as place
            from asked join {{members}} as members using (name, listed)
        )
        select principal, tenant from fitting where place = 1
        """,
        principals=principals,
        members=local_frame(spark, rows, "tenant string, name string, listed boolean"),
    )
