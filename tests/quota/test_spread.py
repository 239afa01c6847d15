"""The spread rate of seed s1: its own example, exactness against a model with real samples, and what is promised."""

from copy import deepcopy
from fractions import Fraction
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.windows.spread import MOST, SpreadRate
from quota.windows.token_bucket import TokenBucket
from tests.properties import examples


class Naive:
    """S samples per window, as the seed describes it: recording N puts N/S into each of the last S."""

    def __init__(self, samples: int) -> None:
        self.samples = samples
        self.filled: dict[int, Fraction] = {}
        self.last = 0

    def record(self, amount: int, now: float) -> None:
        self.last = max(self.last, floor(now))
        for window in range(self.last - self.samples + 1, self.last + 1):
            self.filled[window] = self.filled.get(window, Fraction(0)) + Fraction(amount, self.samples)

    def average(self, now: float) -> Fraction:
        window = max(floor(now), self.last) if self.filled else floor(now)
        return (
            sum((self.filled.get(i, Fraction(0)) for i in range(window - self.samples + 1, window + 1)), Fraction(0)) / self.samples
        )


@pytest.fixture
def example() -> SpreadRate:
    """R = 5, B = 500, 7 topics of 80 partitions at second 1000."""
    window = SpreadRate(5, 500)
    for _ in range(7):
        assert window.admits(1000.0)
        window.record(80, 1000.0)
    return window


def test_the_example_of_the_seed(example):
    assert example.samples == 100
    assert example.average(1000.0) == pytest.approx(5.6)
    assert not example.admits(1000.0)
    assert example.wait(1000.0) == pytest.approx(12.0)
    assert next(second for second in range(1000, 1020) if example.admits(second)) == 1011
    assert example.average(1010.999) == pytest.approx(5.04)
    assert example.average(1011.0) == pytest.approx(4.984)


def test_a_burst_is_gone_a_window_at_a_time_and_wholly_after_all_of_them(example):
    assert [example.average(1000.0 + k) for k in range(100)] == pytest.approx([5.6 * (100 - k) / 100 for k in range(100)])
    assert not example.idle(1099.9)
    assert example.idle(1100.0)
    assert example.average(1100.0) == 0


def test_the_running_window_is_one_of_the_windows():
    window = SpreadRate(5, 5)
    window.record(5, 10.2)
    assert window.average(10.9) == 5
    assert not window.admits(10.9)
    assert window.admits(11.0)


def test_equal_is_refused_and_has_to_wait_one_window():
    window = SpreadRate(5, 500)
    window.record(500, 0.0)
    assert window.average(0.0) == 5
    assert not window.admits(0.0)
    assert window.wait(0.0) == 1.0


@pytest.mark.parametrize(("rate", "burst"), [(5, 4.9), (0, 5), (-1, 5), (5, 0)])
def test_a_burst_below_the_rate_is_refused(rate, burst):
    with pytest.raises(ValueError, match="burst"):
        SpreadRate(rate, burst)


@pytest.mark.parametrize(
    ("rate", "burst", "samples"),
    [
        (5, 500, 100),
        (5, 5, 1),
        (2, 5, 2),
        (0.5, 10, 20),
        (3, 8.9, 2),
        (0.1, 0.3, 3),
        (0.1, 1.2, 12),
        (0.7, 11 * 0.7, 11),
        (0.3, 0.9, 3),
    ],
)
def test_the_windows_are_as_many_as_whole_rates_fit_into_the_burst(rate, burst, samples):
    assert SpreadRate(rate, burst).samples == samples


@given(st.integers(1, 100_000))
def test_the_default_burst_of_eleven_rates_has_eleven_windows(thousandths):
    from quota.kinds.controller_mutations import MutationLimit

    limit = MutationLimit.of(thousandths / 1000, None)
    assert SpreadRate(limit.rate, limit.burst).samples == 11


STEPS = st.lists(st.tuples(st.floats(-2, 30, allow_nan=False), st.integers(0, 5000)), min_size=1, max_size=40)
"""(seconds to the next step, going back at times; amount to record there)"""


