"""Holders: whose limit holds for whom. In: pairs of principal and client id, limits. Out: for each pair and kind of quota the limit
of the most specific of Kafka's eight levels, and its owner: all who share an owner share the limit.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from reports.arrow_rows import local_frame
from reports.quotas.limits import DEFAULT, Limit, QuotaFile

OWNER = ("kind", "user", "client_id", "limit", "burst")
_RULE = "kind string, rule_user string, rule_client string, limit double, burst double, level int"


def holders(spark: SparkSession, pairs: DataFrame, limits: Sequence[Limit]) -> DataFrame:
    """`pairs` has `principal` and `client_id`. Out: those, and OWNER: `user` and `client_id` of the owner are `owner_user`,
    `owner_client`, null for a limit of a user. As in `quota.entity`, each user has its own share of a limit of a client id."""
    rows = [(one.kind, one.user, one.client_id, one.rate, one.burst, one.level) for one in limits]
    rules = F.broadcast(local_frame(spark, rows, _RULE))
    user = _user("principal").alias("user")
    named = pairs.select("principal", "client_id", user, F.coalesce("client_id", F.lit("")).alias("client"))
    asked = named.select("*", F.explode(_levels()).alias("_asked"))
    # All that fits somebody is found by equality: a condition would be tried for every pair and every rule.
    same = [rules[f"rule_{part}"].eqNullSafe(asked["_asked"][part]) for part in ("user", "client")]
    best = F.row_number().over(Window.partitionBy("principal", "client_id", "kind").orderBy("level"))
    return (
        asked.join(rules, on=same[0] & same[1], how="inner")
        .withColumn("_best", best)
        .where("_best = 1")
        .select(
            "principal",
            "client_id",
            "kind",
            F.col("user").alias("owner_user"),
            F.when(F.col("rule_client").isNotNull(), F.col("client")).alias("owner_client"),
            "limit",
            "burst",
        )
    )


def _levels() -> Column:
    """What the rules that fit a user and a client id have for them: Kafka's eight levels."""
    users = [F.col("user"), F.lit(DEFAULT), F.lit(None).cast("string")]
    clients = [F.col("client"), F.lit(DEFAULT), F.lit(None).cast("string")]
    levels = [F.struct(user.alias("user"), client.alias("client")) for user in users for client in clients]
    return F.array(*levels[:-1])  # none of both is no rule


def tenants(spark: SparkSession, principals: DataFrame, quotas: QuotaFile) -> DataFrame:
    """`principals` has `principal`. Out: those that belong to a tenant, and its name as `tenant`. As in `quota.tenants`, who is
    listed goes before prefixes, the longest prefix before shorter ones."""
    rows = [(tenant, name, True) for tenant, one in quotas.tenants.items() for name in one.users]
    rows += [(tenant, prefix, False) for tenant, one in quotas.tenants.items() for prefix in one.user_prefixes]
    members = F.broadcast(local_frame(spark, rows, "tenant string, name string, listed boolean"))
    user = _user("principal")
    lengths = sorted({len(name) for _, name, listed in rows if not listed})
    # As above: the beginnings that may be somebody's prefix.
    names = [(user, True), *((F.substring(user, 1, length), False) for length in lengths)]
    asked = F.array(*[F.struct(name.alias("name"), F.lit(listed).alias("listed")) for name, listed in names])
    named = principals.select("principal", F.explode(asked).alias("_asked")).select("principal", "_asked.*")
    best = F.row_number().over(Window.partitionBy("principal").orderBy(F.desc("listed"), F.length("name").desc()))
    found = named.join(members, on=["name", "listed"], how="inner").withColumn("_best", best)
    return found.where("_best = 1").select("principal", "tenant")


def _user(principal: str) -> Column:
    return F.regexp_replace(principal, "^User:", "")
