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
    user = F.regexp_replace("principal", "^User:", "").alias("user")
    named = pairs.select("principal", "client_id", user, F.coalesce("client_id", F.lit("")).alias("client"))
    fits = _fits("rule_user", "user") & _fits("rule_client", "client")
    best = F.row_number().over(Window.partitionBy("principal", "client_id", "kind").orderBy("level"))
    return (
        named.join(rules, on=fits, how="inner")
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


def tenants(spark: SparkSession, principals: DataFrame, quotas: QuotaFile) -> DataFrame:
    """`principals` has `principal`. Out: those that belong to a tenant, and its name as `tenant`. As in `quota.tenants`, who is
    listed goes before prefixes, the longest prefix before shorter ones."""
    rows = [(tenant, name, True) for tenant, one in quotas.tenants.items() for name in one.users]
    rows += [(tenant, prefix, False) for tenant, one in quotas.tenants.items() for prefix in one.user_prefixes]
    members = F.broadcast(local_frame(spark, rows, "tenant string, name string, listed boolean"))
    user = F.regexp_replace("principal", "^User:", "").alias("user")
    named = principals.select("principal", user)
    fits = F.when(F.col("listed"), F.col("user") == F.col("name")).otherwise(F.col("user").startswith(F.col("name")))
    best = F.row_number().over(Window.partitionBy("principal").orderBy(F.desc("listed"), F.length("name").desc()))
    return named.join(members, on=fits, how="inner").withColumn("_best", best).where("_best = 1").select("principal", "tenant")


def _fits(rule: str, name: str) -> Column:
    return F.col(rule).isNull() | (F.col(rule) == F.lit(DEFAULT)) | (F.col(rule) == F.col(name))