@given(st.integers(1, 50), STEPS, st.integers(0, 2**31))
@examples(300)
def test_it_is_what_real_samples_would_be(samples, steps, start):
    exact, naive, now = SpreadRate(3, 3 * samples), Naive(samples), float(start)
    for passed, amount in steps:
        now += max(passed, 0.0)  # what was forgotten once does not come back: the model would remember it
        if amount:
            exact.record(amount, now)
            naive.record(amount, now)
        assert exact.average(now) == pytest.approx(float(naive.average(now)), abs=1e-9)


@given(st.integers(1, 60), st.integers(1, 40), STEPS)
@examples(300)
def test_refused_until_the_promised_instant_at_the_latest_then_admitted(rate, windows, steps):
    window, now = SpreadRate(rate, rate * windows), 0.0
    for passed, amount in steps:
        now = max(now + passed, 0.0)
        if window.admits(now):
            window.record(amount, now)
        else:
            promised = now + window.wait(now)
            assert promised > now
            assert deepcopy(window).admits(promised)
            assert deepcopy(window).admits(promised + 1000)


@given(st.integers(1, 60), st.integers(1, 40), STEPS)
@examples(300)
def test_never_admitted_at_or_above_the_rate_but_by_a_promise(rate, windows, steps):
    window, now, promised = SpreadRate(rate, rate * windows), 0.0, None
    for passed, amount in steps:
        now = max(now + passed, 0.0)
        if window.admits(now):
            assert window.average(now) < rate or (promised is not None and now >= promised)
            window.record(amount, now)
            promised = promised if amount == 0 else None
        else:
            assert window.average(now) >= rate
            told = now + window.wait(now)
            promised = told if promised is None else min(told, promised)


def test_a_promise_is_void_once_something_was_recorded():
    window = SpreadRate(5, 500)
    window.record(560, 0.0)
    promised = window.wait(0.0)
    window.record(560, 1.0)
    assert not window.admits(promised)


def test_the_earliest_promise_holds_for_whoever_asks_later():
    window = SpreadRate(1, 1000)
    window.record(1001, 0.0)
    first = window.wait(0.0)
    assert window.wait(0.5) + 0.5 >= first
    assert window.admits(first)


def test_time_that_goes_back_does_no_harm():
    window = SpreadRate(5, 500)
    window.record(560, 1000.0)
    assert window.average(3.0) == window.average(1000.0)
    window.record(10, 2.0)
    assert window.average(1000.0) == pytest.approx(5.7)
    assert window.idle(1100.0)


def test_nothing_recorded_costs_nothing():
    window = SpreadRate(5, 500)
    window.record(0, 1.0)
    assert window.idle(1.0)
    assert window.admits(1.0)


# ---------------------------------------------------------------------- what did not happen


def test_a_credit_is_of_its_own_window_and_of_no_other():
    window = SpreadRate(5, 50)
    first = window.record(10, 0.0)
    window.record(20, 3.0)
    window.credit(10, first)
    assert window.average(3.0) == pytest.approx(2.0)
    window.credit(10, first)
    assert window.average(3.0) == pytest.approx(2.0), "it was taken back already"
    late = window.record(5, 4.0)
    assert window.average(14.0) == 0
    window.record(20, 14.0)
    window.credit(5, late)
    assert window.average(14.0) == pytest.approx(2.0), "its window had passed"


def test_after_a_credit_of_all_nothing_is_kept():
    window = SpreadRate(5, 50)
    window.credit(10, window.record(10, 0.0))
    assert window.idle(0.0)


def test_a_promise_holds_again_once_what_came_after_it_is_taken_back():
    window = SpreadRate(10, 100)
    window.record(101, 0.0)
    promised = window.wait(0.0)
    assert window.average(promised) > 10, "only the promise lets anyone in"
    mark = window.record(1, 0.05)
    assert not window.admits(promised)
    window.credit(1, mark)
    assert window.admits(promised)


