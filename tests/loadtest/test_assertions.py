"""Assertions, on made figures: each holds where it should, and does not where it should not."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.assertions import jain
from loadtest.results.counts import Series, Throttle
from loadtest.results.model import PhaseResult, Verification
from loadtest.scenario import assess
from tests.loadtest.made import START, phase, run, tenant

KIB = 1024


def judged(check: dict[str, Any], *phases: PhaseResult, **more: Any) -> tuple[bool, str]:
    """(whether it holds, what was found)"""
    names = sorted({one.tenant for found in phases for one in found.tenants})
    definition = {
        "tenants": {name: {} for name in names},
        "topics": {"t": {}},
        "phases": [
            {
                "name": found.name,
                "duration": "10s",
                "load": [{"tenant": one.tenant, "operation": "produce", "topic": "t", "rate": 1} for one in found.tenants],
            }
            for found in phases
        ],
        "assertions": [check],
    }
    (result,) = assess(run(*phases, definition=definition, **more))
    return result.passed, result.got


def series(acknowledged: list[int], **more: Any) -> Series:
    empty = [0] * len(acknowledged)
    known = dict.fromkeys(("intended", "sent", "failed", "bytes", "latency_sum_us", "latency_max_us"), empty)
    return Series(first=int(START), **known | {"acknowledged": acknowledged} | more)


@pytest.mark.parametrize(
    ("quota", "side", "within", "holds"),
    [(100, "both", "5%", True), (104, "both", "5%", True), (110, "both", "5%", False), (90, "both", "5%", False),
     (110, "above", "5%", True), (90, "above", "5%", False), (90, "above", "15%", True)],
)  # fmt: skip
def test_a_rate_is_within_its_share_of_the_quota(quota: float, side: str, within: str, holds: bool) -> None:
    check = {"check": "rate", "tenant": "a", "quota": quota, "side": side, "within": within}
    assert judged(check, phase(tenant("a")))[0] is holds


def test_a_rate_of_bytes() -> None:
    check = {"check": "rate", "tenant": "a", "of": "bytes", "quota": "100KiB"}
    assert judged(check, phase(tenant("a", bytes=1000 * KIB))) == (True, "0.09766 MiB/s (+0.0%)")
    assert not judged(check, phase(tenant("a", bytes=1200 * KIB)))[0]


def test_a_rate_that_several_share() -> None:
    check = {"check": "rate", "tenant": "a", "shared_with": ["b"], "of": "bytes", "quota": "100KiB"}
    assert judged(check, phase(tenant("a", bytes=700 * KIB), tenant("b", bytes=300 * KIB)))[0]
    assert not judged(check, phase(tenant("a", bytes=1000 * KIB), tenant("b", bytes=300 * KIB)))[0]
    assert judged(check | {"tenant": "b"} | {"shared_with": []}, phase(tenant("a"), tenant("b", bytes=1000 * KIB)))[0]


def test_what_has_no_load_does_not_hold() -> None:
    check = {"check": "rate", "tenant": "a", "quota": 1, "phase": "one"}
    assert judged(check, phase(tenant("b"), name="one"), phase(tenant("a"), name="two")) == (False, "no load of a in phase one")


def test_a_rate_converges_once_all_later_windows_are_near_the_quota() -> None:
    flow = series([500, 300, 100, 100, 105, 95, 100, 100, 100, 100])
    check = {"check": "converges", "tenant": "a", "quota": 100, "window": "2s", "within": "10%"}
    one = phase(tenant("a", series=flow))
    assert judged({**check, "by": "2s"}, one) == (True, "from 2 s on")
    assert judged({**check, "by": "1s"}, one)[0] is False
    never = phase(tenant("a", series=series([100] * 9 + [0])))
    assert judged({**check, "by": "9s"}, never) == (False, "not until the end, which is 50.0% off")


def test_overshoot_is_in_seconds_of_the_quota() -> None:
    """1000 at once, then the quota of 100: nine seconds' worth beyond it, all the time."""
    check = {"check": "overshoot", "tenant": "a", "quota": 100}
    one = phase(tenant("a", series=series([1000] + [100] * 9)))
    assert judged({**check, "at_most": "10s"}, one) == (True, "10.0 s")
    assert not judged({**check, "at_most": "9s"}, one)[0]


def test_overshoot_counts_what_comes_late() -> None:
    """The first second of the series is not that of the phase: nothing passed before."""
    late = Series(**series([1000]).model_dump() | {"first": int(START) + 8})
    assert judged({"check": "overshoot", "tenant": "a", "quota": 100}, phase(tenant("a", series=late))) == (True, "2.0 s")


def test_latencies_recover() -> None:
    before = phase(tenant("a", latencies=[1000] * 100), name="alone")
    after = series([10] * 10, latency_sum_us=[90_000, 80_000, 50_000, *[15_000] * 7])
    check = {"check": "recovers", "tenant": "a", "phase": "after", "compared_with": "alone"}
    one = phase(tenant("a", series=after), name="after")
    assert judged({**check, "by": "3s"}, before, one) == (True, "from 3 s on")
    assert not judged({**check, "by": "2s"}, before, one)[0]
    worse = phase(tenant("a", series=series([10] * 10, latency_sum_us=[90_000] * 10)), name="after")
    assert judged({**check, "by": "10s"}, before, worse) == (False, "not until the end")


