"""Traffic of a summary: who sends and fetches most.

In: the tables `entities`, `traffic`, `topics`, `latencies`. Out: `Traffic`. A principal has the same place, and so the same
colour, in every plot.
"""

from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from reports.summary.model import Api, Latency, Party, Topic, Traffic
from reports.summary.series import Timeline, make_series
from reports.tables import Tables
from reports.transforms.latencies import latencies_of_all
from reports.transforms.ranking import main_part, ranking
from reports.transforms.rates import of_api

MAX_ROWS = 1000
"""Rows of a list on the page, which shows the first of them until it is asked for more; the tables have them all."""


def summarize_traffic(tables: Tables, timeline: Timeline) -> Traffic:
    """Principals, clients, topics and APIs, largest first, with the largest over time."""
    traffic, topics = tables["traffic"], tables["topics"]
    apis, latencies = _apis(traffic), _latencies(tables)
    scopes = {f"{scope}_count": F.count_if(F.col("scope") == scope) for scope in ("principal", "client", "topic")}
    of_topics = F.sum(F.when(F.col("scope") == "topic", F.col("produced_bytes")))
    counts = _totals(tables["entities"], **scopes, topic_produced=of_topics)
    main_principals, main_topics = tuple(map(_party, _largest(tables, "principal"))), _topics(tables)
    principal_series = make_series(traffic, "principal", [row.principal for row in main_principals], _wire(), timeline)
    topic_series = make_series(topics, "topic", [row.topic for row in main_topics], _batches(), timeline)
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
        **counts,
    )


def _wire() -> dict[str, Column]:
    return {"produced": of_api("Produce", "request_bytes"), "fetched": of_api("Fetch", "response_bytes")}


def _batches() -> dict[str, Column]:
    return {"produced": of_api("Produce", "record_bytes"), "fetched": of_api("Fetch", "record_bytes")}


_RATES = ("p50", "p95", "p99", "peak")


def _largest(tables: Tables, scope: str) -> list[Row]:
    """The largest entities of a scope, by bytes produced and fetched."""
    rows = tables["entities"].where(F.col("scope") == scope)
    weight = F.col("produced_bytes") + F.col("fetched_bytes")
    return rows.orderBy(weight.desc(), "principal", "client_id", "topic").limit(MAX_ROWS).collect()


def _rates(row: Row) -> dict[str, Any]:
    return {name: float(row[f"produced_{name}"] or 0) for name in _RATES}


def _weeks(row: Row) -> dict[str, Any]:
    return {"growth": row["growth"], "last_week": row["last_week_bytes"], "week_before": row["week_before_bytes"]}


def _party(row: Row) -> Party:
    refused = tuple(sorted((row["refused"] or {}).items(), key=lambda item: (-item[1], item[0])))
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


def _apis(traffic: DataFrame) -> tuple[Api, ...]:
    names = ("requests", "request_bytes", "response_bytes", "mutations", "throttle_ms")
    rows = ranking(traffic, ["api"], {name: F.col(name) for name in names}, ["request_bytes", "response_bytes"]).collect()
    return tuple(Api(row["api"], *(int(row[name]) for name in names)) for row in rows)


def _latencies(tables: Tables) -> tuple[Latency, ...]:
    """What took most time in all first. There are few: APIs of a hundred brokers."""
    rows = latencies_of_all(tables["latencies"])
    ordered = rows.orderBy((F.col("requests") * F.col("p50_ms")).desc(), "part", "broker_id", "api").collect()
    names = ("part", "broker_id", "api", "requests", "p50_ms", "p99_ms", "worst_p99_ms", "max_ms")
    return tuple(Latency(*(row[name] for name in names)) for row in ordered)


def _topics(tables: Tables) -> tuple[Topic, ...]:
    rows = _largest(tables, "topic")
    of_shown = tables["topics"].where(F.col("topic").isin([row["topic"] for row in rows]))
    principal = _by_key(main_part(of_shown, "topic", "principal", _batches()["produced"]), "principal")
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


def _by_key(rows: DataFrame, value: str) -> dict[str, Any]:
    """Rows of two columns, the key first, as a mapping."""
    return {row[0]: row[value] for row in rows.collect()}


def _totals(table: DataFrame, **totals: Column) -> dict[str, int]:
    """Aggregates over a whole table; 0 where it has no row."""
    row = table.agg(*[F.coalesce(total, F.lit(0)).alias(name) for name, total in totals.items()]).first()
    return {name: int(row[name]) if row else 0 for name in totals}
