"""Counts by duration: buckets have no gaps, quantiles are right to a fifth, histograms lose nothing."""

from hypothesis import given
from hypothesis import strategies as st

from quota.windows.durations import BUCKETS, LONGEST, OCTAVES, Durations, longest, lower, quantile, upper
from tests.properties import examples

seconds = st.floats(0, 2 * LONGEST)


@examples(200)
@given(seconds, st.integers(1, 5))
def test_a_duration_is_counted_in_the_bucket_that_it_is_in(took, count):
    times = Durations()
    times.add(took, count)
    bucket = times.counts.index(count)
    assert sum(times.counts) == count
    assert times.seconds == took * count
    assert lower(bucket) <= took + 1e-9
    assert took < upper(bucket) + 1e-9 or bucket == BUCKETS - 1


def test_buckets_follow_each_other_and_are_a_fifth_wide_at_most():
    assert lower(0) == 0
    assert all(upper(i) == lower(i + 1) for i in range(BUCKETS - 1))
    assert all((upper(i) - lower(i)) / upper(i) <= 0.2 for i in range(8, BUCKETS))
    assert set(OCTAVES) <= {upper(i) for i in range(BUCKETS)}


@examples(100)
@given(st.lists(st.floats(0.001, 100), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_is_that_of_the_durations(all_of_them, part):
    times = Durations()
    for took in all_of_them:
        times.add(took)
    ordered = sorted(all_of_them)
    exact = ordered[max(-(-len(ordered) * part // 1) - 1, 0).__int__()]
    assert exact / 1.25 - 0.001 <= quantile(times.counts, part) <= exact * 1.25 + 0.001
    assert longest(times.counts) >= ordered[-1] - 0.001


def test_a_histogram_adds_up_to_what_was_counted():
    times = Durations()
    for took, count in ((0.0, 3), (0.0015, 2), (0.1, 4), (500.0, 1), (-0.001, 1)):
        times.add(took, count)
    shown = dict(times.octaves())
    assert (shown[0.001], shown[0.002], shown[0.064], shown[0.128], shown[OCTAVES[-1]]) == (4, 6, 6, 10, 10)
    other = Durations()
    other.merge(times)
    other.merge(times)
    assert sum(other.counts) == 22
    assert other.seconds == 2 * times.seconds


def test_nothing_took_no_time():
    assert quantile(Durations().counts, 0.5) == longest(Durations().counts) == 0
