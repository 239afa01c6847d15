"""Traffic sections: who sends and fetches what.

In: `Traffic`. Out: `Html`. Every list is the largest part of a table; the note above it says of how many.
"""

from reports.render.plots import Measure, plot
from reports.render.sections.cells import note, or_dash, share, shown
from reports.summary.model import Api, Party, Topic, Traffic
from webpage.html import Column, Html, join, table, tag
from webpage.text import clean, client, count, duration, rate, signed_percent, size


def principals_section(traffic: Traffic) -> Html:
    """Traffic by principal and client id, over time and in sum."""
    text = (
        "Whole Produce requests and Fetch responses on the wire. Percentiles and peak are of the rate of produced bytes, over a "
        "minute, or the logs' interval where that is longer, while there was any. A client id is whatever a client claims to be."
    )
    plots = tag(
        "div",
        plot("in", "Produced, by principal", traffic.produced_by_principal, Measure.BYTES, nothing="Nothing was produced."),
        plot("out", "Fetched, by principal", traffic.fetched_by_principal, Measure.BYTES, nothing="Nothing was fetched."),
        class_="plots",
    )
    principals = shown(len(traffic.principals), traffic.principal_count, "principal"), _principals(traffic)
    clients = shown(len(traffic.clients), traffic.client_count, "client"), _clients(traffic)
    return join((tag("h2", "Principals"), note(text), plots, *principals, tag("h3", "Clients"), *clients))


def topics_section(traffic: Traffic) -> Html:
    """Traffic by topic, over time and in sum."""
    text = "Record batches as sent, compressed, before replication. Mostly by is the principal that produced most into the topic."
    plots = tag(
        "div",
        plot("topic-in", "Produced, by topic", traffic.produced_by_topic, Measure.BYTES, nothing="No topic was produced to."),
        plot("topic-out", "Fetched, by topic", traffic.fetched_by_topic, Measure.BYTES, nothing="No topic was fetched from."),
        class_="plots",
    )
    topics = shown(len(traffic.topics), traffic.topic_count, "topic"), _topics(traffic)
    return join((tag("h2", "Topics"), note(text), plots, *topics))


def apis_section(traffic: Traffic) -> Html:
    """Requests by Kafka API."""
    columns: tuple[Column[Api], ...] = (
        Column("API", lambda row: clean(row.api)),
        Column("Requests", lambda row: count(row.requests), number=True),
        Column("Share", lambda row: share(row.requests, traffic.requests), number=True),
        Column("Request bytes", lambda row: size(row.request_bytes), number=True),
        Column("Response bytes", lambda row: size(row.response_bytes), number=True),
        Column("Mutations", lambda row: count(row.mutations), number=True),
        Column("Throttle time", lambda row: duration(row.throttle_ms), number=True),
    )
    return join((tag("h2", "Kafka APIs"), table(columns, traffic.apis)))


def _principals(traffic: Traffic) -> Html:
    columns: tuple[Column[Party], ...] = (
        Column("Principal", lambda row: clean(row.principal)),
        Column("Produced", lambda row: size(row.produced), number=True),
        Column("Share", lambda row: share(row.produced, traffic.produced), number=True),
        Column("Week on week", lambda row: signed_percent(row.growth), number=True),
        Column("p50", lambda row: rate(row.p50), number=True),
        Column("p95", lambda row: rate(row.p95), number=True),
        Column("p99", lambda row: rate(row.p99), number=True),
        Column("Peak", lambda row: rate(row.peak), number=True),
        Column("Fetched", lambda row: size(row.fetched), number=True),
        Column("Fetched, peak", lambda row: rate(row.fetched_peak), number=True),
        Column("Requests", lambda row: count(row.requests), number=True),
        Column("Producer ids", lambda row: "–" if row.active_producer_ids is None else count(row.active_producer_ids), number=True),
        Column("Mutations", lambda row: count(row.mutations), number=True),
        Column("Refused", lambda row: count(row.refused), number=True),
        Column("Throttle time", lambda row: duration(row.throttle_ms), number=True),
    )
    return table(columns, traffic.principals, _refused_by)


def _refused_by(row: Party) -> str | None:
    """By which quotas a principal was refused, where by any."""
    return (
        "Refused by " + ", ".join(f"{clean(quota, 40)}: {count(items)}" for quota, items in row.refused_by)
        if row.refused_by
        else None
    )


def _clients(traffic: Traffic) -> Html:
    columns: tuple[Column[Party], ...] = (
        Column("Principal", lambda row: clean(row.principal)),
        Column("Client id", lambda row: client(row.client_id)),
        Column("Produced", lambda row: size(row.produced), number=True),
        Column("p95", lambda row: rate(row.p95), number=True),
        Column("Peak", lambda row: rate(row.peak), number=True),
        Column("Week on week", lambda row: signed_percent(row.growth), number=True),
        Column("Fetched", lambda row: size(row.fetched), number=True),
        Column("Requests", lambda row: count(row.requests), number=True),
        Column("Mutations", lambda row: count(row.mutations), number=True),
        Column("Throttle time", lambda row: duration(row.throttle_ms), number=True),
    )
    return table(columns, traffic.clients)


def _topics(traffic: Traffic) -> Html:
    columns: tuple[Column[Topic], ...] = (
        Column("Topic", lambda row: clean(row.topic)),
        Column("Produced", lambda row: size(row.produced), number=True),
        Column("Share", lambda row: share(row.produced, traffic.topic_produced), number=True),
        Column("Week on week", lambda row: signed_percent(row.growth), number=True),
        Column("p95", lambda row: rate(row.p95), number=True),
        Column("p99", lambda row: rate(row.p99), number=True),
        Column("Peak", lambda row: rate(row.peak), number=True),
        Column("Records", lambda row: "–" if row.records is None else count(row.records), number=True),
        Column("Bytes a record", lambda row: size(row.produced / row.records) if row.records else "–", number=True),
        Column("Fetched", lambda row: size(row.fetched), number=True),
        Column("Mostly by", lambda row: or_dash(row.main_principal)),
    )
    return table(columns, traffic.topics)
