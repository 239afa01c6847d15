"""What a broker did not do, or did otherwise: credits and corrections, for both algorithms."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.kinds.controller_mutations import Algorithm, MutationLimit
from tests.properties import examples
from tests.quota.test_algorithms import BOTH, Room, example


def stands(room: Room, now: float) -> tuple[float, float]:
    usage = room.engine.controller_mutations.standing(room.found, now)
    return usage.average, usage.left


@BOTH
def test_a_credit_gives_back_these_items_once(algorithm):
    room = example(algorithm)
    receipt = room.charge(100, 200, 50).receipt
    credit = room.engine.controller_mutations.credit
    assert credit(receipt, [0, 2]) == 150
    assert stands(room, 0.0) == (pytest.approx(2.0), pytest.approx(300))
    assert credit(receipt, [0, 2]) == 0
    assert credit(receipt, [1, 1, 7]) == 200
    assert stands(room, 0.0) == (0, 500)


@BOTH
def test_what_was_refused_or_free_is_not_given_back(algorithm):
    room = example(algorithm)
    receipt = room.charge(0, 600, 80, 80).receipt
    assert room.engine.controller_mutations.credit(receipt, [0, 2, 3]) == 0
    assert room.engine.controller_mutations.correct(receipt, 2, 40, 0.0) == 0
    assert room.engine.controller_mutations.correct(receipt, 0, 40, 0.0) == 0, (
        "exempt topics stay free, whatever they turn out to be"
    )
    assert stands(room, 0.0)[0] == pytest.approx(6.0)


def test_a_receipt_of_nothing():
    room = example(Algorithm.SPREAD)
    for receipt in (None, room.charge(0).receipt):
        assert room.engine.controller_mutations.credit(receipt, [0]) == 0
        assert room.engine.controller_mutations.correct(receipt, 0, 5, 0.0) == 0


TIMELINE = st.lists(st.tuples(st.floats(0, 20), st.lists(st.integers(0, 120), min_size=1, max_size=4)), max_size=8)


@BOTH
@given(before=TIMELINE, partitions=st.lists(st.integers(0, 300), min_size=1, max_size=6), refusable=st.booleans())
@examples(200)
@pytest.mark.parametrize("delay", [0.0, 0.7, 5.0, 250.0])
def test_what_is_credited_is_as_if_it_had_never_been_recorded(algorithm, delay, before, partitions, refusable):
    room = example(algorithm)
    for passed, amounts in before:
        room.now += passed
        room.charge(*amounts)
    clean = deepcopy(room)
    verdict = room.charge(*partitions, refusable=refusable)
    assert room.engine.controller_mutations.credit(verdict.receipt, range(len(partitions))) == verdict.charged
    room.now += delay
    for later in (0.0, 0.5, 1.0, 60.0, 120.0):
        assert stands(room, room.now + later) == pytest.approx(stands(clean, room.now + later), abs=1e-6)


@BOTH
@given(first=st.integers(0, 300), others=TIMELINE)
@examples(200)
def test_a_late_credit_never_creates_room_that_was_not_there(algorithm, first, others):
    """Others went on meanwhile: it is at most as if the first had never been."""
    room, clean = example(algorithm), example(algorithm)
    receipt = room.charge(first).receipt
    for passed, amounts in others:
        room.now += passed
        room.charge(*amounts, refusable=False)
        clean.charge(*amounts, refusable=False, now=room.now)
    room.engine.controller_mutations.credit(receipt, [0])
    average, left = stands(room, room.now)
    assert average >= 0
    assert average >= stands(clean, room.now)[0] - 1e-6
    assert left <= stands(clean, room.now)[1] + 1e-6


@BOTH
def test_a_credit_after_the_window_is_forgotten_does_no_harm(algorithm):
    room = example(algorithm)
    receipt = room.charge(300).receipt
    room.engine.sweep(200.0)
    assert len(room.engine.controller_mutations) == 0
    room.charge(100, now=200.0)
    assert room.engine.controller_mutations.credit(receipt, [0]) == 300, "so much did not happen"
    assert stands(room, 200.0) == (pytest.approx(1.0), pytest.approx(400))


@BOTH
def test_a_correction_records_the_rest_or_takes_back_what_was_too_much_and_a_credit_knows(algorithm):
    room = example(algorithm)
    receipt = room.charge(1, 100).receipt
    correct, credit = room.engine.controller_mutations.correct, room.engine.controller_mutations.credit
    assert correct(receipt, 0, 8, 0.0) == 7
    assert correct(receipt, 0, 8, 0.0) == 0
    assert stands(room, 0.0)[1] == pytest.approx(392)
    assert correct(receipt, 1, 60, 0.0) == -40
    assert correct(receipt, 0, 6, 0.0) == -2
    assert stands(room, 0.0)[1] == pytest.approx(434)
    assert credit(receipt, [0]) == 6
    assert credit(receipt, [1]) == 60
    assert stands(room, 0.0) == (0, pytest.approx(500))
    assert correct(receipt, 0, 5, 0.0) == 0, "it did not happen"


@BOTH
def test_a_correction_may_go_over_the_limit_and_is_recorded_when_it_is_known(algorithm):
    room = example(algorithm)
    receipt = room.charge(1).receipt
    room.now = 50.0
    assert room.engine.controller_mutations.correct(receipt, 0, 561, 50.0) == 560
    assert not room.admits(50.0)
    assert room.decide(1).throttle == pytest.approx(12, abs=0.2)
    assert room.engine.controller_mutations.correct(receipt, 0, 0, 51.0) == -561
    assert stands(room, 51.0)[0] == pytest.approx(0)


@BOTH
def test_a_correction_after_the_window_is_forgotten_charges_the_entity_all_the_same(algorithm):
    room = example(algorithm)
    receipt = room.charge(1).receipt
    room.engine.sweep(1000.0)
    assert room.engine.controller_mutations.correct(receipt, 0, 101, 1000.0) == 100
    assert stands(room, 1000.0)[1] == pytest.approx(400)
    assert room.engine.controller_mutations.credit(receipt, [0]) == 101
    assert stands(room, 1000.0)[1] == pytest.approx(500)


@BOTH
def test_a_correction_under_a_limit_that_changed_meanwhile_brings_the_old_one_not_back(algorithm):
    room = example(algorithm)
    receipt = room.charge(1).receipt
    slow = Room(MutationLimit(1, 10, algorithm))
    room.engine.change(slow.engine.limits)
    room.charge(1)
    room.engine.controller_mutations.correct(receipt, 0, 30, 0.0)
    assert not room.admits(0.0)
    assert [usage.rate for usage in room.engine.controller_mutations.usage(0.0).values()] == [1]
