"""Answers of the admin listener are made in pieces between which clients are served, and once for all who ask at the same time."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from proxy.clients.admin import AT_ONCE, SAMPLES, LiveAnswers, compressed, exposition
from proxy.pieces import PIECE, in_pieces
from quota.steps import Steps, finish_at_once, largest

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def metrics() -> list[Metric]:
    gauge = GaugeMetricFamily("a", "a gauge\nof # two lines", labels=["user"])
    for i in range(3 * SAMPLES + 1):
        gauge.add_metric([f"# {i}\n"], i)
    histogram = HistogramMetricFamily("b", "a histogram", labels=["api"])
    for i in range(SAMPLES):
        histogram.add_metric([f"api {i}"], [("0.1", 1.0), ("+Inf", 2.0)], 3.0)
    return [gauge, histogram, CounterMetricFamily("c", "nothing", labels=["x"]), CounterMetricFamily("d", "one", 5)]


class Whole(Collector):
    def collect(self) -> Iterable[Metric]:
        return metrics()


@pytest.mark.parametrize("accept", ["", OPENMETRICS, "text/plain; version=1.0.0; escaping=allow-utf-8"])
def test_metrics_are_written_in_pieces_as_they_are_at_once(accept: str) -> None:
    registry = CollectorRegistry()
    registry.register(Whole())
    encode, content_type = choose_encoder(accept)
    collected = [None, *metrics(), None]
    assert finish_at_once(exposition(collected, accept)) == (encode(registry), content_type)
    steps = sum(1 for _ in exposition(collected, accept))
    assert steps == 2 + 4 + 4 + 1 + 1, "one for each 20 samples"


def test_json_is_compressed_in_pieces() -> None:
    pieces = [b'{"a":', b"1" * (3 * AT_ONCE), b"}"]
    assert gzip.decompress(finish_at_once(compressed(pieces))) == b"".join(pieces)
    assert sum(1 for _ in compressed(pieces)) == 1 + 3 + 1


def test_many_viewers_get_what_is_made_once() -> None:
    class Source:
        asked = 0

        async def live(self) -> list[bytes]:
            self.asked += 1
            await asyncio.sleep(0)
            return [b"{", b"}"]

    async def view() -> None:
        source: Any = Source()
        answers = LiveAnswers(source)
        found = await asyncio.gather(*(answers.get() for _ in range(100)))
        assert source.asked == 1
        assert len({id(packed) for _, packed in found}) == 1
        assert gzip.decompress(found[0][1]) == b"{}"

    asyncio.run(view())


def test_a_piece_takes_its_time_and_then_others_go_on() -> None:
    now, order = 0.0, list[str]()

    def work() -> Steps[str]:
        nonlocal now
        for i in range(6):
            order.append(f"step {i}")
            now += 0.4 * PIECE
            yield
        return "done"

    async def both() -> str:
        other = asyncio.create_task(others())
        outcome = await in_pieces(work(), lambda: now)
        other.cancel()
        return outcome

    async def others() -> None:
        while True:
            order.append("others")
            await asyncio.sleep(0)

    assert asyncio.run(both()) == "done"
    assert order == ["step 0", "step 1", "step 2", "others", "step 3", "step 4", "step 5", "others"]


def test_the_largest_are_found_in_steps_as_at_once() -> None:
    items = [(i * 7919 % 101, i) for i in range(500)]
    for count in (0, 1, 10, 1000):
        assert finish_at_once(largest(count, items, lambda it: it[0])) == sorted(items, key=lambda it: -it[0])[:count]

    def looked_at() -> Iterator[int]:
        nonlocal looks
        for i in range(100):
            looks += 1
            yield i

    looks = 0
    at_steps = [looks for _ in largest(3, looked_at(), lambda it: it)]
    assert at_steps == [16, 32, 48, 64, 80, 96]
