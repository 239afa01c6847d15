"""The knee of an endpoint that is known to hold so much."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.results.counts import Throttle
from loadtest.results.model import RunResult, Step, Warning, WarningCode
from loadtest.results.sweep import find_knee
from loadtest.results.tables import knee
from tests.loadtest.made import histogram, phase, run, tenant
from tests.properties import examples


def at(capacity: float, rate: float, latency_us: int = 1000) -> RunResult:
    """An endpoint that holds so much: beyond, no more succeeds; latency grows with the rate."""
    done = int(min(rate, capacity) * 10)
    taken = histogram([int(latency_us * (1 + rate / 1000))] * 100)
    return run(phase(tenant(rate=rate, latencies=[1], acknowledged=done, latency=taken, service=taken)))


@given(st.floats(150, 20_000))
@examples(20)
def test_the_knee_is_found(capacity: float) -> None:
    found = find_knee(lambda rate: at(capacity, rate), low=100)
    assert found.bounded
    assert found.knee is not None
    assert capacity * 0.94 <= found.knee <= capacity / 0.97


def test_p99_can_be_what_ends_it() -> None:
    found = find_knee(lambda rate: at(1e9, rate), low=100, p99_limit_us=5000)
    assert found.knee == pytest.approx(4000, rel=0.06)
    assert "p99 is" in next(step.why for step in found.steps if not step.held)


def test_nothing_beyond_the_highest_rate_is_tried() -> None:
    heard: list[Step] = []
    found = find_knee(lambda rate: at(1e9, rate), low=100, high=700, told=heard.append)
    assert (found.knee, found.bounded, [step.rate for step in heard]) == (700, False, [100, 200, 400, 700])


def test_the_lowest_rate_may_be_too_high() -> None:
    found = find_knee(lambda rate: at(10, rate), low=100)
    assert (found.knee, len(found.steps)) == (None, 1)


def test_one_bad_second_is_not_a_limit() -> None:
    calls = iter([90, *[1e9] * 20])
    found = find_knee(lambda rate: at(next(calls), rate), low=100, high=200)
    assert (found.knee, [step.held for step in found.steps]) == (200, [False, True, True])


def test_a_driver_without_cpu_is_no_knee_of_the_endpoint() -> None:
    busy = Warning(code=WarningCode.DRIVER_SATURATED, text="victim-0 was busy")

    def run_at(rate: float) -> RunResult:
        return at(300, rate).model_copy(update={"warnings": [busy] if rate > 300 else []})

    found = find_knee(run_at, low=100)
    assert found.warnings
    assert found.warnings[0].text.endswith("the knee may be that of the driver")


@pytest.mark.parametrize(("low", "high"), [(0, None), (-1, 5), (10, 5)])
def test_a_sweep_goes_up(low: float, high: float | None) -> None:
    with pytest.raises(ValueError, match="a lowest rate above 0"):
        find_knee(lambda rate: at(1, rate), low=low, high=high)


def throttled(quota: float, rate: float) -> RunResult:
    """The same, where a quota holds back what is beyond it, and says so."""
    made = at(quota, rate)
    if rate <= quota:
        return made
    (found,) = made.phases
    told = Throttle(count=40, sum_ms=32_000, max_ms=900)
    held_back = found.tenants[0].model_copy(update={"throttle": told, "failed": {"THROTTLING_QUOTA_EXCEEDED": 5}})
    return made.model_copy(update={"phases": [found.model_copy(update={"tenants": [held_back]})]})


def test_a_quota_is_no_knee() -> None:
    found = find_knee(lambda rate: throttled(300, rate), low=100)
    said = "40 answers told of throttles, 32 s in all, and 5 operations were refused"
    assert f"a quota held it back: {said}" in next(step.why for step in found.steps if not step.held)
    assert [warning.code for warning in found.warnings] == [WarningCode.QUOTA_LIMITED]
    assert f"a quota limits it (at 312 per second {said}), so this is not the knee of the endpoint." in knee(found)
    lowest = find_knee(lambda rate: throttled(50, rate), low=100)
    assert knee(lowest) == f"No rate held: a quota limits them (at 100 per second {said})."


def test_an_endpoint_that_can_do_no_more_is_the_knee() -> None:
    found = find_knee(lambda rate: at(300, rate), low=100)
    assert not found.warnings
    assert knee(found).endswith("per second held: this is the knee.")
