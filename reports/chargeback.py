"""What each principal costs. In: the tables by day, prices. Out: the table `chargeback`, and the same as CSV.

Bytes in and out are whole Produce requests and Fetch responses on the wire. What is stored of a topic is the bytes of all its
replicas, as the volume lines tell, averaged over the days that they tell of; it is charged to those who produced into the topic, by
their part of what was produced into it. What is stored in topics without a known producer, and in those that no volume line
names, has a row of its own, so that all rows add up to what the volumes hold.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from reports.stored import Stored
from reports.transforms.rates import of_api

GIB = 2**30
MONTH = 30
"""Days of a month of storage."""
NOBODY = "<nobody>"
"""The principal of topics without a known producer."""
_AMOUNTS = ("in_bytes", "out_bytes", "stored_byte_days")
_COSTS = ("in_cost", "out_cost", "stored_cost", "cost")


@dataclass(frozen=True, slots=True)
class Prices:
    """Per GiB that comes in and goes out, and per GiB stored for MONTH days, in `currency`."""

    bytes_in: float = 0.0
    bytes_out: float = 0.0
    stored: float = 0.0
    currency: str = ""


def chargeback(tables: Mapping[str, DataFrame], prices: Prices) -> DataFrame:
    """For each principal: `in_bytes`, `out_bytes`, `stored_byte_days`, and their costs, the most expensive first."""
    moved = (
        tables["traffic"]
        .groupBy("principal")
        .agg(
            F.sum(of_api("Produce", "request_bytes")).alias("in_bytes"), F.sum(of_api("Fetch", "response_bytes")).alias("out_bytes")
        )
    )
    amounts = moved.join(_stored(tables), on="principal", how="full").na.fill(0)
    costs = {
        "in_cost": F.col("in_bytes") / GIB * F.lit(prices.bytes_in),
        "out_cost": F.col("out_bytes") / GIB * F.lit(prices.bytes_out),
        "stored_cost": F.col("stored_byte_days") / GIB / MONTH * F.lit(prices.stored),
    }
    priced = amounts.select("principal", *_AMOUNTS, *[cost.alias(name) for name, cost in costs.items()])
    total = F.col("in_cost") + F.col("out_cost") + F.col("stored_cost")
    return priced.select("*", total.alias("cost"), F.lit(prices.currency).alias("currency")).orderBy(F.desc("cost"), "principal")


def _stored(tables: Mapping[str, DataFrame]) -> DataFrame:
    """`principal`, `stored_byte_days`."""
    both = F.coalesce("first_bytes", F.lit(0)) + F.coalesce("last_bytes", F.lit(0))
    by_topic = tables["volume_topics"].groupBy("topic").agg(F.sum(both / 2).alias("byte_days"))
    produced = (
        tables["topics"].where(F.col("api") == "Produce").groupBy("topic", "principal").agg(F.sum("record_bytes").alias("bytes"))
    )
    part = F.col("bytes") / F.sum("bytes").over(Window.partitionBy("topic"))
    parts = produced.where(F.col("bytes") > 0).select("topic", "principal", part.alias("part"))
    owned = by_topic.join(parts, on="topic", how="left").na.fill({"principal": NOBODY, "part": 1.0})
    return owned.groupBy("principal").agg(F.sum(F.col("byte_days") * F.col("part")).cast("bigint").alias("stored_byte_days"))


def write_csv(table: Stored, path: Path) -> None:
    """The table as CSV, with amounts in GiB. A name that a spreadsheet would take for a formula has an apostrophe before it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["principal", "in_gib", "out_gib", "stored_gib_months", "in_cost", "out_cost", "stored_cost", "cost", "currency"]
        )
        for row in table.rows(["principal", *_AMOUNTS, *_COSTS, "currency"]):
            amounts = [row["in_bytes"] / GIB, row["out_bytes"] / GIB, row["stored_byte_days"] / GIB / MONTH]
            costs = [row[name] for name in _COSTS]
            writer.writerow([_harmless(row["principal"]), *(f"{value:.6f}" for value in (*amounts, *costs)), row["currency"]])


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
