"""What each principal costs. In: the tables by day, prices. Out: the table `chargeback`, and the same as CSV.

Bytes in and out are whole Produce requests and Fetch responses on the wire. What is stored of a topic is the bytes of all its
replicas, as the volume lines tell, averaged over the days that they tell of; it is charged to those who produced into the topic, by
their part of what was produced into it. What is stored in topics without a known producer, and in those that no volume line
names, has a row of its own, so that all rows add up to what the volumes hold.
"""

import csv
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from reports.arrow_rows import table_schema
from reports.stored import LARGEST_SUM, Part, Stored, in_order, of_api, summed, with_columns_of
from reports.tables import Tables

GIB = 2**30
MONTH = 30
"""Days of a month of storage."""
NOBODY = "<nobody>"
"""The principal of topics without a known producer."""
_AMOUNTS = ("in_bytes", "out_bytes", "stored_byte_days")
_COSTS = ("in_cost", "out_cost", "stored_cost", "cost")
_PRODUCED = ("topic", "principal")
CHARGEBACK = table_schema(
    "principal string, in_bytes bigint, out_bytes bigint, stored_byte_days bigint, in_cost double, out_cost double, "
    "stored_cost double, cost double, currency string"
)
"""The table `chargeback`."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Per GiB that comes in and goes out, and per GiB stored for MONTH days, in `currency`."""

    bytes_in: float = 0.0
    bytes_out: float = 0.0
    stored: float = 0.0
    currency: str = ""


def chargeback(tables: Tables, prices: Prices) -> pa.Table:
    """For each principal: `in_bytes`, `out_bytes`, `stored_byte_days`, and their costs, the most expensive first.

    Raises:
        OverflowError: a sum does not fit in 64 bits.
    """
    moved = summed(
        tables["traffic"].parts(["principal", "api", "request_bytes", "response_bytes"]),
        {"principal": "principal"},
        {"in_bytes": (of_api("Produce", "request_bytes"), "sum"), "out_bytes": (of_api("Fetch", "response_bytes"), "sum")},
    )
    stored = _stored(tables)
    names = pc.unique(pa.chunked_array([*moved["principal"].chunks, *stored["principal"].chunks], pa.string()))
    rows = with_columns_of(with_columns_of(pa.table({"principal": names}), moved, ["principal"]), stored, ["principal"])
    amounts = {name: pc.fill_null(rows[name], 0) for name in _AMOUNTS}
    gib = {name: pc.divide(amount.cast(pa.float64(), safe=False), float(GIB)) for name, amount in amounts.items()}
    costs = {
        "in_cost": pc.multiply(gib["in_bytes"], prices.bytes_in),
        "out_cost": pc.multiply(gib["out_bytes"], prices.bytes_out),
        "stored_cost": pc.multiply(pc.divide(gib["stored_byte_days"], float(MONTH)), prices.stored),
    }
    costs["cost"] = reduce(pc.add, costs.values())
    currency = pa.repeat(pa.scalar(prices.currency), rows.num_rows)
    priced = pa.table({"principal": rows["principal"], **amounts, **costs, "currency": currency})
    return in_order(priced, [("cost", "descending"), ("principal", "ascending")])


def _stored(tables: Tables) -> pa.Table:
    """`principal`, `stored_byte_days`."""
    told = tables["volume_topics"].parts(["topic", "first_bytes", "last_bytes"])
    by_topic = summed(told, {"topic": "topic"}, {"byte_days": (_half_of_both, "sum")})
    parts = (part.filter(pc.equal(part["api"], "Produce")) for part in tables["topics"].parts([*_PRODUCED, "api", "record_bytes"]))
    produced = summed(parts, {name: name for name in _PRODUCED}, {"bytes": ("record_bytes", "sum")})
    produced = produced.filter(pc.greater(produced["bytes"], 0))
    every = summed([produced], {"topic": "topic"}, {"every": ("bytes", "sum")})
    nobodys = by_topic.filter(pc.invert(pc.is_in(by_topic["topic"], every["topic"])))
    shared = with_columns_of(with_columns_of(produced, every, ["topic"]), by_topic, ["topic"]).drop_null()
    part = pc.divide(*(shared[name].cast(pa.float64(), safe=False) for name in ("bytes", "every")))
    owned = pa.table({"principal": shared["principal"], "byte_days": pc.multiply(shared["byte_days"], part)})
    nobody = pa.table({"principal": pa.repeat(pa.scalar(NOBODY), nobodys.num_rows), "byte_days": nobodys["byte_days"]})
    found = summed([owned, nobody], {"principal": "principal"}, {"byte_days": ("byte_days", "sum")})
    if (pc.max(found["byte_days"]).as_py() or 0.0) >= LARGEST_SUM:
        raise OverflowError("what is stored does not fit in 64 bits")
    return pa.table({"principal": found["principal"], "stored_byte_days": found["byte_days"].cast(pa.int64(), safe=False)})


def _half_of_both(part: Part) -> pa.Array:
    return pc.divide(pc.add(*(pc.fill_null(part[name], 0) for name in ("first_bytes", "last_bytes"))).cast(pa.float64()), 2.0)


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
