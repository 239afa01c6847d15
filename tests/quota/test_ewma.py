"""The one-minute rate: what the classic meter tells, tick by tick."""

from math import exp, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.windows.ewma import ALPHA, Meter
from tests.properties import examples


class Literal:
    """The classic meter: a loop over every tick."""

    def __init__(self) -> None:
        self.rate, self.first, self.uncounted, self.next = 0.0, True, 0, None

    def tick(self, now: float) -> None:
        while self.next is not None and self.next <= now:
            instant = self.uncounted / 5
            self.uncounted = 0
            if self.first:
                self.rate, self.first = instant, False
            else:
                self.rate += (1 - exp(-5 / 60)) * (instant - self.rate)
            self.next += 5

    def record(self, amount: int, now: float) -> None:
        self.tick(now)
        if self.next is None:
            self.next = (now // 5 + 1) * 5
        self.uncounted += amount


def test_it_is_0_until_the_first_tick_then_the_instant_rate_then_a_step_each_tick():
    meter = Meter()
    meter.record(1000, 0.0)
    meter.record(500, 4.999)
    assert meter.rate(4.999) == 0
    assert meter.rate(5.0) == 300
    meter.record(3000, 5.0)
    assert meter.rate(9.999) == 300
    assert meter.rate(10.0) == pytest.approx(300 + 0.07995558537067671 * 300), "1 - e^(-1/12), times 600 - 300"
    assert meter.rate(70.0) == pytest.approx(323.986675611203 / 2.718281828459045), "idle for a minute"
    assert meter.count == 4500


def test_meters_of_one_epoch_tick_at_the_same_instants():
    early, late = Meter(epoch=2.0), Meter(epoch=2.0)
    early.record(50, 2.0)
    late.record(50, 6.9)
    assert [(one.rate(6.999), one.rate(7.0)) for one in (early, late)] == [(0, 10), (0, 10)]


def test_a_meter_begins_with_what_is_first_recorded():
    meter = Meter()
    assert meter.rate(1000.0) == 0
    meter.record(50, 2001.0)
    assert (meter.rate(2004.9), meter.rate(2005.0)) == (0, 10)


def test_hours_of_idle_ticks_are_one_step_and_time_that_goes_back_does_no_harm():
    meter = Meter()
    meter.record(10**12, 0.0)
    assert meter.rate(5.0) == 2e11
    assert 0 < meter.rate(600.0) < 2e11
    assert meter.rate(1e9) == 0
    meter.record(500, 0.0)
    assert meter.rate(0.0) == 0
    assert meter.rate(1e9 + 5) == pytest.approx(ALPHA * 100)


AMOUNTS = st.lists(st.tuples(st.one_of(st.floats(0, 12), st.floats(0, 4000), st.sampled_from([0.0, 5.0])), st.integers(0, 10**9)))
"""(seconds to the next record, amount)"""


@given(AMOUNTS, st.integers(0, 10**6))
@examples(300)
def test_it_equals_a_meter_that_ticks_in_a_loop(steps, start):
    meter, literal, now, count = Meter(), Literal(), float(start), 0
    for passed, amount in steps:
        now += passed
        count += amount
        meter.record(amount, now)
        literal.record(amount, now)
        assert meter.rate(now) == pytest.approx(literal.rate, rel=1e-9, abs=1e-9)
        assert meter.count == count


@given(AMOUNTS.filter(bool), st.floats(0.001, 1e9))
@examples(300)
def test_it_is_above_a_limit_until_the_promised_tick_and_not_after(steps, limit):
    meter, literal, now = Meter(), Literal(), 0.0
    for passed, amount in steps:
        now += passed
        meter.record(amount, now)
        literal.record(amount, now)
    wait = meter.wait(limit, now)
    literal.tick(now)
    if wait == 0:
        assert literal.rate <= limit * (1 + 1e-9)
        return
    assert literal.rate > limit * (1 - 1e-9)
    literal.tick(now + wait - 1e-3)
    assert literal.rate > limit * (1 - 1e-9)
    literal.tick(now + wait + 1e-3)
    assert literal.rate <= limit * (1 + 1e-9)


def test_it_never_falls_to_0():
    meter = Meter()
    meter.record(1, 0.0)
    assert meter.wait(0, 0.0) == 0
    assert meter.wait(0, 5.0) == inf
    assert not meter.idle(5.0, 0.1)
    assert meter.idle(5.0, 0.3)
    meter.record(1, 5.0)
    assert not meter.idle(5.0, 0.3)


AMOUNTS = st.lists(st.tuples(st.integers(0, 40).map(lambda n: n / 4), st.integers(0, 5000), st.booleans()), min_size=1, max_size=30)
"""(seconds since the one before, amount, is it taken back?)"""


@given(AMOUNTS, st.integers(0, 60).map(lambda n: n / 4))
@examples(300)
def test_what_is_taken_back_leaves_no_trace(amounts, later):
    """Not even where a tick has passed: as if nothing had come at that time."""
    meter, other, now, taken = Meter(), Meter(), 0.0, []
    for passed, amount, back in amounts:
        now += passed
        meter.record(amount, now)
        other.record(0 if back else amount, now)
        if back:
            taken.append((amount, now))
    now += later
    for amount, when in taken:
        meter.take_back(amount, when, now)
    for moment in (now, now + 5, now + 61):
        assert meter.rate(moment) == pytest.approx(other.rate(moment), rel=1e-9, abs=1e-6)
    assert meter.count == pytest.approx(other.count)
