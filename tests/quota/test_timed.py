"""Two filters that take turns: the steps of seed s2, and timelines beside a model that remembers exactly."""

from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.windows.timed import Novelty, TimedFilter
from tests.properties import examples

WINDOW = 3600


class Exact:
    """The same with sets, and every filter made on the clock."""

    def __init__(self, window: int) -> None:
        self.half = window // 2
        self.filters: dict[int, set[int]] = {}
        """by the time they were made; those that nothing was written to are there too, until all are empty"""

    def at(self, now: int) -> None:
        while self.filters and now >= max(self.filters) + self.half:
            self.filters[max(self.filters) + self.half] = set()
        self.filters = {made: ids for made, ids in self.filters.items() if now < made + 2 * self.half}
        if not any(self.filters.values()):
            self.filters = {}

    def add(self, id: int, now: int, keep: bool) -> bool:
        self.at(now)
        known = any(id in ids for ids in self.filters.values())
        if not known or keep:
            self.filters = self.filters or {now: set()}
            self.filters[max(self.filters)].add(id)
        return not known

    def count(self) -> int:
        return len(set().union(*self.filters.values()))


def test_the_steps_of_the_seed():
    timed = TimedFilter(WINDOW, 0.01, murmur3)

    def filters(now: float) -> tuple[bool, bool]:
        timed.dispose(now)
        return timed.older is not None, timed.newest is not None

    # step 1: the first id makes the first filter, which new ids are added to for half a window
    assert timed.add(1, 0.0)
    assert timed.add(2, 1799.9)
    assert filters(1799.9) == (False, True)
    first = timed.newest
    # step 2: a second one beside it: new ids are added to it, both are asked
    assert not timed.add(1, 1800.0)
    assert timed.add(3, 1800.0)
    assert filters(3599.9) == (True, True)
    assert timed.older is first
    assert first is not None
    assert (first.count, timed.newest.count, timed.count()) == (2, 1, 3)
    assert [timed.holds(id, 3599.9) for id in (1, 2, 3, 4)] == [True, True, True, False]
    # step 3: the first is past after one window
    second = timed.newest
    assert [timed.holds(id, 3600.0) for id in (1, 2, 3)] == [False, False, True]
    assert timed.older is second
    # step 4: and so on with the second and a third
    assert timed.add(1, 3600.0)
    assert not timed.add(3, 5399.9)
    assert filters(5399.9) == (True, True)
    assert timed.add(3, 5400.0), "an id that a live filter knew was not added again"
    # the user is forgotten when no filter is left
    assert not timed.idle
    timed.dispose(7200.0)
    assert timed.idle is False
    timed.dispose(9000.0)
    assert timed.idle
    assert timed.size_bytes == 0


@pytest.mark.parametrize("start", [0.0, 0.1, 1e9 + 1 / 3])
def test_a_filter_turns_on_the_half_window_exactly(start):
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    timed.add(1, start)
    turn = timed.turn
    assert turn == start + 1800
    timed.dispose(turn - 1e-4)
    assert timed.older is None
    timed.dispose(turn)
    assert timed.older is not None


def test_a_filter_starts_on_the_clock_not_with_its_first_id():
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    timed.add(1, 0.0)
    timed.add(2, 3000.0)
    assert timed.holds(2, 5399.0)
    assert not timed.holds(2, 5400.0)


def test_a_busy_id_is_new_about_once_a_window():
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    assert [now for now in range(0, 4 * WINDOW, 10) if timed.add(7, now)] == [0, 3600, 7200, 10800]


def test_when_nothing_is_left_the_clock_starts_anew():
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    timed.add(1, 0.0)
    assert timed.add(1, 10_000.0)
    assert timed.turn == 11_800.0
    assert timed.holds(1, 13_599.0)
    assert not timed.holds(1, 13_600.0)


def test_what_was_known_under_an_epoch_is_known_while_it_lasts():
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    timed.add(1, 0.0)
    epoch = timed.epoch
    timed.add(2, 1799.0)
    assert timed.epoch is epoch
    timed.dispose(1800.0)
    assert timed.epoch is not epoch


def test_time_that_goes_back_does_no_harm():
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    timed.add(1, 5000.0)
    assert not timed.add(1, 0.0)
    assert timed.add(2, 0.0)
    assert timed.count() == 2


def test_more_than_the_most_find_no_room_and_are_not_remembered():
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    assert [timed.see(id, 0.0, limit=2.5) for id in (1, 2, 3, 1)] == [Novelty.NEW, Novelty.NEW, Novelty.NO_ROOM, Novelty.KNOWN]
    assert not timed.holds(3, 0.0)
    assert timed.see(3, 0.0) is Novelty.NEW


def test_who_is_kept_stays_known_as_long_as_it_is_seen_every_half_window_and_is_counted_once():
    timed = TimedFilter(WINDOW, 0.01, murmur3)
    timed.see(1, 0.0, keep=True)
    timed.see(2, 0.0, keep=True)
    for now in range(0, 10 * WINDOW, 1700):
        assert timed.see(1, now, limit=2, keep=True) is Novelty.KNOWN
        assert timed.count() == (2 if now < WINDOW else 1)
        assert timed.estimate() == pytest.approx(timed.count(), abs=0.1)


STEPS = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3, 5, 9, 10, 11, 20, 40]), st.integers(0, 30)), max_size=120)
"""(seconds to the next step, id); the window has 20 seconds"""


@given(STEPS, st.booleans())
@examples(500)
def test_it_is_what_sets_would_be(steps, keep):
    """At a rate at which the hash makes no mistake among 31 ids."""
    timed, model, now = TimedFilter(20, 1e-9, murmur3), Exact(20), 0
    for passed, id in steps:
        now += passed
        assert (timed.see(id, now, keep=keep) is Novelty.NEW) == model.add(id, now, keep)
        assert timed.count() == model.count()
        assert [timed.holds(other, now) for other in range(31)] == [
            any(other in ids for ids in model.filters.values()) for other in range(31)
        ]


@given(STEPS, st.booleans(), st.sampled_from([1e-9, 0.1, 0.9]))
@examples(500)
def test_it_never_counts_more_than_there_were_within_a_window(steps, keep, rate):
    timed, seen, now = TimedFilter(20, rate, murmur3), deque(), 0
    for passed, id in steps:
        now += passed
        seen.append((now, id))
        timed.see(id, now, keep=keep)
        while seen[0][0] <= now - 20:
            seen.popleft()
        assert timed.count() <= len({id for _, id in seen})


@pytest.mark.parametrize("rate", [pytest.param(0.1, marks=pytest.mark.nightly), 0.01])
def test_it_counts_too_little_no_more_often_than_asked(rate):
    """20 half windows with 3000 ids each, most of them never seen before; what sets find new is what is new."""
    random, timed, model, new, found = Random(3), TimedFilter(20, rate, murmur3), Exact(20), 0, 0
    for half in range(20):
        for _ in range(3000):
            id, now = random.getrandbits(20), half * 10
            expected = model.add(id, now, keep=False)
            new += expected
            found += timed.add(id, now)
        assert model.count() * (1 - rate) <= timed.count() <= model.count()
        assert timed.estimate() == pytest.approx(model.count(), rel=rate)
    assert new > 55_000
    assert new * (1 - rate) <= found < new


@pytest.mark.parametrize(("window", "rate"), [(0, 0.1), (-1, 0.1), (float("inf"), 0.1), (float("nan"), 0.1), (1, 0), (1, 1)])
def test_what_makes_no_window_is_refused(window, rate):
    with pytest.raises(ValueError, match="window"):
        TimedFilter(window, rate, murmur3)
