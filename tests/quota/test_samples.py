"""Sample windows: the figures of Kafka's own `Rate` and `Avg`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.windows.samples import Samples
from tests.properties import examples


def test_a_rate_is_over_all_samples_but_one_at_least():
    ids = Samples(11, 3600)
    for _ in range(72):
        ids.record(1, 100.0)
    assert ids.rate(100.0) == 72 / 36000
    assert ids.rate(100.0 + 36000) == 72 / 36000
    assert ids.rate(100.0 + 37800) == 72 / 37800
    assert ids.rate(100.0 + 39600) == 0


def test_an_average_is_of_the_amounts_that_count():
    told = Samples(2, 10)
    told.record(30, 0.0)
    told.record(10, 10.0)
    assert [told.average(now) for now in (10.0, 19.9, 20.0, 30.0)] == [20, 20, 10, 0]
    assert (Samples(2, 10).average(0.0), Samples(2, 10).rate(0.0)) == (0, 0)


def test_one_sample_and_time_that_goes_back_do_no_harm():
    one = Samples(1, 10)
    one.record(5, 100.0)
    one.record(5, 0.0)
    assert one.rate(100.0) == one.rate(0.0) == 1.0


@given(st.integers(1, 11), st.lists(st.tuples(st.floats(0, 50), st.integers(1, 9)), max_size=60))
@examples(200)
def test_nothing_counts_longer_than_the_samples_and_memory_is_bounded(number, steps):
    samples, now, events = Samples(number, 10), 0.0, []
    for passed, amount in steps:
        now += passed
        samples.record(amount, now)
        events.append((now, amount))
        kept = samples.kept(now)
        assert len(kept) <= number
        total = sum(one.total for one in kept)
        assert total <= sum(amount for at, amount in events if at > now - number * 10)
        assert total >= sum(amount for at, amount in events if at > now - (number - 1) * 10)


@pytest.mark.parametrize(("number", "seconds"), [(0, 1), (1001, 1), (1, 0), (1, float("nan"))])
def test_what_makes_no_samples_is_refused(number, seconds):
    with pytest.raises(ValueError, match="samples"):
        Samples(number, seconds)
