"""Statistics of few values: intervals by the bootstrap, significance by ranks. In: values. Out: numbers.

A comparison has five to ten values on each side, of an unknown distribution, so no normal distribution is assumed. SciPy has both,
but is 35 MB large, and a driver 4 MB; a test compares these functions with SciPy's.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from math import comb
from statistics import median
from typing import Final

LEVEL: Final = 0.05
"""A difference that chance alone makes less often than this is significant."""
FEWEST: Final = 5
"""Number of values that an interval needs: the range of five contains the true median in 94% of cases, that of three in 75%."""
RESAMPLES: Final = 4000
MAX_EXACT: Final = 50_000
"""Up to this number of ways to split the values, all are tried. Else this number of them is drawn at random."""


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95% interval of the median by the percentile bootstrap, the same for the same values; None for fewer than five."""
    if len(values) < FEWEST:
        return None
    draw = random.Random(0)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(RESAMPLES * LEVEL / 2)], medians[int(RESAMPLES * (1 - LEVEL / 2)) - 1]


def rank_sum(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Two-sided p value of Wilcoxon's rank sum (Mann-Whitney), exact by permutation, ties by their mean rank.

    None where no values could ever be significant: with fewer than four on each side.
    """
    ways = comb(len(one) + len(other), len(one))
    if ways * LEVEL < 2:
        return None
    ranks = _ranks([*one, *other])
    middle = sum(ranks) * len(one) / len(ranks)
    seen = abs(sum(ranks[: len(one)]) - middle) - 1e-9
    if ways <= MAX_EXACT:
        sums = [sum(some) for some in combinations(ranks, len(one))]
        return sum(abs(some - middle) >= seen for some in sums) / ways
    draw = random.Random(0)
    extreme = sum(abs(sum(draw.sample(ranks, len(one))) - middle) >= seen for _ in range(MAX_EXACT))
    return (extreme + 1) / (MAX_EXACT + 1)


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered)))}
    return [first[value] + (ordered.count(value) + 1) / 2 for value in values]
