"""The token bucket: what Kafka's own does (`TokenBucket`, `ControllerMutationQuotaManager`), and what it must hold."""

from copy import deepcopy
from fractions import Fraction
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.windows.token_bucket import MOST, TokenBucket
from tests.properties import examples


class Kafka:
    """The arithmetic of Kafka's class, in fractions."""

    def __init__(self, rate: int, burst: int) -> None:
        self.rate, self.burst, self.tokens, self.at = rate, burst, Fraction(burst), Fraction(0)

    def refill(self, now: float) -> Self:
        self.tokens = min(Fraction(self.burst), self.tokens + self.rate * (Fraction(now) - self.at))
        self.at = Fraction(now)
        return self

    def record(self, amount: int, now: float) -> None:
        self.tokens = min(Fraction(self.burst), self.refill(now).tokens - amount)


def tokens(bucket: TokenBucket, now: float) -> float:
    return bucket.burst - bucket.used(now)


def test_recording_as_in_kafkas_own_test_of_the_class():
    bucket = TokenBucket(5, 100)
    assert tokens(bucket, 0.0) == 100
    for now, amount, left in ((0.0, 60, 40), (2.0, 5, 45), (4.0, 60, -5)):
        bucket.record(amount, now)
        assert tokens(bucket, now) == left


def test_debt_is_looked_at_before_recording_and_no_token_is_no_debt():
    bucket = TokenBucket(10, 110)
    for expected in (110, 20, -70):
        assert tokens(bucket, 0.0) == expected
        if expected >= 0:
            assert bucket.admits(0.0)
            bucket.record(90, 0.0)
    assert not bucket.admits(0.0)
    assert bucket.wait(0.0) == 7.0
    assert not bucket.admits(6.999)
    assert bucket.admits(7.0)
    empty = TokenBucket(10, 110)
    empty.record(110, 0.0)
    assert (empty.admits(0.0), empty.wait(0.0), empty.left(0.0)) == (True, 0.0, 0.0)


def test_average_is_the_rate_when_the_bucket_is_empty():
    bucket = TokenBucket(5, 500)
    figures = []
    for amount in (0, 250, 250, 50):
        bucket.record(amount, 3.0)
        figures.append((bucket.average(3.0), bucket.left(3.0), bucket.used(3.0)))
    assert figures == [(0, 500, 0), (2.5, 250, 250), (5, 0, 500), (pytest.approx(5.5), 0, 550)]


def test_it_is_full_again_and_idle_after_burst_over_rate_seconds():
    bucket = TokenBucket(5, 500)
    bucket.record(500, 1000.0)
    assert not bucket.idle(1099.0)
    assert bucket.idle(1100.0)
    assert bucket.left(5000.0) == 500


def test_time_that_goes_back_does_no_harm():
    bucket = TokenBucket(5, 500)
    bucket.record(560, 1000.0)
    bucket.record(10, 2.0)
    assert tokens(bucket, 0.0) == tokens(bucket, 1000.0) == -70
    assert bucket.admits(1014.0)


@pytest.mark.parametrize(("rate", "burst"), [(5, 4.9), (0, 5), (-1, 5), (5, 0)])
def test_a_burst_below_the_rate_is_refused(rate, burst):
    with pytest.raises(ValueError, match="burst"):
        TokenBucket(rate, burst)
    with pytest.raises(ValueError, match="burst"):
        TokenBucket(1, 1).change(rate, burst, 0.0)


STEPS = st.lists(st.tuples(st.floats(0, 30), st.integers(0, 5000)), min_size=1, max_size=40)
"""(seconds to the next step, amount to record there)"""


@given(st.integers(1, 60), st.integers(1, 40), STEPS, st.integers(0, 2**31))
@examples(300)
def test_it_holds_what_kafkas_does(rate, windows, steps, start):
    bucket, kafka, now = TokenBucket(rate, rate * windows), Kafka(rate, rate * windows), float(start)
    kafka.refill(now)
    for passed, amount in steps:
        now += passed
        owed = -float(kafka.refill(now).tokens)
        assert tokens(bucket, now) == pytest.approx(-owed, abs=1e-3)
        assert bucket.wait(now) == pytest.approx(max(owed, 0) / rate, abs=1e-3)
        assert bucket.admits(now) == (owed <= 0) or abs(owed) < 1e-3
        bucket.record(amount, now)
        kafka.record(amount, now)


