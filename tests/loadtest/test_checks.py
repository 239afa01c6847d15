"""The harness finds what makes its own figures untrue, and is silent when nothing does."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.results.checks import machine, warnings
from loadtest.results.counts import Throttle
from loadtest.results.model import DriverProcess, TenantResult, WarningCode, Watched
from loadtest.results.tables import verdict
from tests.loadtest.made import driver, histogram, phase, run, tenant
from tests.loadtest.made import machine as made_machine


def test_a_good_run_has_no_warning() -> None:
    assert warnings(run()) == []


def codes(**different: Any) -> list[WarningCode]:
    return [warning.code for warning in warnings(run(**different))]


def test_saturated_drivers_and_machines() -> None:
    busy = DriverProcess(name="victim-0", pid=1, thread_max=0.99, saturated_s=6.0)
    brief = DriverProcess(name="victim-1", pid=2, thread_max=0.99, saturated_s=0.4)
    found = warnings(run(drivers=[driver(0, busy, brief, busy_s=3.0)]))
    assert [w.code for w in found] == [WarningCode.DRIVER_SATURATED, WarningCode.MACHINE_SATURATED]
    assert found[0].text.startswith("victim-0: one thread used over 90% of a core for 6 of 10 s")


def test_a_lost_driver() -> None:
    found = warnings(run(drivers=[driver(0, DriverProcess(name="victim-0", pid=1, lost=True))]))
    assert [(w.code, w.text) for w in found] == [
        (WarningCode.DRIVER_LOST, "lost 1 driver process (victim-0): their counts are missing")
    ]


@pytest.mark.parametrize(("lag", "told"), [(0.05, False), (0.9, False), (5.0, True)])
def test_a_loop_that_comes_late_by_more_than_a_share_of_what_it_measures(lag: float, told: bool) -> None:
    late = DriverProcess(name="victim-0", pid=1, lag_p99_ms=lag, lag_max_ms=2 * lag)
    assert codes(drivers=[driver(0, late)]) == [WarningCode.DRIVER_LAG] * told


def test_a_clock_of_coarse_steps() -> None:
    found = warnings(run(drivers=[driver(machine=made_machine(clock_resolution_ns=1e6))]))
    assert [(w.code, w.text) for w in found] == [
        (WarningCode.CLOCK_RESOLUTION, "driver 0: its clock has steps of 1e+03 µs, the smallest median latency is 500 µs")
    ]


SHORT = histogram([1000] * 990 + [2000] * 10)
LONG = histogram([1000] * 900 + [80_000] * 100)


@pytest.mark.parametrize(
    ("figures", "code", "said"),
    [
        (tenant(acknowledged=970), WarningCode.RATE_NOT_REACHED, "100 per second were intended, 97 succeeded"),
        (tenant(acknowledged=900, failed={"TIMEOUT": 100}), WarningCode.RATE_NOT_REACHED, "90 succeeded; 100 failed"),
        (tenant(sent=900), WarningCode.COORDINATED_OMISSION, "100 of 1,000 due operations were never sent"),
        (
            tenant(latency=LONG, service=SHORT),
            WarningCode.COORDINATED_OMISSION,
            "80.0 ms from the due time, 1.0 ms from",
        ),
        (tenant(latency=histogram([-4, *range(1, 1000)])), WarningCode.CLOCK_SKEW, "1 negative latencies"),
    ],
)
def test_what_figures_hide_is_said(figures: TenantResult, code: WarningCode, said: str) -> None:
    found = warnings(run(phase(figures)))
    assert [(w.code, w.phase) for w in found] == [(code, "load")]
    assert said in found[0].text


@pytest.mark.parametrize(
    "figures",
    [
        tenant(acknowledged=980),
        tenant(acknowledged=100, limited=True, throttle=Throttle(count=1, sum_ms=5, max_ms=5)),
        tenant(rate=None, latency=LONG, service=SHORT),
        tenant(latency=histogram([900]), service=histogram([100])),
    ],
)
def test_what_is_meant_so_is_no_warning(figures: TenantResult) -> None:
    assert warnings(run(phase(figures))) == []


def test_what_was_watched_and_ended() -> None:
    found = warnings(run(phase(tenant(), watched=[Watched(name="proxy", lost=True)])))
    assert [(w.code, w.text) for w in found] == [
        (WarningCode.WATCH_LOST, "phase load: proxy ended before the phase did, or never existed")
    ]


def test_this_machine() -> None:
    found = machine()
    assert found.cpus >= 1
    assert 0 < found.clock_resolution_ns < 1e6
    assert found.memory_bytes > 1 << 28


@pytest.mark.parametrize(
    ("tenants", "outcome"),
    [
        ([tenant("a", limited=True), tenant("b", limited=True)], "Nothing was limited"),
        ([tenant("a", limited=True, acknowledged=10), tenant("b", limited=True)], "Nothing was limited"),
        ([tenant("a", limited=True), tenant("b", throttle=Throttle(count=9, sum_ms=9))], "Nothing was limited"),
        ([tenant("a", limited=True, throttle=Throttle(count=1, sum_ms=5, max_ms=5)), tenant("b", limited=True)], "Passed"),
        ([tenant("a", limited=True, failed={"THROTTLING_QUOTA_EXCEEDED": 1})], "Passed"),
        ([tenant("a", limited=True, failed={"Connection reset": 7})], "Passed"),
        ([tenant("a"), tenant("b")], "Passed"),
    ],
)
def test_a_scenario_of_a_quota_that_held_back_nobody_has_not_passed(tenants: list[TenantResult], outcome: str) -> None:
    """Who is below its rate without a throttle time or a refusal was held back by something else than a quota."""
    result = run(phase(*tenants))
    judged = result.model_copy(update={"warnings": warnings(result)})
    assert verdict(judged).startswith(outcome)
    assert judged.passed is (outcome == "Passed")
