"""Significance and intervals on known distributions, beside SciPy."""

from __future__ import annotations

import random
from statistics import median
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loadtest.results.statistics import FEWEST, LEVEL, interval, rank_sum
from tests.properties import examples


def scipy() -> Any:
    """Importing it takes a second, which only the worker that runs these tests is to take."""
    from scipy import stats

    return stats


@given(st.lists(st.integers(0, 10**6), min_size=8, max_size=14, unique=True), st.integers(4, 10))
@examples(40)
def test_the_exact_p_value_is_scipys(values: list[int], cut: int) -> None:
    one, other = values[:cut], values[cut:]
    assume(len(other) >= 4)
    assert rank_sum(one, other) == pytest.approx(scipy().mannwhitneyu(one, other, method="exact").pvalue)


@pytest.mark.parametrize("values", [[1, 1, 2, 2, 2, 3, 3, 3], [1, 2, 2, 2, 2, 2, 2, 5], [4, 4, 2, 3, 2, 4, 1, 4, 1]])
def test_ties_have_their_mean_rank(values: list[float]) -> None:
    ranks, cut = scipy().rankdata(values), 4
    shares = scipy().permutation_test(
        (ranks[:cut], ranks[cut:]), lambda a, _: abs(sum(a) - cut * ranks.mean()), alternative="greater"
    )
    assert rank_sum(values[:cut], values[cut:]) == pytest.approx(shares.pvalue)


def test_of_many_values_it_is_near_scipys() -> None:
    draw = random.Random(3)
    one, other = [draw.gauss(10, 1) for _ in range(30)], [draw.gauss(10.6, 1) for _ in range(30)]
    assert rank_sum(one, other) == pytest.approx(scipy().mannwhitneyu(one, other).pvalue, abs=0.01)


def test_equal_values_are_no_difference() -> None:
    assert rank_sum([1.0] * 5, [1.0] * 5) == 1.0


def test_too_few_values_say_nothing() -> None:
    assert rank_sum([1, 2, 3], [10, 11, 12]) is None
    assert interval([1, 2, 3, 4]) is None


def test_under_one_distribution_it_is_significant_as_seldom_as_said() -> None:
    draw = random.Random(1)
    found = [
        rank_sum([draw.lognormvariate(0, 1) for _ in range(5)], [draw.lognormvariate(0, 1) for _ in range(5)]) for _ in range(400)
    ]
    assert sum(p is not None and p < LEVEL for p in found) / 400 < LEVEL + 0.02


def test_twofold_is_found() -> None:
    draw = random.Random(2)
    found = [rank_sum([draw.gauss(1, 0.1) for _ in range(5)], [draw.gauss(2, 0.2) for _ in range(5)]) for _ in range(50)]
    assert all(p is not None and p < 0.01 for p in found)


def test_the_interval_holds_the_median_mostly() -> None:
    draw = random.Random(4)
    held = 0
    for _ in range(100):
        low, high = interval([draw.expovariate(1) for _ in range(15)]) or (0, 0)
        held += low <= 0.6931 <= high
    assert held >= 85  # the percentile bootstrap is a little narrow for few values


@given(st.lists(st.floats(0.1, 10), min_size=FEWEST, max_size=8))
@examples(10)
def test_the_interval_holds_the_median_of_its_values_and_is_the_same_again(values: list[float]) -> None:
    found = interval(values)
    assert found is not None
    assert min(values) <= found[0] <= median(values) <= found[1] <= max(values)
    assert interval(values) == found
