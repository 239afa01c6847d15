"""Both algorithms behind one quota: the seed's example, what they promise, what they let pass, what a dry run says."""

from __future__ import annotations

import doctest
from copy import copy, deepcopy
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.decision import Action, Decision
from quota.engine import Engine
from quota.entity import DEFAULT, Entity
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.limit_table import LimitTable, ResolvedLimit
from quota.windows import spread, token_bucket
from tests.properties import examples
from tests.support import charge_mutations, limits_of

ALICE = Entity("alice", None)
BOTH = pytest.mark.parametrize("algorithm", Algorithm)


class Room:
    """An engine with one limit, for everybody, and time that goes on by steps."""

    def __init__(self, limit: MutationLimit, max_throttle: float = 1e9) -> None:
        self.engine = Engine(
            limits_of(controller_mutations=LimitTable({Entity(DEFAULT, None): limit}), max_throttle=max_throttle), murmur3
        )
        self.now = 0.0

    def __deepcopy__(self, memo: dict[int, object]) -> Room:
        """Of this kind alone: what is compiled of others cannot be copied."""
        other = copy(self)
        other.engine = Engine(self.engine.limits, murmur3)
        other.engine.controller_mutations = deepcopy(self.engine.controller_mutations, memo)
        return other

    @property
    def found(self) -> ResolvedLimit[MutationLimit]:
        found = self.engine.find(self.engine.controller_mutations, "alice", "app")
        assert found is not None
        return found

    def charge(self, *partitions: int, refusable: bool = True, now: float | None = None):
        at = self.now if now is None else now
        return charge_mutations(self.engine, self.found, partitions, refusable=refusable, now=at)

    def decide(self, *partitions: int, refusable: bool = True, now: float | None = None) -> Decision:
        decision = self.charge(*partitions, refusable=refusable, now=now).decision
        assert decision is not None
        return decision

    def admits(self, now: float) -> bool:
        """Would one partition be admitted? Leaves no trace."""
        return deepcopy(self).charge(1, now=now).decision is None

    def refuses(self, *partitions: int) -> bool:
        return self.engine.controller_mutations.refuses(self.found, partitions, self.now)


def example(algorithm: Algorithm) -> Room:
    return Room(MutationLimit(5, 500, algorithm))


@pytest.mark.parametrize("module", [spread, token_bucket])
def test_the_examples_in_the_sources(module):
    assert doctest.testmod(module).attempted > 2
    assert doctest.testmod(module).failed == 0


# ---------------------------------------------------------------------- the seed's example: R = 5, B = 500, topics of 80


@BOTH
def test_the_example_of_the_seed_is_the_same_for_both(algorithm):
    """7 x 80 = 560 are admitted, 60 too much: (5.6 - 5) / 5 x 100 = 60 / 5 = 12 s."""
    room = example(algorithm)
    first = room.charge(*[80] * 7)
    assert (first.charged, first.decision) == (560, None)
    decision = room.decide(80, 80)
    assert (decision.action, decision.items, decision.left) == (Action.REFUSE, (0, 1), 0)
    assert (decision.usage, decision.limit) == (pytest.approx(5.6), 5)
    assert decision.throttle == pytest.approx(12)
    assert room.admits(12.0)


def test_spread_opens_when_eleven_of_a_hundred_windows_are_gone_and_the_bucket_when_the_debt_is_paid():
    for algorithm, opens in ((Algorithm.SPREAD, 11), (Algorithm.TOKEN_BUCKET, 12)):
        room = example(algorithm)
        room.charge(*[80] * 7)
        assert next(second for second in range(20) if room.admits(float(second))) == opens


