"""Latencies keep what was recorded, and merge as if one had recorded everything."""

from __future__ import annotations

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from loadtest.results.histogram import LONGEST, Histogram, merge
from tests.loadtest.made import histogram

LATENCIES = st.lists(st.one_of(st.integers(-5, 5000), st.integers(0, LONGEST), st.integers(LONGEST, 2 * LONGEST)), max_size=60)


@given(st.lists(LATENCIES, max_size=5))
def test_merged_is_what_one_would_have_recorded(parts: list[list[int]]) -> None:
    assert merge(map(histogram, parts)) == histogram(chain.from_iterable(parts))


@given(LATENCIES)
def test_a_file_gives_it_back(latencies: list[int]) -> None:
    taken = histogram(latencies)
    assert Histogram.model_validate_json(taken.model_dump_json()) == taken


@given(st.lists(st.integers(0, LONGEST), min_size=1, max_size=200), st.sampled_from((50.0, 90.0, 99.0, 99.9, 100.0, 12.5)))
def test_a_percentile_is_that_of_the_sorted_list_in_three_digits(latencies: list[int], percentile: float) -> None:
    rank = max(int(percentile * len(latencies) / 100 + 0.5), 1)
    exact = sorted(latencies)[rank - 1]
    assert exact <= histogram(latencies).percentile_us(percentile) <= exact * 1.001


def test_smallest_largest_and_mean_are_exact() -> None:
    taken = histogram([7, 1_234_567, 2_000_003])
    assert (taken.min_us, taken.max_us, taken.mean_us) == (7, 2_000_003, (7 + 1_234_567 + 2_000_003) / 3)
    assert taken.percentile_us(100) == 2_000_003


def test_below_zero_is_counted_as_zero_and_said() -> None:
    taken = histogram([-3, -1, 10])
    assert (taken.below_zero, taken.min_us, taken.count) == (2, 0, 3)


def test_memory_is_bounded_whatever_is_recorded() -> None:
    assert histogram(range(0, 300_000 * 1000, 1000)).count == 300_000


def test_nothing_recorded_has_no_percentiles() -> None:
    assert histogram([]).percentile_us(99) == 0
    assert histogram([]).curve([50, 99]) == []


@pytest.mark.parametrize(
    ("different", "said"),
    [({"count": 4}, "does not hold the 4"), ({"hdr": "HISTFAAAnonsense"}, "no HdrHistogram"), ({"hdr": ""}, "is empty")],
)
def test_a_file_that_was_changed_is_refused(different: dict[str, object], said: str) -> None:
    text = json.dumps(histogram([1, 2, 3]).model_dump() | different)
    with pytest.raises(ValidationError, match=said):
        Histogram.model_validate_json(text)
