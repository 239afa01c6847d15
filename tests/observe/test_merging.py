"""The figures of workers as those of one proxy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import orjson
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from proxy.observe.catalogue import families
from proxy.observe.merging import MOST_ENDED, RANKED, Counters, Rows, merged, merged_throttles, rows_of
from quota.steps import finish_at_once

P = "kafka_quota_proxy_"


def plain(metrics: Iterable[Metric]) -> Rows:
    return finish_at_once(rows_of(metrics))


def counter(name: str, **values: float) -> Metric:
    family = CounterMetricFamily(P + name, "what it means", labels=["api"])
    for api, value in values.items():
        family.add_metric([api], value)
    return family


def gauge(name: str, **values: float) -> Metric:
    family = GaugeMetricFamily(P + name, "what it means", labels=["user"])
    for user, value in values.items():
        family.add_metric([user], value)
    return family


def figures(*workers: list[Metric]) -> Mapping[tuple[str, str], float]:
    found = merged(plain(metrics) for metrics in workers)
    return {(sample.name, "".join(sample.labels.values())): sample.value for metric in found for sample in metric.samples}


def test_counters_add_up_by_label() -> None:
    found = figures([counter("requests", Fetch=1, Produce=2)], [counter("requests", Produce=3)], [])
    assert found == {(P + "requests_total", "Fetch"): 1, (P + "requests_total", "Produce"): 5}


def test_gauges_are_sums_of_what_each_has_and_else_what_all_share() -> None:
    def worker(connections: float, used: float, up: float) -> list[Metric]:
        return [
            gauge("client_connections", a=connections),
            gauge("producer_byte_rate_used", a=used),
            gauge("upstream_up", a=up),
        ]

    found = figures(worker(3, 100, 1), worker(4, 90, 0))
    assert found[P + "client_connections", "a"] == 7
    assert found[P + "producer_byte_rate_used", "a"] == 100
    assert found[P + "upstream_up", "a"] == 0


def test_what_is_infinite_stays_so_on_its_way_from_a_worker() -> None:
    """JSON has no infinity: a volume that does not fill has this much time."""

    def told(seconds: float) -> list[list[object]]:
        metrics = plain([gauge("storage_volume_seconds_to_limit", a=seconds)])
        rows: list[list[object]] = orjson.loads(orjson.dumps(metrics))
        return rows

    def least(*workers: float) -> float:
        return merged(map(told, workers))[0].samples[0].value

    assert least(inf, inf) == inf
    assert least(inf, 5.0) == 5.0


def test_counters_do_not_go_back_when_a_worker_ends_or_does_not_answer() -> None:
    """Prometheus would take that for a restart, and all that is left for new."""
    known = Counters()

    def scrape(**counted: tuple[int, float]) -> tuple[float, float]:
        """Worker and (its start, its requests) to requests and connections of all."""
        answers = {int(worker[1:]): (start, plain(metrics(count))) for worker, (start, count) in counted.items()}
        found = {metric.name: metric.samples[0].value for metric in merged(known.complete(answers))}
        return found[P + "requests"], found.get(P + "client_connections", 0)

    def metrics(count: float) -> list[Metric]:
        return [counter("requests", Fetch=count), gauge("client_connections", a=1)]

    assert scrape(w0=(1, 5), w1=(1, 10)) == (15, 2)
    assert scrape(w0=(1, 6)) == (16, 1), "one does not answer"
    assert scrape(w0=(1, 6), w1=(2, 1)) == (17, 2), "one was started again"
    assert scrape(w0=(3, 2), w1=(2, 1)) == (19, 2)
    assert scrape() == (19, 0)


def test_what_is_kept_of_workers_that_have_ended_is_bounded() -> None:
    known = Counters()
    for start in range(5):
        entities = {f"{start}-{i}": i for i in range(MOST_ENDED)}
        rows = known.complete({0: (start, plain([counter("entity_refused_items", **entities)]))})
    assert sum(len(samples) for some in rows for *_, alike in some for *_, samples in alike) == 2 * MOST_ENDED


def test_histograms_of_workers_add_up_and_stay_when_one_ends() -> None:
    known = Counters()

    def scrape(worker: int, start: int, count: float) -> dict[str, float]:
        family = HistogramMetricFamily(P + "broker_seconds", "", labels=["api"])
        family.add_metric(["Produce"], [("0.1", count), ("+Inf", count + 1)], 7.0)
        found = merged(known.complete({worker: (start, plain([family]))}))
        return {sample.labels.get("le", sample.name): sample.value for sample in found[0].samples}

    scrape(0, 1, 5)
    assert scrape(0, 2, 1) == {"0.1": 6, "+Inf": 8, P + "broker_seconds_count": 8, P + "broker_seconds_sum": 14}


def test_what_each_worker_counts_of_the_same_is_told_once() -> None:
    assert figures([counter("quota_changes", a=5)], [counter("quota_changes", a=4)]) == {(P + "quota_changes_total", "a"): 5}


def test_one_worker_alone_is_what_it_says() -> None:
    """Of all metrics that there are."""
    there = list(families())
    (alone, again) = (merged([plain(there)]), merged([plain(there)] * 2))
    assert [(it.name, it.type, it.documentation, it.samples) for it in alone] == [
        (it.name, it.type, it.documentation, it.samples) for it in there
    ]
    assert [it.name for it in again] == [it.name for it in there]


def shown(workers: list[list[Metric]], most: int) -> Mapping[str, Mapping[str, float]]:
    """By family and user."""
    found = merged((plain(metrics) for metrics in workers), most)
    return {metric.name.removeprefix(P): {it.labels["user"]: it.value for it in metric.samples} for metric in found}


def test_of_all_workers_users_as_many_are_shown_as_one_proxy_shows() -> None:
    """Those who use most of their limit, and with them their limit. What the others use is counted together."""

    def worker(**users: tuple[float, float]) -> list[Metric]:
        used = {**{name: used for name, (used, _) in users.items()}, "<other>": 1.0}
        return [
            gauge("consumer_byte_rate_used", **used),
            gauge("consumer_byte_rate_limit", **{name: limit for name, (_, limit) in users.items()}),
        ]

    found = shown([worker(a=(50, 100), b=(9, 10)), worker(c=(60, 1000), a=(55, 100)), worker(d=(2, 100), e=(7, 10))], 3)
    assert found["consumer_byte_rate_used"] == {"b": 9, "a": 55, "e": 7, "<other>": 1 + 60 + 2}
    assert found["consumer_byte_rate_limit"] == {"b": 10, "a": 100, "e": 10}


def test_the_busiest_are_those_with_most_traffic_of_all_workers() -> None:
    def worker(**users: float) -> list[Metric]:
        return [gauge("client_bytes_in_rate", **users), gauge("client_request_rate", **dict.fromkeys(users, 1.0))]

    found = shown([worker(a=10, b=30), worker(a=25, c=32)], 2)
    assert found["client_bytes_in_rate"] == {"a": 35, "c": 32}
    assert found["client_request_rate"] == {"a": 2, "c": 1}


def test_all_that_is_ranked_is_a_metric() -> None:
    there = {it.name.removeprefix(P) for it in families()}
    assert {name for ranked in RANKED for name in (*ranked.families, *ranked.counted)} <= there
    assert {name + "_used" for name in ("producer_byte_rate", "consumer_byte_rate", "request_rate")} <= there


def line(quota: str, user: str, left: float, requests: int) -> dict[str, object]:
    return {"quota": quota, "mode": "enforce", "entity": {"user": user}, "seconds_left": left, "requests": requests}


def refused(topic: str, items: int) -> dict[str, object]:
    return {"quota": "q", "mode": "enforce", "entity": {"user": "a"}, "topic": topic, "items": items}


def test_who_is_throttled_at_several_workers_stands_there_once() -> None:
    first = {"proxy": "p", "throttled": [line("q", "a", 1.0, 2), line("q", "b", 5.0, 1)], "refused_last_hour": [refused("t", 1)]}
    second = {"proxy": "p", "throttled": [line("q", "a", 3.0, 5)], "refused_last_hour": [refused("u", 9), refused("t", 2)]}
    found = merged_throttles([first, second])
    assert found["proxy"] == "p"
    assert [(it["entity"]["user"], it["seconds_left"], it["requests"]) for it in found["throttled"]] == [
        ("b", 5.0, 1),
        ("a", 3.0, 7),
    ]
    assert [(it["topic"], it["items"]) for it in found["refused_last_hour"]] == [("u", 9), ("t", 3)]
