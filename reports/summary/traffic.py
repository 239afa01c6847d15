"""Traffic of a summary: who sends and fetches most.

In: the tables `entities`, `traffic`, `topics`, `latencies`. Out: `Traffic`. A principal has the same place, and so the same
colour, in every plot.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from reports.stored import Expression, Row, Stored, largest, number_of_rows, of_api, sums
from reports.summary.model import Api, Latency, Party, Topic, Traffic
from reports.summary.series import Measures, Timeline, make_series
from reports.tables import Tables

MAX_ROWS = 1000
"""Rows of a list on the page, which shows the first of them until it is asked for more; the tables have them all."""


def summarize_traffic(tables: Tables, timeline: Timeline) -> Traffic:
    """Principals, clients, topics and APIs, largest first, with the largest over time."""
    traffic, topics = tables["traffic"], tables["topics"]
    apis, latencies = _apis(traffic), _latencies(tables)
    scopes = {
        row["scope"]: row
        for row in sums(
            tables["entities"].parts(["scope", "produced_bytes"]),
            {"scope": "scope"},
            {"count": (number_of_rows, "sum"), "produced": ("produced_bytes", "sum")},
        )
    }
    main_principals, main_topics = tuple(map(_party, _largest(tables, "principal"))), _topics(tables)
    by_principal = [row.principal for row in main_principals]
    principal_series = make_series(
        traffic, "principal", by_principal, _WIRE, timeline, ["principal", "api", "request_bytes", "response_bytes"]
    )
    topic_series = make_series(
        topics, "topic", [row.topic for row in main_topics], _BATCHES, timeline, ["topic", "api", "record_bytes"]
    )
    return Traffic(
        principals=main_principals,
        clients=tuple(map(_party, _largest(tables, "client"))),
        topics=main_topics,
        apis=apis,
        produced=sum(row.request_bytes for row in apis if row.api == "Produce"),
        fetched=sum(row.response_bytes for row in apis if row.api == "Fetch"),
        requests=sum(row.requests for row in apis),
        produced_by_principal=principal_series["produced"],
        fetched_by_principal=principal_series["fetched"],
        produced_by_topic=topic_series["produced"],
        fetched_by_topic=topic_series["fetched"],
        latencies=latencies[:MAX_ROWS],
        latency_count=len(latencies),
        topic_produced=scopes["topic"]["produced"] or 0 if "topic" in scopes else 0,
        **{f"{scope}_count": scopes[scope]["count"] if scope in scopes else 0 for scope in ("principal", "client", "topic")},
    )


_WIRE: Measures = {"produced": of_api("Produce", "request_bytes"), "fetched": of_api("Fetch", "response_bytes")}
_BATCHES: Measures = {"produced": of_api("Produce", "record_bytes"), "fetched": of_api("Fetch", "record_bytes")}


_RATES = ("p50", "p95", "p99", "peak")


def _largest(tables: Tables, scope: str) -> list[dict[str, Any]]:
    """The largest entities of a scope, by bytes produced and fetched."""
    stored = tables["entities"]
    parts = (part.filter(pc.equal(part["scope"], scope)) for part in stored.parts(stored.schema.names))
    order = [(_weight, "descending"), *((name, "ascending") for name in ("principal", "client_id", "topic"))]
    return largest(parts, order, MAX_ROWS)


def _weight(part: pa.RecordBatch) -> Any:
    return pc.add(part["produced_bytes"], part["fetched_bytes"])


def _rates(row: Row) -> dict[str, Any]:
    return {name: float(row[f"produced_{name}"] or 0) for name in _RATES}


def _weeks(row: Row) -> dict[str, Any]:
    return {"growth": row["growth"], "last_week": row["last_week_bytes"], "week_before": row["week_before_bytes"]}


def _party(row: Row) -> Party:
    refused = tuple(sorted(row["refused"] or (), key=lambda item: (-item[1], item[0])))
    return Party(
        principal=row["principal"],
        client_id=row["client_id"],
        produced=row["produced_bytes"],
        fetched=row["fetched_bytes"],
        requests=row["requests"],
        mutations=row["mutations"],
        throttle_ms=row["throttle_ms"],
        refused=sum(items for _, items in refused),
        refused_by=refused,
        **_rates(row),
        fetched_p95=float(row["fetched_p95"] or 0),
        fetched_peak=float(row["fetched_peak"] or 0),
        **_weeks(row),
        active_producer_ids=row["active_producer_ids"],
    )


def _apis(traffic: Stored) -> tuple[Api, ...]:
    names = ("requests", "request_bytes", "response_bytes", "mutations", "throttle_ms")
    rows = sums(traffic.parts(["api", *names]), {"api": "api"}, {name: (name, "sum") for name in names})
    ordered = sorted(rows, key=lambda row: (-row["request_bytes"] - row["response_bytes"], row["api"]))
    return tuple(Api(row["api"], *(row[name] for name in names)) for row in ordered)


def _latencies(tables: Tables) -> tuple[Latency, ...]:
    """What took most time in all first. There are few: APIs of a hundred brokers."""
    keys = ("part", "broker_id", "api")
    figures: dict[str, tuple[str | Expression, str]] = {
        "requests": ("requests", "sum"),
        **{name: (_weighted(name), "sum") for name in ("p50_ms", "p99_ms")},
        "worst_p99_ms": ("worst_p99_ms", "max"),
        "max_ms": ("max_ms", "max"),
    }
    rows = sums(tables["latencies"].parts([*keys, *figures]), {name: name for name in keys}, figures)
    rows.sort(key=lambda row: (-row["p50_ms"], row["part"], -1 if row["broker_id"] is None else row["broker_id"], row["api"]))
    for row in rows:
        row |= {name: row[name] / row["requests"] for name in ("p50_ms", "p99_ms")}
    return tuple(Latency(*(row[name] for name in (*keys, *figures))) for row in rows)


def _weighted(name: str) -> Expression:
    """A mean of intervals, times their requests: how long all of them took."""
    return lambda part: pc.multiply(part[name], part["requests"].cast(pa.float64()))


def _topics(tables: Tables) -> tuple[Topic, ...]:
    rows = _largest(tables, "topic")
    principal = _main_principals(tables["topics"], [row["topic"] for row in rows])
    return tuple(
        Topic(
            topic=row["topic"],
            produced=row["produced_bytes"],
            fetched=row["fetched_bytes"],
            records=row["records"],
            main_principal=principal.get(row["topic"]),
            **_weeks(row),
            **_rates(row),
        )
        for row in rows
    )


def _main_principals(topics: Stored, shown: Sequence[str]) -> dict[str, str]:
    """Who produced most into each topic, of those that anything was produced into."""
    few = pa.array(shown, pa.string())
    parts = topics.parts(["topic", "principal", "api", "record_bytes"])
    of_shown = (part.filter(pc.is_in(part["topic"], few)) for part in parts)
    keys = {"topic": "topic", "principal": "principal"}
    rows = [row for row in sums(of_shown, keys, {"bytes": (_BATCHES["produced"], "sum")}) if row["bytes"]]
    return {row["topic"]: row["principal"] for row in sorted(rows, key=lambda row: row["bytes"])}
