"""The results of N drivers become that of one run; what is missing is named."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.results.counts import Series, SeriesRecorder, add
from loadtest.results.merge import MergeError, merge_runs
from loadtest.results.model import AssertionResult, Event, RunResult, Verification, Warning, WarningCode, Watched
from tests.loadtest.made import START, driver, histogram, phase, run, tenant


def part(index: int, *, count: int = 2, **different: Any) -> RunResult:
    """What driver `index` of `count` has."""
    return run(**{"drivers": [driver(index)], "driver_count": count} | different)


def test_counts_add_and_histograms_merge() -> None:
    one = part(0, phases=[phase(tenant(latencies=[1, 2, 3], failed={"TIMEOUT": 2}))])
    two = part(1, phases=[phase(tenant(latencies=[5, 9000], failed={"TIMEOUT": 1, "AUTH": 4}))])
    merged = merge_runs([one, two])
    found = merged.phases[0].tenants[0]
    assert (found.intended, found.acknowledged, found.bytes, found.intended_rate) == (2000, 2000, 200_000, 200.0)
    assert found.failed == {"TIMEOUT": 3, "AUTH": 4}
    assert found.latency == histogram([1, 2, 3, 5, 9000])
    assert [driver.index for driver in merged.drivers] == [0, 1]
    assert not merged.warnings
    assert merged.passed


def test_a_tenant_of_one_driver_alone_stays() -> None:
    merged = merge_runs([part(0, phases=[phase(tenant("a"))]), part(1, phases=[phase(tenant("b"))])])
    assert [found.tenant for found in merged.phases[0].tenants] == ["a", "b"]


SECONDS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10**6), st.integers(0, 1000)), max_size=40)


@given(SECONDS, SECONDS)
def test_series_are_added_by_the_second_of_the_clock(one: list[tuple[int, int, int]], two: list[tuple[int, int, int]]) -> None:
    both, parts = SeriesRecorder(), []
    for operations in (one, two):
        recorder = SeriesRecorder()
        for second, latency, size in operations:
            for to in (both, recorder):
                to.intended(START + second)
                to.sent(START + second, 2)
                to.acknowledged(START + second, latency, size)
                to.failed(START + second)
        parts.append(recorder.series())
    assert add(parts) == both.series()


def test_a_missing_driver_is_named_and_the_run_has_not_passed() -> None:
    merged = merge_runs([part(0, count=4), part(2, count=4)])
    assert [(w.code, w.text.partition(";")[0]) for w in merged.warnings] == [
        (WarningCode.DRIVER_MISSING, "2 of 4 drivers are missing: 1, 3")
    ]
    assert not merged.passed


def test_a_rate_is_judged_of_all_drivers_and_not_of_each() -> None:
    slow = tenant(acknowledged=500)
    warning = Warning(code=WarningCode.RATE_NOT_REACHED, text="of one driver")
    merged = merge_runs([part(0, phases=[phase(slow)], warnings=[warning]), part(1, phases=[phase(slow)])])
    assert [w.text for w in merged.warnings] == ["phase load, victim: 200 per second were intended, 100 succeeded"]
    assert not merged.passed


def test_assertions_are_those_of_the_whole() -> None:
    def assess(whole: RunResult) -> list[AssertionResult]:
        got = whole.phases[0].tenants[0].acknowledged
        return [AssertionResult(name="rate", wanted="2000", got=str(got), passed=got == 2000, text="all of them")]

    own = AssertionResult(name="rate", wanted="2000", got="1000", passed=False, text="a share")
    merged = merge_runs([part(0, assertions=[own]), part(1, assertions=[own])], assess)
    assert [(found.got, found.passed) for found in merged.assertions] == [("2000", True)]


def test_drivers_that_began_apart_are_told() -> None:
    merged = merge_runs([part(0), part(1, phases=[phase(tenant(), started=START + 4.2)])])
    assert [w.text for w in merged.warnings] == ["phase load: the drivers began it 4.2 s apart"]


def test_verification_events_and_watched_come_together() -> None:
    found = Verification(client="confluent-kafka", acknowledged=10, consumed=9, lost=1, examples=["a"])
    seen = Watched(name="proxy", cpu_s=1.0)
    event = Event(at=START + 1, text="restart")
    parts = [part(i, verification=[found], phases=[phase(tenant(), watched=[seen], events=[event])]) for i in range(2)]
    merged = merge_runs(parts)
    assert [(v.acknowledged, v.lost, v.examples) for v in merged.verification] == [(20, 2, ["a", "a"])]
    assert [watched.name for watched in merged.phases[0].watched] == ["proxy", "proxy (2)"]
    assert merged.phases[0].events == [event]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"run_id": "r2"}, "run id of one is r1, of another r2"),
        ({"scenario": "consume"}, "the scenario"),
        ({"definition": {"topics": 2}}, "`topics` differ"),
        ({"driver_count": 3}, "number of drivers"),
        ({"drivers": [driver(0)]}, "driver 0 is given more than once"),
        ({"drivers": [driver(7)]}, "there is no driver 7 in a run of 2: the last one is 1"),
    ],
)
def test_what_is_not_of_one_run_is_refused(other: dict[str, Any], said: str) -> None:
    with pytest.raises(MergeError, match=said):
        merge_runs([part(0), part(1, **other)])


def test_nothing_is_no_run() -> None:
    with pytest.raises(MergeError, match="no result"):
        merge_runs([])


def test_an_empty_series_is_nothing() -> None:
    assert add([]) == Series()