@pytest.mark.parametrize(("algorithm", "throttle"), [(Algorithm.SPREAD, 1.0), (Algorithm.TOKEN_BUCKET, 12.0)])
def test_an_old_client_is_told_by_spread_what_others_would_have_been_and_by_the_bucket_its_debt(algorithm, throttle):
    """500 of 500 are used: the average is the rate, which is refused and waits one window; the bucket has no debt yet."""
    room = example(algorithm)
    room.charge(500)
    decision = room.decide(60, refusable=False)
    assert (decision.action, decision.items) == (Action.THROTTLE, (0,))
    assert decision.throttle == pytest.approx(throttle)
    assert "slowed down" in decision.message


def test_an_old_client_whose_last_topic_makes_the_debt():
    verdict = example(Algorithm.TOKEN_BUCKET).charge(*[80] * 7, refusable=False)
    assert verdict.decision is not None
    assert (verdict.charged, verdict.decision.items, verdict.decision.throttle) == (560, (6,), 12.0)
    assert example(Algorithm.SPREAD).charge(*[80] * 7, refusable=False).decision is None


# ---------------------------------------------------------------------- over any time


class Step(NamedTuple):
    passed: float
    partitions: list[int]
    refusable: bool


STEPS = st.lists(
    st.builds(Step, st.floats(0, 30), st.lists(st.integers(0, 300), min_size=1, max_size=6), st.booleans()), min_size=1, max_size=25
)
RATES = st.integers(1, 60) | st.floats(0.01, 100)


@BOTH
@given(rate=RATES, windows=st.integers(1, 60), steps=STEPS)
@examples(200)
def test_who_was_refused_is_admitted_at_the_promised_instant_if_nothing_else_was_recorded(algorithm, rate, windows, steps):
    room = Room(MutationLimit(rate, rate * windows, algorithm))
    for passed, partitions, refusable in steps:
        room.now += passed
        decision = room.charge(*partitions, refusable=refusable).decision
        if decision is None or (algorithm is Algorithm.SPREAD and not refusable):  # told what others would have been: no promise
            continue
        assert decision.throttle > 0
        for later in (0.0, 0.3, 1000.0):
            assert room.admits(room.now + decision.throttle + later)


@BOTH
@given(rate=RATES, windows=st.integers(1, 60), steps=STEPS)
@examples(200)
def test_nothing_is_admitted_at_or_over_the_limit_but_what_was_promised(algorithm, rate, windows, steps):
    room, promised = Room(MutationLimit(rate, rate * windows, algorithm)), None
    for passed, partitions, refusable in steps:
        room.now += passed
        for amount in filter(None, partitions):
            stands = room.engine.controller_mutations.standing(room.found, room.now)
            over = stands.average > rate * (1 + 1e-12) or (algorithm is Algorithm.SPREAD and stands.average >= rate)
            verdict = room.charge(amount, refusable=refusable)
            if refusable and over and not (promised is not None and room.now >= promised - 1e-6):
                assert verdict.charged == 0
            if verdict.charged:
                promised = None
            elif verdict.decision is not None:
                told = room.now + verdict.decision.throttle
                promised = told if promised is None else min(promised, told)


@BOTH
@given(rate=RATES, windows=st.integers(1, 300), steps=STEPS)
@examples(300)
def test_a_dry_run_says_exactly_whether_a_charge_refuses_and_leaves_no_trace(algorithm, rate, windows, steps):
    room = Room(MutationLimit(rate, rate * windows, algorithm))
    untouched = Room(MutationLimit(rate, rate * windows, algorithm))
    for passed, partitions, refusable in steps:
        room.now += passed
        untouched.now = room.now
        says = room.refuses(*partitions)
        assert says == (deepcopy(room).charge(*partitions).decision is not None)
        after, alone = (one.charge(*partitions, refusable=refusable) for one in (room, untouched))
        assert (after.charged, after.decision) == (alone.charged, alone.decision)


@BOTH
def test_a_dry_run_of_somebody_new_makes_nobody_known(algorithm):
    room = example(algorithm)
    assert not room.refuses(*[80] * 7)
    assert room.refuses(*[80] * 8)
    assert not room.refuses(0, 500, 0)
    assert not room.refuses()
    assert not room.charge(0, 0).charged
    assert room.engine.hold(room.engine.controller_mutations, room.found, [0], 0.0) is None
    assert len(room.engine.controller_mutations) == 0


