"""Intervals of the usage log while clocks behave and while they do not."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.observe.intervals import MOMENT, TOLERANCE, Interval, Intervals
from tests.properties import examples

EPOCH = 1_767_225_600.0  # a multiple of every length here
HOUR = 3600.0


class Clocks:
    """A machine's two clocks."""

    def __init__(self, wall: float = EPOCH + 3) -> None:
        self.now, self.wall = 500.0, wall

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.wall += seconds

    def step(self, seconds: float) -> None:
        self.wall += seconds


class Runner:
    """Closes intervals when they are due."""

    def __init__(self, length: float = 10.0, wall: float = EPOCH + 3) -> None:
        self.clocks = Clocks(wall)
        self.intervals = Intervals(length, self.clocks.now, self.clocks.wall)

    def close(self, late: float = 0.0) -> Interval:
        self.clocks.pass_time(max(self.intervals.due - self.clocks.now, 0.0) + late)
        return self.intervals.close(self.clocks.now, self.clocks.wall)


def labels(interval: Interval) -> tuple[float, float]:
    return round(interval.start - EPOCH, 6), round(interval.end - EPOCH, 6)


def test_intervals_end_at_multiples_of_their_length_and_follow_each_other():
    runner = Runner()
    assert [labels(runner.close()) for _ in range(3)] == [(3, 10), (10, 20), (20, 30)]


def test_a_timer_that_is_a_little_late_or_early_moves_no_label():
    runner = Runner()
    assert [labels(runner.close(late)) for late in (0.2, 0.01, 0.4, 0.0)] == [(3, 10), (10, 20), (20, 30), (30, 40)]
    runner.clocks.step(-0.3)
    assert [labels(runner.close()) for _ in range(3)] == [(40, 50), (50, 60), (60, 70)]


def test_a_loop_that_was_busy_for_long_is_told_as_it_was():
    """Two lengths in one interval are labelled as two lengths, and the next one is aligned again."""
    runner = Runner()
    assert [labels(runner.close(late)) for late in (0.0, 14.0, 0.0, 0.0)] == [(3, 10), (10, 34), (34, 40), (40, 50)]


@pytest.mark.parametrize("step", [HOUR, -HOUR, 24 * HOUR, 1.0, -1.0])
def test_a_wall_clock_that_is_set_changes_no_length_and_the_next_is_aligned(step):
    runner = Runner()
    runner.close()
    runner.clocks.pass_time(4)
    runner.clocks.step(step)
    jumped, after, later = runner.close(), runner.close(), runner.close()
    assert labels(jumped) == (10, 20)
    assert (jumped.seconds, jumped.jump) == (pytest.approx(10), pytest.approx(step))
    assert labels(after)[0] == 20 + step
    assert later.start % 10 == later.end % 10 == 0
    assert (after.jump, later.jump) == (0, 0)
    assert later.seconds == pytest.approx(10)


def test_a_proxy_that_stops_right_after_the_clock_was_set_back_ends_after_it_began():
    runner = Runner()
    runner.close()
    runner.clocks.pass_time(2)
    runner.clocks.step(-HOUR)
    last = runner.intervals.close(runner.clocks.now, runner.clocks.wall)
    assert labels(last) == (10, 12)


def test_a_proxy_that_stops_in_the_moment_of_an_end_has_an_interval_that_the_report_takes():
    runner = Runner()
    runner.close()
    last = runner.intervals.close(runner.clocks.now, runner.clocks.wall)
    assert labels(last) == (10, 10 + MOMENT)


def test_no_interval_is_planned_to_be_very_short():
    runner = Runner(wall=EPOCH + 9.5)
    assert labels(runner.close()) == (9.5, 20)


EVENTS = st.lists(
    st.tuples(
        st.one_of(st.just(0.0), st.floats(0, 100)),
        st.one_of(st.just(0.0), st.floats(-100_000, 100_000), st.floats(-2, 2)),
    ),
    max_size=30,
)
"""(seconds that the timer is late, by how much the wall clock is set)"""


@given(EVENTS, st.sampled_from([1.0, 10.0, 60.0, 3600.0]), st.floats(0, 100_000), st.floats(0, 1))
@examples(1000, derandomize=True)
def test_whatever_the_wall_clock_does_intervals_are_stretches_of_monotonic_time(events, length, start, stop):
    runner = Runner(length, EPOCH + start)
    clocks, began, closed = runner.clocks, 500.0, []

    def check(interval: Interval) -> None:
        assert interval.seconds == clocks.now - began, "each second is in one interval"
        assert interval.end - interval.start >= MOMENT * 0.99
        assert abs(interval.end - interval.start - interval.seconds) <= 3 * TOLERANCE + 1e-3
        assert clocks.now < runner.intervals.due <= clocks.now + 1.1 * length + TOLERANCE + 1e-3
        closed.append(interval)

    for late, step in events:
        clocks.step(step)
        check(interval := runner.close(late))
        began = clocks.now
        assert (interval.jump != 0) == (abs(step) > TOLERANCE) or abs(abs(step) - TOLERANCE) < 1e-5
    settled = [runner.close() for _ in range(3)]
    assert all(interval.end % length == 0 and interval.jump == 0 for interval in settled), "aligned again"
    assert abs(settled[2].seconds - length) <= 1e-3
    began = clocks.now
    clocks.pass_time(stop * length)
    check(runner.intervals.close(clocks.now, clocks.wall))
    for one, other in pairwise([*closed[:-1], *settled, closed[-1]]):
        if not one.jump:
            assert other.start == one.end
