"""What got worse between two results."""

from __future__ import annotations

import random

import pytest

from loadtest.results.compare import in_turn
from loadtest.results.diff import DiffError, apart, diff, thresholds
from loadtest.results.model import Comparison, Endpoint, RunResult
from loadtest.results.sweep import find_knee
from tests.loadtest.made import driver, machine, phase, run, tenant
from tests.loadtest.test_sweep import at

BASE = [10_000] * 1000


def regressions(before: RunResult, after: RunResult, *limits: str) -> set[str]:
    return {change.name for change in diff(before, after, thresholds(limits)) if change.regressed}


def with_latency(us: int, **different: object) -> RunResult:
    return run(phase(tenant(latencies=[us] * 1000)), **different)


def test_the_same_has_no_regression() -> None:
    assert regressions(run(), run()) == set()


@pytest.mark.parametrize(
    ("us", "limits", "worse"),
    [
        (11_000, (), set()),
        (13_000, (), {"mean", "p50", "p99"}),
        (16_000, (), {"mean", "p50", "p99", "p99.9"}),
        (11_000, ("p99=5%",), {"p99"}),
        (5_000, (), set()),
    ],
)
def test_worse_by_more_than_the_threshold(us: int, limits: tuple[str, ...], worse: set[str]) -> None:
    assert regressions(with_latency(10_000), with_latency(us), *limits) == worse


def test_less_of_what_should_be_more() -> None:
    assert regressions(run(), run(phase(tenant(acknowledged=900)))) == {"rate"}
    assert regressions(run(), run(phase(tenant(failed={"TIMEOUT": 50})))) == {"failed"}


def test_twice_of_nearly_nothing_is_nothing() -> None:
    assert regressions(with_latency(100), with_latency(300)) == set()


def comparison(factor: float, seed: int, machine_factor: float = 1.0) -> Comparison:
    draw = random.Random(seed)

    def run_once(endpoint: Endpoint) -> RunResult:
        ms = 10 * machine_factor * draw.uniform(0.97, 1.03) * (factor if endpoint.name == "proxy" else 1)
        return run(phase(tenant(latencies=[int(ms * 1000)] * 1000)), endpoint=endpoint)

    return in_turn([Endpoint(name=name, bootstrap=name) for name in ("direct", "proxy")], 6, run_once)


def test_of_comparisons_the_ratios_count_and_not_the_machine() -> None:
    assert not any(change.regressed for change in diff(comparison(1.2, 1), comparison(1.2, 2, machine_factor=3.0)))
    worse = [change for change in diff(comparison(1.2, 1), comparison(1.7, 2, machine_factor=0.3)) if change.regressed]
    assert {change.name for change in worse} == {"mean", "p50", "p99"}
    assert worse[0].what == "load, victim, proxy / direct"
    assert worse[0].after == pytest.approx(1.7, rel=0.1)


def test_of_sweeps_the_knees() -> None:
    before, after = (find_knee(lambda rate, c=capacity: at(c, rate), low=100) for capacity in (1000.0, 700.0))
    assert [change.regressed for change in diff(before, after)] == [True]
    assert [change.regressed for change in diff(after, before)] == [False]


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DiffError, match="one is a run, the other a comparison"):
        diff(run(), comparison(1, 1))
    with pytest.raises(DiffError, match="scenario produce, the other of consume"):
        diff(run(), run(scenario="consume"))
    with pytest.raises(DiffError, match="no figure in common"):
        diff(run(), run(phase(tenant(), name="other")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("speed=1%", "no figure speed"),
        ("p99=much", "as in p99=10%"),
        ("p99=-5%", "0% or more"),
        ("p99", "as in p99"),
        ("p99=nan", "0% or"),
    ],
)
def test_a_wrong_threshold_is_named(text: str, said: str) -> None:
    with pytest.raises(DiffError, match=said):
        thresholds([text])


def test_why_they_may_differ_though_nothing_changed() -> None:
    assert apart(run(), run()) == []
    other = run(drivers=[driver(machine=machine(cpus=64))], definition={"topics": 2})
    assert apart(run(), other) == ["they ran on machines of different kinds", "the scenario was not the same: topics"]