def test_a_dry_run_of_one_more_once_all_is_used():
    assert example(Algorithm.SPREAD).refuses(500, 1)
    assert not example(Algorithm.TOKEN_BUCKET).refuses(500, 1), "no token is no debt"
    assert example(Algorithm.TOKEN_BUCKET).refuses(501, 1)


@pytest.mark.parametrize(("algorithm", "least", "most"), [(Algorithm.SPREAD, 1.9, 2.0), (Algorithm.TOKEN_BUCKET, 0.99, 1.0)])
def test_what_passes_in_the_long_run(algorithm, least, most):
    """Somebody who never stops asking for topics of one partition, 20 a second, for half an hour; the first ten minutes aside."""
    room, passed = example(algorithm), 0
    for tick in range(1800 * 20):
        charged = room.charge(1, now=tick / 20).charged
        passed += charged if tick >= 600 * 20 else 0
    assert least <= passed / 1200 / 5 <= most + 0.01


@BOTH
def test_a_burst_followed_by_waiting_holds_the_rate(algorithm):
    room, passed = example(algorithm), 0
    for _ in range(20):
        while room.admits(room.now):
            passed += room.charge(80).charged
        room.now += 100.0
    assert passed <= (2000 + 100) * 5 + 20 * 80


# ---------------------------------------------------------------------- limits that change


@BOTH
def test_a_changed_limit_holds_at_once_and_what_was_used_stays_used(algorithm):
    room = example(algorithm)
    room.charge(400)
    for rate, burst, admits in ((5, 400, algorithm is Algorithm.TOKEN_BUCKET), (5, 399, False), (10, 1000, True), (1, 100, False)):
        room.engine.change(
            limits_of(controller_mutations=LimitTable({Entity(DEFAULT, None): MutationLimit(rate, burst, algorithm)}))
        )
        assert room.admits(0.0) == admits
        assert room.refuses(1) != admits


@pytest.mark.parametrize(("first", "then"), [tuple(Algorithm), tuple(reversed(Algorithm))])
def test_a_changed_algorithm_goes_on_from_what_was_used(first, then):
    room = example(first)
    verdict = room.charge(*[80] * 7)
    room.engine.change(
        limits_of(controller_mutations=LimitTable({Entity(DEFAULT, None): MutationLimit(5, 500, then)}), max_throttle=1e9)
    )
    assert room.decide(1).throttle == pytest.approx(12)
    assert room.engine.controller_mutations.credit(verdict.receipt, range(7)) == 560
    assert not room.admits(0.0), "a credit to the window that is gone makes no room in the new one"


@given(st.floats(1e-6, 1e12), st.floats(1, 1e9), st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=4))
@examples(200)
def test_any_limit_that_may_be_set_can_be_reckoned_with(rate, seconds, partitions):
    assume(rate * seconds <= 1e12)
    for algorithm in Algorithm:
        room = Room(MutationLimit(rate, rate * seconds, algorithm), 30.0)
        for room.now in (0.0, 1.5, 1e9):
            for refusable in (True, False):
                decision = room.charge(*partitions, refusable=refusable).decision
                assert decision is None or 0 < decision.throttle <= 30


@BOTH
def test_a_proxy_that_a_client_comes_to_takes_over_what_another_one_knows_of_it_and_no_more(algorithm):
    there, here = example(algorithm), example(algorithm)
    there.charge(300)
    here.charge(100)
    kinds = [room.engine.controller_mutations for room in (there, here)]
    owner, (one, other) = there.found.owner, kinds
    for age, charged in ((0.0, 0.0), (0.0, 0.0), (10.0, 0.0)):
        other.resume(owner, one.level(owner, 0.0), age, charged, 0.0)
        assert other.level(owner, 0.0) == pytest.approx(one.level(owner, 0.0)), "what is known counts once"