def test_a_credit_of_what_was_recorded_before_a_promise_does_not_make_it_hold_again():
    window = SpreadRate(10, 100)
    before = window.record(101, 0.0)
    promised = window.wait(0.0)
    window.record(50, 0.05)
    window.credit(50, before)
    assert window.average(promised) > 10
    assert not window.admits(promised)


CREDITS = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 400), st.none() | st.integers(0, 6)), min_size=1, max_size=40
)  # (seconds to the next record, amount, after how many more records it is credited)


@given(st.integers(1, 60), CREDITS)
@examples(500)
def test_after_credits_it_is_as_if_those_had_never_been_recorded(samples, steps):
    window, clean, now = SpreadRate(3, 3 * samples), SpreadRate(3, 3 * samples), 0.0
    due: dict[int, list] = {}
    for i, (passed, amount, delay) in enumerate(steps):
        now += passed
        mark = window.record(amount, now)
        if delay is None:
            clean.record(amount, now)
        else:
            due.setdefault(min(i + delay, len(steps) - 1), []).append((amount, mark))
        for credited in due.pop(i, []):
            window.credit(*credited)
            assert window.average(now) >= 0
    for later in (now, now + 0.5, now + 1, now + samples / 2, now + samples):
        assert window.average(later) == clean.average(later)
        assert window.admits(later) == clean.admits(later)
    assert list(window._windows) == list(clean._windows), "nothing is left of them"


# ---------------------------------------------------------------------- bounds


@pytest.mark.parametrize("samples", [193, 1000, 20_000])
def test_memory_is_bounded_and_older_amounts_weigh_a_little_longer_never_shorter(samples):
    window = SpreadRate(1, samples)
    steady = Fraction(samples + 1, 2 * samples)  # each of S seconds gave one unit, the k-th to last fills S - k of S windows
    for second in range(samples * 2):
        window.record(1, float(second))
        assert len(window._windows) <= MOST
        if second >= samples:
            assert steady <= Fraction(window.average(float(second))) + Fraction(1, 10**9)
            assert window.average(float(second)) <= steady * Fraction(102, 100)
    assert window.idle(samples * 3.0)


def test_recent_amounts_are_credited_exactly_however_many_there_are_and_older_ones_from_where_they_are_counted():
    window, clean = SpreadRate(1, 5000), SpreadRate(1, 5000)
    marks = []
    for second in range(3000):
        marks.append(window.record(2, float(second)))
        clean.record(1 if second >= 2950 else 2, float(second))
    for mark in marks[2950:]:
        window.credit(1, mark)
    assert window.average(3000.0) == clean.average(3000.0)
    before = window.used(3000.0)
    for mark in marks[:100]:
        window.credit(2, mark)
    assert before - window.used(3000.0) == pytest.approx(200 * 0.41, rel=0.02)
    at = 5110.0  # the first hundred were taken back, a few more have passed
    before = window.used(at)
    for mark in marks[100:106]:
        window.credit(2, mark)
    assert window.used(at) == before
    for mark in marks:
        window.credit(2, mark)
    assert window.used(at) >= 0
    assert len(clean._windows) <= MOST


def test_amounts_without_measure_overflow_nothing():
    window = SpreadRate(5, 5000)
    for second in range(500):
        window.record(2**62, float(second))
    assert not window.admits(500.0)
    assert window.idle(6000.0)


def test_a_promise_is_void_once_the_limit_is_another():
    window = SpreadRate(10, 100)
    window.record(101, 0.0)
    promised = window.wait(0.0)
    window.change(9, 90, 0.0)
    assert not window.admits(promised)


@pytest.mark.parametrize("kind", [SpreadRate, TokenBucket])
def test_a_changed_limit_holds_at_once_and_what_was_used_stays_used(kind):
    window = kind(5, 500)
    window.record(400, 0.0)
    window.change(10, 1000, 0.0)
    assert (window.rate, window.burst) == (10, 1000)
    assert window.admits(0.0)
    assert window.left(0.0) < 1000
    window.change(1, 100, 0.0)
    assert not window.admits(0.0)
    assert window.wait(0.0) > 0
