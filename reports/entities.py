"""Entities: each principal, client id and topic over the whole period, as numbers to compare.

In: the tables by day, as they are stored. Out: the table `entities`, one row each. Left to others: which are shown, and how
(`reports.summary`).
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from reports.arrow_rows import arrow_schema, table_schema
from reports.stored import Expression, Part, Stored, of_api, summed, sums, with_columns_of
from reports.tables import Tables
from reports.transforms.rates import DIRECTIONS, ENTITY, STEPS

_WEEK = 7
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_RATES = [f"{direction}_{name}" for direction in DIRECTIONS for name in (*_QUANTILES, "peak")]
_COUNTS = ("requests", "records", "mutations", "throttle_ms")
_WEEKS = ("last_week_bytes", "week_before_bytes")
ENTITIES = table_schema(
    "scope string, principal string, client_id string, topic string, produced_bytes bigint, fetched_bytes bigint, "
    "requests bigint, records bigint, mutations bigint, throttle_ms bigint, share double, growth double, "
    + ", ".join(f"{name} double" for name in _RATES)
)
ENTITIES.add("refused", t.MapType(t.StringType(), t.LongType())).add("active_producer_ids", t.LongType())
for _name in _WEEKS:
    ENTITIES.add(_name, t.LongType())


def entities(tables: Tables) -> pa.Table:
    """One row for each principal, client (a principal with one of its client ids) and topic.

    Bytes of principals and clients are whole Produce requests and Fetch responses on the wire, of topics record batches. `share` is
    the part of all `produced_bytes` of its scope. `growth` compares the bytes produced and fetched in the last seven full days
    with those of the seven before, null with fewer days. `refused` is quota -> items. `active_producer_ids` is the most
    at one time.

    Raises:
        OverflowError: a sum does not fit in 64 bits.
    """
    clients = _sums(tables["traffic"], ["principal", "client_id"], "request_bytes", "response_bytes")
    figures = [name for name in clients.column_names if name not in ENTITY]
    principals = summed([clients], {"principal": "principal"}, {name: (name, "sum") for name in figures})
    topics = _sums(tables["topics"], ["topic"], "record_bytes", "record_bytes")
    by_scope = {"principal": principals, "client": clients, "topic": topics}
    rows = pa.concat_tables(_scoped(scope, table) for scope, table in by_scope.items())
    for found in (*_percentiles(tables["rates"]), _refused(tables["refusals"]), _ids(tables["producer_ids"])):
        rows = with_columns_of(rows, found, ENTITY)
    every = summed([rows], {"scope": "scope"}, {"every": ("produced_bytes", "sum")})
    of_scope = with_columns_of(rows, every, ["scope"])["every"]
    share = pc.if_else(pc.greater(of_scope, 0), _divided(rows["produced_bytes"], of_scope), 0.0)
    growth = pc.subtract(_divided(rows["last_week_bytes"], rows["week_before_bytes"]), 1.0)
    grown = pc.if_else(pc.greater(rows["week_before_bytes"], 0), growth, pa.scalar(None, pa.float64()))
    return rows.append_column("share", share).append_column("growth", grown).select(ENTITIES.names)


def _sums(stored: Stored, keys: Sequence[str], bytes_in: str, bytes_out: str) -> pa.Table:
    produced, fetched = of_api("Produce", bytes_in), of_api("Fetch", bytes_out)
    counts = [name for name in _COUNTS if name in stored.schema.names]
    (days,) = sums(stored.parts(["date"]), {}, {"first": ("date", "min"), "last": ("date", "max")})
    two_weeks = days["last"] is not None and (days["last"] - days["first"]).days >= 2 * _WEEK

    def in_week(number: int, part: Part) -> pa.Array:
        both = pc.add(produced(part), fetched(part))
        if not two_weeks:
            return pa.nulls(part.num_rows, both.type)
        # The last day is usually incomplete: weeks end where it begins.
        age = pc.days_between(part["date"], pa.scalar(days["last"]))
        inside = pc.and_(pc.greater(age, number * _WEEK), pc.less_equal(age, (number + 1) * _WEEK))
        return pc.if_else(inside, both, pa.scalar(None, both.type))

    figures: dict[str, str | Expression] = {"produced_bytes": produced, "fetched_bytes": fetched}
    figures |= {name: name for name in counts}
    figures |= {name: partial(in_week, number) for number, name in enumerate(_WEEKS)}
    columns = [*{"date", "api", bytes_in, bytes_out, *keys, *counts}]
    amounts = {name: (figure, "sum") for name, figure in figures.items()}
    found = summed(stored.parts(columns), {name: name for name in keys}, amounts)
    for name in _COUNTS:
        if name not in counts:
            # Nobody counts records of whole requests; mutations and throttles are of requests alone.
            none = pa.scalar(None if name == "records" else 0, pa.int64())
            found = found.append_column(name, pa.repeat(none, found.num_rows))
    return found


def _percentiles(rates: Stored) -> Iterator[pa.Table]:
    """For each direction the columns `produced_p50`, `_p95`, `_p99` and `_peak`, bytes per second, of entities with traffic: the
    rate that is not exceeded for that part of the time, the middle of its bin, and never above the peak."""
    columns = [*ENTITY, "direction", "bin"]
    figures: dict[str, tuple[str | Expression, str]] = {"seconds": ("seconds", "sum"), "peak": ("peak", "max")}
    bins = summed(rates.parts([*columns, *figures]), {name: name for name in columns}, figures).sort_by("bin")
    for direction in DIRECTIONS:
        of_direction = bins.filter(pc.equal(bins["direction"], direction))
        lists = [("bin", "list"), ("seconds", "list"), ("peak", "max")]
        found = of_direction.group_by(list(ENTITY), use_threads=False).aggregate(lists)
        named = found.select(ENTITY)
        peak = found["peak_max"].to_numpy()
        for name, part in _QUANTILES.items():
            middle = 2.0 ** ((_bins_reached(found, part) + 0.5) / STEPS)
            named = named.append_column(f"{direction}_{name}", pa.array(np.minimum(middle, peak)))
        yield named.append_column(f"{direction}_peak", found["peak_max"])


def _bins_reached(found: pa.Table, part: float) -> Any:
    """In which bin each row has spent `part` of its seconds."""
    lists = [found[f"{name}_list"].combine_chunks() for name in ("bin", "seconds")]
    lengths = lists[0].value_lengths().to_numpy()
    bins, seconds = (one.flatten().to_numpy() for one in lists)
    ends = np.cumsum(lengths)
    so_far = np.concatenate([[0], np.cumsum(seconds)])
    before, total = so_far[ends - lengths], so_far[ends] - so_far[ends - lengths]
    below = so_far[1:] - np.repeat(before, lengths) < np.repeat(total * part, lengths)
    passed = np.concatenate([[0], np.cumsum(below)])
    return bins[ends - lengths + passed[ends] - passed[ends - lengths]]


def _refused(refusals: Stored) -> pa.Table:
    amount: dict[str, tuple[str | Expression, str]] = {"items": ("items", "sum")}
    keys = ("principal", "client_id", "quota")
    clients = summed(refusals.parts([*keys, "items"]), {name: name for name in keys}, amount)
    principals = summed([clients], {name: name for name in ("principal", "quota")}, amount)
    return pa.concat_tables([_scoped("principal", _maps(principals)), _scoped("client", _maps(clients))])


def _maps(items: pa.Table) -> pa.Table:
    """`items` of each `quota` as the map `refused`, for each of the other columns. As many entries as there are kinds of quotas."""
    keys = [name for name in items.column_names if name not in ("quota", "items")]
    found = items.group_by(keys, use_threads=False).aggregate([("quota", "list"), ("items", "list")])
    names, counts = (found[f"{name}_list"].combine_chunks() for name in ("quota", "items"))
    maps = pa.MapArray.from_arrays(names.offsets, names.values, counts.values)
    return found.select(keys).append_column("refused", maps)


def _ids(producer_ids: Stored) -> pa.Table:
    most = summed(producer_ids.parts(["user", "active"]), {"user": "user"}, {"active_producer_ids": ("active", "max")})
    principal = pc.binary_join_element_wise("User:", most["user"], "")
    return _scoped("principal", pa.table({"principal": principal, "active_producer_ids": most["active_producer_ids"]}))


def _scoped(scope: str, rows: pa.Table) -> pa.Table:
    """Rows with all columns of ENTITY, those first."""
    kinds = arrow_schema(ENTITIES)
    named = {name: rows[name] if name in rows.column_names else pa.nulls(rows.num_rows, kinds.field(name).type) for name in ENTITY}
    named["scope"] = pa.repeat(pa.scalar(scope), rows.num_rows)
    return pa.table(named | {name: rows[name] for name in sorted(rows.column_names) if name not in ENTITY})


def _divided(one: pa.ChunkedArray, other: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(one.cast(pa.float64(), safe=False), other.cast(pa.float64(), safe=False))
