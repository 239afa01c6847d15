"""Traffic of a summary: who sends and fetches most.

In: the tables `traffic`, `topics`, `refusals`. Out: `Traffic`. A principal has the same place, and so the same colour, in every
plot.
"""

from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from reports.summary.model import Api, Party, Topic, Traffic
from reports.summary.series import Timeline, make_series
from reports.tables import Tables
from reports.transforms.ranking import main_part, peaks, ranking

MOST_ROWS = 20
"""Rows of a list on the page; the tables have them all."""

_WEIGHT = ("produced", "fetched")


def summarize_traffic(tables: Tables, timeline: Timeline) -> Traffic:
    """Principals, clients, topics and APIs, largest first, with the largest over time."""
    traffic, topics = tables["traffic"], tables["topics"]
    apis = _apis(traffic)
    # A struct, as a count of distinct pairs would leave out those with a null.
    clients = F.count_distinct(F.struct("principal", "client_id"))
    counts = _totals(traffic, principal_count=F.count_distinct("principal"), client_count=clients)
    counts |= _totals(topics, topic_count=F.count_distinct("topic"), topic_produced=F.sum(_batches()["produced"]))
    main_principals, main_topics = _principals(tables), _topics(topics)
    principal_series = make_series(traffic, "principal", [row.principal for row in main_principals], _wire(), timeline)
    topic_series = make_series(topics, "topic", [row.topic for row in main_topics], _batches(), timeline)
    return Traffic(
        principals=main_principals,
        clients=_clients(traffic),
        topics=main_topics,
        apis=apis,
        produced=sum(row.request_bytes for row in apis if row.api == "Produce"),
        fetched=sum(row.response_bytes for row in apis if row.api == "Fetch"),
        requests=sum(row.requests for row in apis),
        produced_by_principal=principal_series["produced"],
        fetched_by_principal=principal_series["fetched"],
        produced_by_topic=topic_series["produced"],
        fetched_by_topic=topic_series["fetched"],
        **counts,
    )


def _of_api(api: str, value: str) -> Column:
    return F.when(F.col("api") == api, F.col(value)).otherwise(0)


def _wire() -> dict[str, Column]:
    return {"produced": _of_api("Produce", "request_bytes"), "fetched": _of_api("Fetch", "response_bytes")}


def _batches() -> dict[str, Column]:
    return {"produced": _of_api("Produce", "record_bytes"), "fetched": _of_api("Fetch", "record_bytes")}


def _party_measures() -> dict[str, Column]:
    return _wire() | {name: F.col(name) for name in ("requests", "mutations", "throttle_ms")}


def _party(row: Row, client_id: str | None, **more: float) -> Party:
    sums = {name: int(row[name]) for name in _party_measures()}
    return Party(principal=row["principal"], client_id=client_id, **sums, **more)  # type: ignore[arg-type]


def _principals(tables: Tables) -> tuple[Party, ...]:
    rows = ranking(tables["traffic"], ["principal"], _party_measures(), _WEIGHT).limit(MOST_ROWS).collect()
    shown = F.col("principal").isin([row["principal"] for row in rows])
    peak = _by_key(peaks(tables["traffic"].where(shown), "principal", _wire()["produced"]), "peak")
    refused = _by_key(tables["refusals"].where(shown).groupBy("principal").agg(F.sum("items").alias("items")), "items")
    return tuple(
        _party(row, None, peak=float(peak[row["principal"]]), refused=int(refused.get(row["principal"], 0))) for row in rows
    )


def _clients(traffic: DataFrame) -> tuple[Party, ...]:
    rows = ranking(traffic, ["principal", "client_id"], _party_measures(), _WEIGHT).limit(MOST_ROWS).collect()
    return tuple(_party(row, row["client_id"]) for row in rows)


def _apis(traffic: DataFrame) -> tuple[Api, ...]:
    names = ("requests", "request_bytes", "response_bytes", "mutations", "throttle_ms")
    rows = ranking(traffic, ["api"], {name: F.col(name) for name in names}, ["request_bytes", "response_bytes"]).collect()
    return tuple(Api(row["api"], *(int(row[name]) for name in names)) for row in rows)


def _topics(topics: DataFrame) -> tuple[Topic, ...]:
    measures = _batches() | {"records": F.when(F.col("api") == "Produce", F.col("records"))}
    rows = ranking(topics, ["topic"], measures, _WEIGHT).limit(MOST_ROWS).collect()
    of_shown = topics.where(F.col("topic").isin([row["topic"] for row in rows]))
    peak = _by_key(peaks(of_shown, "topic", _batches()["produced"]), "peak")
    principal = _by_key(main_part(of_shown, "topic", "principal", _batches()["produced"]), "principal")
    return tuple(
        Topic(
            topic=row["topic"],
            produced=int(row["produced"]),
            fetched=int(row["fetched"]),
            records=row["records"],
            peak=float(peak[row["topic"]]),
            main_principal=principal.get(row["topic"]),
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