def test_a_second_without_any_success_has_not_recovered() -> None:
    before = phase(tenant("a", latencies=[1000] * 100), name="alone")
    silent = phase(tenant("a", series=series([10] * 5 + [0] + [10] * 4, latency_sum_us=[10_000] * 10)), name="after")
    check = {"check": "recovers", "tenant": "a", "phase": "after", "compared_with": "alone", "by": "3s"}
    assert judged(check, before, silent) == (False, "from 6 s on")


def test_fairness_is_jains_index() -> None:
    assert jain([5, 5, 5]) == pytest.approx(1)
    assert jain([9, 0, 0]) == pytest.approx(1 / 3)
    assert jain([0, 0]) == 1
    fair, unfair = [phase(tenant("a"), tenant("b", acknowledged=n)) for n in (900, 100)]
    check = {"check": "fairness", "tenants": ["a", "b"]}
    assert judged(check, fair)[0]
    assert not judged(check, unfair)[0]


def test_a_total_is_so_many_times_what_one_of_the_tenants_wrote() -> None:
    check = {"check": "total", "tenants": ["a", "b"], "as_tenant": "a"}
    found = phase(tenant("a", acknowledged=100, bytes=1000), tenant("b", acknowledged=800, bytes=8000))
    assert judged({**check, "at_least": 8.5}, found) == (True, "9.00 times")
    assert not judged({**check, "at_least": 9.5}, found)[0]


def test_what_the_victim_felt() -> None:
    alone, together = (phase(tenant("a", latencies=[us] * 100), name=name) for name, us in (("alone", 1000), ("together", 5000)))
    check = {"check": "felt", "tenant": "a", "phase": "together", "compared_with": "alone"}
    assert judged({**check, "at_most": 6}, alone, together)[0]
    assert judged({**check, "at_most": 3}, alone, together) == (False, "p99 of 5 ms, 5.00 times the 1 ms of alone")
    assert judged({**check, "at_most": 3, "or_below": "10ms"}, alone, together)[0]
    assert judged({**check, "at_least": 4}, alone, together)[0]
    assert not judged({**check, "at_least": 6}, alone, together)[0]


def test_a_latency() -> None:
    one = phase(tenant("a", latencies=[1000] * 98 + [9000] * 2))
    assert judged({"check": "latency", "tenant": "a", "percentile": 50, "at_most": "2ms"}, one)[0]
    assert judged({"check": "latency", "tenant": "a", "at_most": "2ms"}, one) == (False, "9 ms")


def test_whether_somebody_was_throttled() -> None:
    quiet, told = phase(tenant("a")), phase(tenant("a", throttle=Throttle(count=3, sum_ms=900, max_ms=500)))
    refused = phase(tenant("a", failed={"THROTTLING_QUOTA_EXCEEDED": 2}))
    check = {"check": "throttled", "tenant": "a"}
    assert [judged(check, one)[0] for one in (quiet, told, refused)] == [False, True, True]
    assert [judged({**check, "expected": False}, one)[0] for one in (quiet, told, refused)] == [True, False, False]


def test_errors_of_all_or_of_one() -> None:
    both = phase(tenant("a", failed={"X": 2}), tenant("b"))
    assert judged({"check": "errors"}, both) == (False, "2 (X)")
    assert judged({"check": "errors", "tenant": "b"}, both)[0]
    assert judged({"check": "errors", "at_most": 2}, both)[0]


def test_an_error_that_a_quota_refuses_with_is_no_failure_and_has_to_be_there() -> None:
    check = {"check": "errors", "refused": "POLICY_VIOLATION"}
    assert judged(check, phase(tenant("a", failed={"POLICY_VIOLATION": 2}))) == (True, "2 and 0 others")
    assert judged(check, phase(tenant("a", failed={"POLICY_VIOLATION": 2, "X": 1}))) == (False, "2 and 1 (X) others")
    assert not judged(check, phase(tenant("a")))[0], "nothing was refused"


def test_as_much_was_done_as_a_quota_allows() -> None:
    check = {"check": "done", "tenant": "a", "quota": 200}
    for done, right, within in ((200, True, False), (199, False, True), (201, False, True), (189, False, False)):
        one = phase(tenant("a", acknowledged=done))
        assert judged(check, one) == (right, f"{done}")
        assert judged({**check, "within": "5%"}, one)[0] is (right or within)


def test_records_are_there_once_in_order() -> None:
    check, one = {"check": "verified"}, phase(tenant("a"))
    right = Verification(client="c", tenant="a", acknowledged=10, consumed=10)
    assert judged(check, one, verification=[right])[0]
    for wrong in ("lost", "duplicated", "out_of_order"):
        found = right.model_copy(update={wrong: 1})
        assert not judged(check, one, verification=[found])[0]
        assert judged({**check, wrong: 1}, one, verification=[found])[0]
    assert judged(check, one, verification=[]) == (False, "no record was acknowledged")
