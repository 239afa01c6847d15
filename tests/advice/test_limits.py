"""Histories of owners, and the limits that are advised for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advice.limits import HEADROOM, HeldBack, demand, reason, rounded, suggested
from advice.use import Histogram, Use, as_in_a_histogram

QUIET = Use(100, 1000.0, 1200.0)
HISTORIES = {
    "nothing used": (Use(), HeldBack(), None),
    "nobody held back": (QUIET, HeldBack(), 1500),
    "throttled all the time at a limit that lets its rate pass": (
        Use(40, 1000.0, 1000.0),
        HeldBack(throttled=64, throttled_seconds=32.0, intervals=40, limit=1000.0),
        3000,
    ),
    "throttled in a tenth of the time": (QUIET, HeldBack(throttled=3, throttled_seconds=9.0, intervals=10, limit=1000.0), 1700),
    "refused nearly everything: what was used says nothing": (
        Use(2, 5.0, 5.0),
        HeldBack(refused=523, intervals=30, limit=100.0),
        300,
    ),
    "refused everything": (Use(), HeldBack(refused=523, intervals=30, limit=100.0), 300),
    "made to wait": (QUIET, HeldBack(held=7, intervals=100, limit=900.0), 3000),
    "a burst passed, which is above the limit": (Use(50, 4000.0, 9000.0), HeldBack(throttled=1, intervals=5, limit=1000.0), 6600),
    "held back by a limit of another level": (QUIET, HeldBack(throttled=9, intervals=50), 2300),
    "held back in intervals in which nothing passed": (Use(10, 100.0, 100.0), HeldBack(refused=9, intervals=90, limit=1.0), 300),
}


@pytest.mark.parametrize("history", HISTORIES)
def test_what_is_advised(history: str) -> None:
    use, held_back, limit = HISTORIES[history]
    assert suggested(use, held_back, whole=True) == limit


held = st.builds(
    HeldBack,
    st.integers(0, 99),
    st.floats(0, 1e6),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(1, 1000),
    st.floats(0.01, 1e9),
)
used = st.integers(0, 1000).flatmap(
    lambda n: st.builds(Use, st.just(n), st.floats(0.01, 1e9), st.floats(1e9, 2e9)) if n else st.just(Use())
)


@given(use=used, held_back=held.filter(bool), headroom=st.floats(1, 10), whole=st.booleans())
def test_a_limit_that_was_hit_is_never_advised_to_be_lower(use: Use, held_back: HeldBack, headroom: float, whole: bool) -> None:
    limit = suggested(use, held_back, whole=whole, headroom=headroom)
    assert limit is not None
    assert limit >= held_back.limit * (1 - 1e-6)  # type: ignore[operator]
    assert demand(use, held_back) >= demand(use, HeldBack()), "what was held back is demand"
    assert limit >= (suggested(use, HeldBack(), whole=whole, headroom=headroom) or 0.0)


def test_the_words_have_the_numbers() -> None:
    held_back = HeldBack(throttled=64, throttled_seconds=32.0, refused=523, held=1, intervals=30, limit=1000.0)
    assert reason(Use(40, 950.0, 1000.0), held_back, lambda rate: f"{rate:g}/s") == (
        "p99 of 40 intervals 950/s; hit its limit of 1000/s in 30: throttled 64 times, for at least 32 s and refused 523 times"
        " and made to wait 1 time"
    )
    assert reason(Use(1, 950.0, 1000.0), HeldBack(), str, 0.5) == "p50 of 1 interval 950.0"
    assert reason(Use(), HeldBack(refused=1, intervals=1), str) == "nothing used; hit a limit in 1: refused 1 time"


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99, 1.0]))
def test_an_exact_percentile_and_a_histogram_say_the_same(amounts: list[float], part: float) -> None:
    histogram = Histogram()
    for amount in amounts:
        histogram.add(amount)
    exact = sorted(amounts)[max(-int(-part * len(amounts) // 1), 1) - 1]
    use = histogram.use(part)
    assert as_in_a_histogram(len(amounts), exact, max(amounts)) == use
    assert as_in_a_histogram(len(amounts), use.percentile, max(amounts)) == use
    assert rounded(use.percentile * HEADROOM, whole=False) >= exact * HEADROOM * (1 - 1e-6)