@given(st.floats(0.001, 1e6), st.floats(1, 1e6), STEPS, st.floats(0, 1e9))
@examples(500)
def test_refused_until_the_promised_instant_then_admitted(rate, seconds, steps, start):
    """Whatever rounding does: the instant is told as a difference, and clocks have run for years."""
    bucket, now = TokenBucket(rate, rate * seconds), start
    for passed, amount in steps:
        now += passed
        bucket.record(amount, now)
        if not bucket.admits(now):
            told = bucket.wait(now)
            assert told > 0
            assert deepcopy(bucket).admits(now + told)
            assert deepcopy(bucket).admits(now + told + 1000)


@given(st.integers(1, 60), st.integers(1, 40), STEPS)
@examples(300)
def test_what_is_admitted_holds_the_rate_in_the_long_run(rate, windows, steps):
    """All that passes is the burst, what was filled since, and what the last one overshot."""
    bucket, now, admitted, largest = TokenBucket(rate, rate * windows), 0.0, 0, 0
    for passed, amount in steps:
        now += passed
        if bucket.admits(now):
            bucket.record(amount, now)
            admitted += amount
            largest = max(largest, amount)
            assert admitted <= rate * windows + rate * now + largest + 1e-6


# ---------------------------------------------------------------------- what did not happen


def test_a_credit_gives_back_but_for_what_the_bucket_would_have_spilled():
    bucket = TokenBucket(5, 500)
    mark = bucket.record(100, 0.0)
    bucket.record(300, 10.0)
    assert tokens(bucket, 10.0) == 150
    bucket.credit(100, mark)
    assert tokens(bucket, 10.0) == 200, "without it, the bucket had been full before the 300"


def test_a_credit_of_what_was_refilled_long_ago_makes_no_room():
    bucket = TokenBucket(5, 500)
    mark = bucket.record(100, 0.0)
    bucket.record(300, 20.0)
    bucket.credit(100, mark)
    assert tokens(bucket, 20.0) == 200
    bucket.credit(10_000, bucket.record(1, 20.0))
    assert bucket.left(20.0) == 500, "never more than the burst"


CREDITS = st.lists(
    st.tuples(st.floats(0, 20), st.integers(1, 400), st.none() | st.integers(0, 6)), min_size=1, max_size=12
)  # (seconds to the next record, amount, after how many more records it is credited)


@given(st.integers(1, 20), st.integers(1, 40), CREDITS)
@examples(500)
def test_after_credits_it_is_as_if_those_had_never_been_recorded(rate, windows, steps):
    bucket, clean, now = TokenBucket(rate, rate * windows), TokenBucket(rate, rate * windows), 0.0
    due: dict[int, list] = {}
    for i, (passed, amount, delay) in enumerate(steps):
        now += passed
        mark = bucket.record(amount, now)
        if delay is None:
            clean.record(amount, now)
        else:
            due.setdefault(min(i + delay, len(steps) - 1), []).append((amount, mark))
        for credited in due.pop(i, []):
            bucket.credit(*credited)
    for later in (now, now + 1, now + 1000):
        assert tokens(bucket, later) == pytest.approx(tokens(clean, later), abs=1e-6)


@given(st.integers(1, 20), st.integers(1, 40), st.lists(st.tuples(st.floats(0, 5), st.integers(1, 50)), min_size=30, max_size=60))
@examples(200)
def test_a_late_credit_never_creates_room_and_costs_no_memory(rate, windows, steps):
    bucket, clean, now, first = TokenBucket(rate, rate * windows), TokenBucket(rate, rate * windows), 0.0, None
    for passed, amount in steps:
        now += passed
        mark = bucket.record(amount, now)
        if first is None:
            first = amount, mark
        else:
            clean.record(amount, now)
    assert len(bucket._gaps) <= MOST
    bucket.credit(*first)
    assert tokens(bucket, now) <= tokens(clean, now) + 1e-6
