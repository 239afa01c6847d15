"""When operations are due, and what clients count: latencies from the due time, whatever happens to earlier ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.drive.pace import Pace
from loadtest.drive.tally import Tally, merged


@given(st.floats(0.1, 5000), st.integers(1, 7), st.floats(0, 5), st.floats(0.1, 20))
def test_all_clients_together_have_the_rate(rate: float, clients: int, warm_up: float, seconds: float) -> None:
    paces = [Pace(rate, 0.0, warm_up, warm_up + seconds, client, clients) for client in range(clients)]
    due = sorted(pace.due(n) for pace in paces for n in range(3))
    assert due == pytest.approx([n / rate for n in range(3 * clients)], abs=1e-6)
    count = sum(pace.count(warm_up, warm_up + seconds) for pace in paces)
    assert abs(count - rate * seconds) <= 1.01


@given(st.floats(0.5, 300), st.floats(0.5, 10), st.floats(0, 1e6))
def test_seconds_add_up_to_all_that_is_due(rate: float, length: float, offset: float) -> None:
    pace = Pace(rate, 10.0, 10.0, 10.0 + length)
    assert abs(sum(count for _, count in pace.seconds(offset)) - pace.count(10.0, 10.0 + length)) <= 1


def test_of_a_few_no_more_are_due() -> None:
    pace = Pace(10.0, 0.0, 0.0, 100.0, weight=5, max_count=30)
    assert pace.count(0.0, 100.0) == 150
    assert pace.count(2.0, 3.0) == 50
    assert pace.count(3.0, 100.0) == 0


def test_a_latency_counts_from_when_the_operation_was_due() -> None:
    """Coordinated omission: it was due at 11, waited in the driver until 12, and was done at 12.1."""
    tally = Tally(Pace(10.0, 0.0, 10.0, 20.0), by_end=False)
    tally.begun(11.0, 12.0, lag=False)
    tally.done(11.0, 12.0, 12.1, 100)
    report = tally.report("lib")
    assert report.latency.max_us == 1_100_000
    assert report.service.max_us == 100_000
    assert (report.intended, report.sent, report.acknowledged, report.bytes) == (100, 1, 1, 100)


def test_warm_up_counts_in_the_series_alone() -> None:
    tally = Tally(Pace(10.0, 0.0, 10.0, 20.0), by_end=False)
    tally.begun(9.9, 9.9)
    tally.done(9.9, 9.9, 10.5, 7)
    tally.failed("X", 9.0, 9.5)
    report = tally.report("lib")
    assert (report.sent, report.acknowledged, report.bytes, report.failed, report.latency.count) == (0, 0, 0, {}, 0)
    assert (sum(report.series.acknowledged), sum(report.series.failed), sum(report.series.sent)) == (1, 1, 1)


def test_a_throttle_of_the_warm_up_counts_if_it_lasts_longer() -> None:
    tally = Tally(Pace(10.0, 0.0, 10.0, 20.0), by_end=False)
    tally.throttled(3.0, 5.0)
    assert tally.report("lib").throttle.count == 0
    tally.throttled(3.0, 8.0)
    assert tally.report("lib").throttle.count == 1


def test_what_comes_long_after_the_end_is_felt_and_does_not_make_the_rate() -> None:
    tally = Tally(Pace(10.0, 0.0, 0.0, 20.0), by_end=False)
    tally.done(19.0, 19.0, 20.5)
    tally.done(19.0, 19.0, 25.0)
    report = tally.report("lib")
    assert (report.acknowledged, report.latency.count) == (1, 2)


def test_a_client_that_is_held_back_has_the_rate_at_which_it_succeeds() -> None:
    tally = Tally(Pace(10.0, 0.0, 10.0, 20.0), by_end=True)
    tally.done(1.0, 1.0, 15.0)  # due in the warm-up, let through now
    tally.done(19.0, 19.0, 20.1)
    assert tally.report("lib").acknowledged == 1


def test_clients_and_processes_are_added() -> None:
    tallies = [Tally(Pace(10.0, 0.0, 0.0, 10.0, client, 2), by_end=False) for client in range(2)]
    for tally in tallies:
        tally.begun(1.0, 1.0)
        tally.done(1.0, 1.0, 1.5, 10)
        tally.failed("X", 2.0, 2.0)
        tally.throttled(0.25, 2.0)
        tally.throttled(0.0, 2.0)
    report = merged(tally.report("lib") for tally in tallies)
    assert (report.intended, report.acknowledged, report.bytes, report.failed) == (100, 2, 20, {"X": 2})
    assert (report.throttle.count, report.throttle.sum_ms, report.throttle.max_ms) == (2, 500, 250)
    assert report.latency.count == 2
