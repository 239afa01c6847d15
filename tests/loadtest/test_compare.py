"""Rounds of endpoints in turn, and what is said of their figures."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from loadtest.results.compare import in_turn
from loadtest.results.model import Comparison, Endpoint, Measure, RunResult, Warning, WarningCode, Watched
from tests.loadtest.made import phase, run, tenant

A, B = Endpoint(name="direct", bootstrap="a:9092"), Endpoint(name="proxy", bootstrap="b:9092")


def measured(p99_of: Callable[[Endpoint], float], rounds: int = 6) -> Comparison:
    """Runs whose latencies all are what `p99_of` says, in ms."""

    def run_once(endpoint: Endpoint) -> RunResult:
        seen = Watched(name="proxy", cpu_s=1.0 if endpoint is A else 2.0, memory_max_bytes=1 << 20)
        return run(phase(tenant(latencies=[int(p99_of(endpoint) * 1000)] * 1000), watched=[seen]), endpoint=endpoint)

    return in_turn([A, B], rounds, run_once)


def of(comparison: Comparison, name: str) -> Measure:
    return next(measure for measure in comparison.measures if measure.name == name)


def test_endpoints_take_turns() -> None:
    found = measured(lambda _: 1.0, rounds=3)
    assert [one.endpoint.name for one in found.runs] == ["direct", "proxy"] * 3


def test_a_difference_is_told_with_its_interval() -> None:
    draw = random.Random(1)
    found = measured(lambda endpoint: draw.uniform(9, 11) * (1 if endpoint is A else 2))
    ratio = of(found, "p99").ratios[0]
    assert ratio.verdict == "worse"
    assert ratio.low is not None
    assert ratio.high is not None
    assert 1.5 < ratio.low <= (ratio.ratio or 0) <= ratio.high < 2.5
    assert (ratio.p_value or 1) < 0.01
    assert of(found, "cpu").ratios[0].ratio == 2.0
    assert of(found, "rate").ratios[0].verdict == "same"


def test_less_latency_is_better() -> None:
    assert of(measured(lambda endpoint: 20 if endpoint is A else 10), "p99").ratios[0].verdict == "better"


def test_noise_is_no_verdict() -> None:
    draw = random.Random(5)
    assert of(measured(lambda _: draw.lognormvariate(1, 1)), "p99").ratios[0].verdict == "unsure"


def test_few_rounds_are_no_verdict() -> None:
    ratio = of(measured(lambda endpoint: 10 if endpoint is A else 100, rounds=3), "p99").ratios[0]
    assert (ratio.ratio, ratio.low, ratio.p_value, ratio.verdict) == (pytest.approx(10, rel=0.01), None, None, "unsure")


def test_nothing_at_the_first_endpoint_has_no_ratio() -> None:
    assert of(measured(lambda _: 1.0), "failed").ratios[0].ratio is None


def test_drift_meets_both_alike_and_is_told() -> None:
    level = iter(range(10, 100))
    found = measured(lambda endpoint: float(next(level)) if endpoint else 0)
    assert of(found, "p99").ratios[0].verdict != "worse"
    assert [w.code for w in found.warnings] == [WarningCode.DRIFT]
    assert "p50 of victim at direct went from" in found.warnings[0].text


def test_warnings_of_runs_stay() -> None:
    lost = Warning(code=WarningCode.DRIVER_LOST, text="lost 1 driver")
    found = in_turn([A, B], 2, lambda endpoint: run(endpoint=endpoint, warnings=[lost] if endpoint is B else []))
    assert [w.text for w in found.warnings] == ["2 of 4 runs, first at proxy: lost 1 driver"]
