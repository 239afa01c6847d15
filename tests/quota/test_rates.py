"""Rates of entities: Kafka's figures within the limit, no debt forgotten above it, and what is shared, kept and dropped."""

from itertools import accumulate
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.decision import Action
from quota.entity import DEFAULT, Entity
from quota.kinds import rates as module
from quota.kinds.rates import RateLimit, Rates
from quota.limit_table import LimitTable
from quota.steps import finish_at_once
from quota.windows.rate import RateWindow
from tests.properties import examples

ALICE, BOB = Entity("alice", None), Entity("bob", None)


class Kafka:
    """Kafka's `Rate` over a `WindowedSum` (3.9, 4.2), as it stands: a ring of one sample more, the missing windows, the purge."""

    def __init__(self, number: int, seconds: float) -> None:
        self.number, self.seconds = number, seconds
        self.ring: list[list[float]] = []  # start, last event, sum
        self.current = 0

    def record(self, amount: float, now: float) -> None:
        if not self.ring:
            self.ring.append([now, now, 0])
        if now - self.ring[self.current][0] >= self.seconds:
            self.current = (self.current + 1) % (self.number + 1)
            if self.current >= len(self.ring):
                self.ring.append([now, now, 0])
            else:
                self.ring[self.current] = [now, now, 0]
        self.ring[self.current][1] = now
        self.ring[self.current][2] += amount

    def elapsed(self, now: float) -> float:
        for sample in self.ring:
            if now - sample[1] >= self.number * self.seconds:
                sample[:] = [now, now, 0]
        passed = now - min([sample[0] for sample in self.ring], default=now)
        full = int(passed / self.seconds)
        if full < self.number - 1:
            passed += (self.number - 1 - full) * self.seconds
        return passed

    def rate(self, now: float) -> float:
        elapsed = self.elapsed(now)
        return sum(sample[2] for sample in self.ring) / elapsed

    def throttle(self, quota: float, now: float) -> float:
        return max((self.rate(now) - quota) / quota * self.elapsed(now), 0)


def rates(limits: dict[Entity, float], **more: float) -> Rates:
    limits = LimitTable({entity: RateLimit(rate) for entity, rate in limits.items()})
    return Rates("producer_byte_rate", "producer byte rate", "bytes", limits, **more)


def throttle(one: Rates, amount: float, now: float, user: str = "alice") -> float:
    decision = one.charge(one.find(user, "app"), (amount,), now).decision
    return 0.0 if decision is None else decision.throttle


# ---------------------------------------------------------------------- one window


def test_a_first_burst_of_ten_seconds_passes_and_the_throttle_is_the_excess():
    window = RateWindow(100)
    assert window.take(1000, 50.0)
    assert (window.average(50.0), window.left(50.0), window.wait(50.0)) == (100, 0, 0)
    assert not window.take(1, 50.0)
    assert window.average(50.0) == 100, "nothing was recorded"
    window.record(250, 50.0)
    assert (window.average(50.0), window.wait(50.0)) == (125, 2.5)
    window.record(50, 51.0)
    assert window.wait(51.0) == 2.0
    assert window.wait(53.0) == 0


def test_when_a_debt_is_paid_one_goes_on_at_the_rate_and_idle_seconds_give_the_burst_back():
    window = RateWindow(100)
    window.record(1200, 0.0)
    assert [window.left(now) for now in (1.9, 2.0, 2.5, 3.0, 5.0, 11.0, 12.0)] == pytest.approx([0, 0, 50, 100, 300, 900, 1000])
    assert window.left(100.0) == 1000
    assert window.idle(100.0)


def test_a_debt_larger_than_the_window_is_not_forgotten():
    window, kafka = RateWindow(100), Kafka(11, 1.0)
    window.record(6000, 0.0)
    kafka.record(6000, 0.0)
    assert window.wait(0.0) == kafka.throttle(100, 0.0) == 50
    assert kafka.rate(11.0) == 0, "Kafka's is free again"
    assert window.wait(11.0) == pytest.approx(39)
    assert window.take(0, 50.0)


STEPS = st.lists(
    st.tuples(st.one_of(st.sampled_from([0.0, 0.25, 1.0]), st.integers(0, 100).map(lambda n: n / 8)), st.integers(0, 400))
)
"""(seconds to the next amount, amount); times that floats have exactly"""


@given(st.integers(2, 12), st.sampled_from([0.5, 1.0, 30.0]), STEPS, st.integers(0, 1000))
@examples(500)
def test_within_the_limit_it_is_kafkas_arithmetic(number, seconds, steps, start):
    """What `take` lets pass, Kafka would not throttle; what it does not, Kafka would."""
    window, kafka, now = RateWindow(100, number, seconds), Kafka(number, seconds), float(start)
    for passed, amount in steps:
        now += passed
        kafka.record(amount, now)
        taken = window.take(amount, now)
        assert taken == (kafka.throttle(100, now) <= 1e-9)
        if not taken:
            window.record(amount, now)
            assert window.wait(now) == pytest.approx(kafka.throttle(100, now), rel=1e-9), "the first throttle is Kafka's too"
            return
        assert window.average(now) == pytest.approx(kafka.rate(now), rel=1e-9, abs=1e-9)


SENDERS = st.lists(st.tuples(st.floats(0, 3), st.integers(1, 4000)), min_size=1, max_size=60)
"""(seconds beyond what it was told, amount)"""
GREEDY = st.lists(st.tuples(st.integers(0, 14).map(lambda n: n / 8), st.sampled_from(["one", "one", "left", "more"])), max_size=24)
"""(seconds beyond what it was told, how much): the least, all that is left, or more than that. Times meet the ends of samples."""


def gets_the_rate_and_the_burst_at_most(steps: list[tuple[float, int]], rate: float, start: float) -> None:
    """From the start, and over every stretch later: there, Kafka's E may be nearly 12 s before a sample passes."""
    window, now, events, told = RateWindow(rate), start, [], 0.0
    for extra, amount in steps:
        now += told + extra
        if not window.take(amount, now):
            window.record(amount, now)
        told = window.wait(now)
        events.append((now, amount))
        used = 0.0
        for since, more in reversed(events):
            used += more
            assert used <= (rate * (now + told - since) + 12 * rate) * (1 + 1e-9)
        assert used <= (rate * (now + told - start) + 10 * rate) * (1 + 1e-9)


@given(SENDERS, st.floats(0.1, 1000), st.floats(0, 1e6))
@examples(500, derandomize=True)
def test_who_waits_as_told_gets_the_rate_and_the_burst_at_most_over_every_stretch(steps, rate, start):
    gets_the_rate_and_the_burst_at_most(steps, rate, start)


@given(GREEDY, st.integers(2, 12))
@examples(2000, derandomize=True)
def test_nor_does_who_always_takes_all_that_is_left(steps, number):
    window, now, used = RateWindow(1.0, number), 0.0, 0.0
    for extra, much in steps:
        now += window.wait(now) + extra
        amount = {"one": 1.0, "left": window.left(now), "more": window.left(now) + 1}[much]
        if not window.take(amount, now):
            window.record(amount, now)
        used += amount
        assert used <= now + window.wait(now) + number - 1 + 1e-9


def test_what_brought_22_within_11_and_a_half_seconds():
    """After a debt, the window of somebody who had used exactly the rate forgot its last second a second too soon."""
    steps = [(0, 1)] * 4 + [(0, 7), (1.5, 1), (1.75, 1), *[(1.5, 1)] * 3, (1.25, 1), (1, 5)]
    gets_the_rate_and_the_burst_at_most(steps, 1.0, 0.0)


@pytest.mark.parametrize("first", [0.0, 0.5, 1.5, 2.25])
@pytest.mark.parametrize("idle", [9.5, 10.0, 10.25, 10.99, 11.0, 11.5])
def test_after_a_debt_nothing_passes_but_the_rate(first, idle):
    """Kafka's burst comes back 11 s after the last amount, and so it does after the end of a debt."""
    window = RateWindow(100)
    window.record(1100, 0.0)
    assert window.wait(0.0) == 1
    window.record(10, 1 + first)
    assert 10 + window.left(1 + idle) <= 100 * idle + 1e-9
    assert window.left(1 + first + 13) == 1000


def test_a_window_that_resumes_a_level_has_as_much_left_or_what_a_second_allows_less():
    one = RateWindow(100)
    one.record(1100, 0.0)
    for now in (1.0, 2.5, 2.9, 7.25, 11.5):
        resumed = RateWindow(100)
        resumed.resume(one.level(now), now)
        assert one.left(now) - 100 <= resumed.left(now) <= one.left(now)
    assert one.level(50.0) == 0


def test_a_window_without_a_limit_has_the_level_of_what_is_in_it():
    window = RateWindow(float("inf"))
    window.fill(100, 0.0)
    assert window.level(1.5) == 1000


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=80), st.floats(0.1, 1000))
@examples(300)
def test_who_always_sends_gets_the_rate_and_the_burst_exactly(amounts, rate):
    window, now = RateWindow(rate), 0.0
    for i, amount in enumerate(amounts):
        if not window.take(amount, now):
            window.record(amount, now)
        now += window.wait(now)
        used = sum(amounts[: i + 1])
        if now == 0:
            assert used <= 10 * rate
        else:
            assert used == pytest.approx(rate * now + 10 * rate, rel=1e-9)


@given(st.lists(st.integers(1, 4000), min_size=20, max_size=60), st.floats(1, 30))
@examples(200)
def test_nor_does_a_capped_throttle_lose_debt(amounts, cap):
    """A throttle that is shorter than the debt is served again and again: in the end, all is paid."""
    window, now, used = RateWindow(50), 0.0, 0
    for amount in amounts:
        if not window.take(amount, now):
            window.record(amount, now)
        used += amount
        now += min(window.wait(now), cap)
    owed = window.wait(now) * 50
    assert used - owed <= 50 * now + 500 + 1e-6
    if owed:
        assert used - owed == pytest.approx(50 * now + 500)


@given(STEPS, st.integers(2, 12), st.sampled_from([0.5, 1.0, 3.0]))
@examples(600)
def test_the_short_cut_is_what_a_look_at_the_samples_says(steps, number, seconds):
    fast, slow, now = RateWindow(100, number, seconds), RateWindow(100, number, seconds), 0.0
    for passed, amount in steps:
        now += passed
        slow.void()
        taken = fast.take(amount, now)
        assert taken == slow.take(amount, now)
        if not taken:
            fast.record(amount, now)
            slow.record(amount, now)
        assert fast.average(now) == slow.average(now)
        assert fast.left(now) == slow.left(now)


def test_the_short_cut_ends_when_a_sample_passes():
    window = RateWindow(100)
    assert all(window.take(1, now) for now in (0.0, 0.9, 11.0))
    assert window.room == 1097, "11 s since the oldest began"
    assert not window.take(1095, 11.95), "but 10.95 since the next did"
    assert window.take(1094, 11.95)


def test_time_that_goes_back_does_no_harm():
    window = RateWindow(100)
    assert window.take(10, 1000.0)
    assert window.take(10, 2.0)
    window.record(2000, 2.0)
    window.record(100, 1.0)
    assert window.wait(1.0) == pytest.approx(11.2)


@pytest.mark.parametrize(
    "wrong", [(0, 11, 1.0), (-1, 11, 1.0), (1, 1, 1.0), (1, 1001, 1.0), (1, 11, 0), (1, 11, float("inf")), (float("nan"), 11, 1.0)]
)
def test_what_makes_no_window_is_refused(wrong):
    with pytest.raises(ValueError, match="samples"):
        RateWindow(*wrong)


# ---------------------------------------------------------------------- what did not happen, and other limits


@given(STEPS, st.integers(1, 3000))
@examples(300)
def test_what_is_refunded_at_once_leaves_the_room_that_was_there(steps, amount):
    window, now = RateWindow(100), 0.0
    for passed, each in steps:
        now += passed
        window.take(each, now)
    room, wait = window.left(now), window.wait(now)
    window.record(amount, now)
    window.refund(amount, now)
    assert min(room, 1000) - 1e-6 <= window.left(now) <= room + 1e-6, "a window that is emptied begins anew, with 10 s of the rate"
    assert window.wait(now) == pytest.approx(wait, abs=1e-6), "not always 0: Kafka's time jumps back at a full second"


def test_a_refund_beyond_what_is_there_leaves_nothing():
    window = RateWindow(100)
    for now in range(5):
        window.take(10, float(now))
    window.refund(10**9, 4.0)
    assert window.idle(4.0)
    assert window.left(4.0) == 1000


def test_another_limit_holds_at_once_and_what_was_used_stays_used():
    one = rates({ALICE: 100})
    meter = one.meter(ALICE, 0.0)
    assert meter.take(600, 0.0)
    one.limits = LimitTable({ALICE: RateLimit(80)})
    assert not meter.take(201, 0.0)
    assert meter.take(200, 0.0)
    one.limits = LimitTable({ALICE: RateLimit(1000)})
    assert one.stands(one.find("alice", "app"), 0.0) == (80, 1000, 9200)


def test_what_was_allowed_when_it_happened_is_no_debt_under_a_lower_limit():
    one = rates({ALICE: 100})
    assert one.meter(ALICE, 0.0).take(1000, 0.0)
    one.limits = LimitTable({ALICE: RateLimit(1)})
    assert one.stands(one.find("alice", "app"), 0.0) == (pytest.approx(1), 1, pytest.approx(0, abs=1e-9))
    assert throttle(one, 2, 0.0) == pytest.approx(2), "not the 990 s that the burst would take at this rate"


def test_debt_stays_debt_but_for_what_a_higher_limit_allows():
    one = rates({ALICE: 100})
    assert throttle(one, 1500, 0.0) == 5
    one.limits = LimitTable({ALICE: RateLimit(50)})
    assert throttle(one, 0, 0.0) == 10
    one.limits = LimitTable({ALICE: RateLimit(200)})
    assert throttle(one, 0, 0.0) == 0
    assert one.stands(one.find("alice", "app"), 0.0).left == 1000


def test_a_factor_multiplies_every_limit_at_once_and_0_divides_nothing():
    one = rates({ALICE: 100, BOB: 10})
    meter = one.meter(ALICE, 0.0)
    assert meter.take(100, 0.0)
    one.factor = 0.25
    assert not meter.take(200, 0.0)
    verdict = one.charge(one.find("alice", "app"), (200,), 0.0)
    assert (verdict.decision.limit, verdict.decision.throttle) == (25, 2)
    assert "throttle factor of 0.25" in verdict.decision.message
    assert throttle(one, 50, 0.0, "bob") == 10
    one.factor = 0.0
    assert 0 < throttle(one, 1, 0.0) < float("inf")
    one.factor = 1.0
    assert one.meter(ALICE, 0.0).take(600, 0.0)
    with pytest.raises(ValueError, match=r"from 0 to 1, got 1\.1"):
        one.factor = 1.1


def test_without_a_limit_nothing_follows():
    one = rates({ALICE: 100})
    found, meter = one.find("alice", "app"), one.meter(ALICE, 0.0)
    one.limits = LimitTable({})
    assert meter.take(10**9, 0.0)
    assert one.charge(found, (10**9,), 0.0).decision is None
    one.limits = LimitTable({ALICE: RateLimit(100)})
    assert throttle(one, 100, 0.0) == pytest.approx(1)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
def test_a_limit_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="above 0"):
        RateLimit(wrong)


# ---------------------------------------------------------------------- all entities


def test_all_connections_of_an_owner_share_its_window():
    one = rates({Entity(DEFAULT, None): 100, Entity("carol", DEFAULT): 10})
    found = [one.find("alice", client) for client in ("a", "b")]
    meters = [one.meter(each.owner, 0.0) for each in found]
    assert meters[0] is meters[1]
    assert meters[0].take(900, 0.0)
    assert not meters[1].take(101, 0.0)
    assert one.meter(one.find("bob", "a").owner, 0.0).take(1000, 0.0)
    for client in ("a", "b"):
        assert one.meter(one.find("carol", client).owner, 0.0).limit == 10
    assert len(one) == 4


def test_the_decision_says_which_quota_whose_how_much_and_for_how_long():
    one = rates({ALICE: 100})
    verdict = one.charge(one.find("alice", "app"), (1500,), 0.0)
    decision = verdict.decision
    assert verdict.charged == 1500
    assert (decision.quota, decision.action, decision.entity) == ("producer_byte_rate", Action.THROTTLE, ALICE)
    assert (decision.usage, decision.limit, decision.throttle, decision.left) == (150, 100, 5, 0)
    assert decision.message == (
        "The producer byte rate quota of user alice is exceeded: 150 bytes/s on average, limit 100/s; slowed down for 5 s."
    )
    one.refund(ALICE, 1500, 0.0)
    assert one.stands(one.find("alice", "app"), 0.0) == (0, 100, 1000)


def test_a_look_makes_no_window_and_operators_see_who_uses_most():
    one = rates({ALICE: 100, BOB: 10})
    assert one.stands(one.find("alice", "app"), 0.0) == (0, 100, 1000)
    assert len(one) == 0
    one.meter(ALICE, 0.0).take(500, 0.0)
    throttle(one, 200, 0.0, "bob")
    assert dict(one.usage(0.0)) == {ALICE: (50, 100, 500), BOB: (20, 10, 0)}
    assert finish_at_once(one.busiest(1, 0.0)).shown == [(BOB, (20, 10, 0))]
    assert finish_at_once(one.busiest(0, 0.0)) == ([], 0)


def test_windows_that_hold_nothing_are_dropped_and_their_meters_stay_safe_to_use():
    one = rates({ALICE: 100, BOB: 10})
    meter, owing = one.meter(ALICE, 0.0), one.meter(BOB, 0.0)
    meter.take(1000, 0.0)
    throttle(one, 1000, 0.0, "bob")
    one.sweep(10.0)
    assert (len(one), meter.gone) == (2, False)
    one.sweep(50.0)
    assert (len(one), meter.gone, owing.gone) == (1, True, False)
    assert meter.take(700, 50.0)
    assert one.meter(ALICE, 50.0) is not meter
    assert not meter.take(301, 50.0)
    assert not one.meter(ALICE, 50.0).take(301, 50.0)
    assert meter.take(300, 50.0)


def test_a_sweep_looks_at_some_and_the_next_goes_on():
    one = rates({Entity(DEFAULT, None): 100})
    one._sweeps._count = 10
    for i in range(25):
        one.meter(Entity(f"user-{i}", None), 0.0)
    sizes = []
    for _ in range(3):
        one.sweep(1.0)
        sizes.append(len(one))
    assert sizes == [15, 5, 0]


def test_memory_is_bounded_and_who_owes_is_forgotten_last(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTITIES", 20)
    one = rates({Entity(DEFAULT, None): 100})
    throttle(one, 10**6, 0.0)
    for i in range(500):
        one.meter(Entity(f"user-{i}", None), 0.0)
        assert len(one) <= 20
    assert throttle(one, 0, 0.0) > 9000


def test_where_many_owe_they_are_not_forgotten_one_by_one(monkeypatch):
    monkeypatch.setattr(module, "MAX_ENTITIES", 20)
    one = rates({Entity(DEFAULT, None): 100})
    for i in range(18):
        throttle(one, 10**6, 0.0, f"owes-{i}")
    for i in range(500):
        one.meter(Entity(f"user-{i}", None), 0.0)
    assert sum(standing.usage > 0 for _, standing in one.usage(0.0)) >= 17


@pytest.mark.parametrize("key", [Entity(None, DEFAULT), Entity(DEFAULT, DEFAULT), Entity("mallory", DEFAULT)])
def test_new_client_ids_are_no_way_round_a_limit_and_take_nobodys_window(monkeypatch, key):
    monkeypatch.setattr(module, "MAX_ENTITIES", 90)
    one = rates({key: 100, Entity("alice", None): 100, Entity(None, "named"): 7})
    assert throttle(one, 10**6, 0.0) > 9000
    for i in range(1000):
        found = one.find("mallory", f"made-up-{i}")
        assert one.charge(found, (10**6,), 0.0).decision
    assert len(one) == 81, "of 90"
    late = one.find("mallory", "made-up-1001")
    assert late.owner == Entity("mallory", "<others>")
    assert one.charge(late, (0,), 0.0).decision.entity == late.owner
    assert one.meter(Entity("mallory", "made-up-1001"), 0.0).owner == late.owner
    assert one.find("mallory", "named").owner == Entity("mallory", "named") or key != Entity(None, DEFAULT)
    assert throttle(one, 0, 0.0) > 9000, "others keep what they owe"
    assert one.find("alice", "made-up").owner == Entity("alice", None)
    one.sweep(1e9)
    assert len(one) == 0


def test_each_user_has_a_window_of_its_own_under_a_limit_of_a_client_id():
    """Kafka has one for all: who claims the client id of somebody else would use up that one's rate."""
    one = rates({Entity(None, "etl"): 100})
    assert one.charge(one.find("mallory", "etl"), (10**6,), 0.0).decision
    assert one.charge(one.find("alice", "etl"), (900,), 0.0).decision is None


@given(
    st.lists(st.tuples(st.integers(0, 40).map(lambda n: n / 8), st.integers(1, 400)), min_size=1, max_size=12),
    st.integers(2, 12),
    st.sampled_from([0.5, 1.0, 3.0]),
    st.integers(1, 200),
)
@examples(300)
def test_a_measured_rate_is_not_above_another_when_the_first_sample_passes_that_is_enough(steps, number, seconds, rate):
    def after_all_steps() -> tuple[RateWindow, float]:
        window, now = RateWindow(inf, number, seconds), 0.0
        for passed, amount in steps:
            now += passed
            window.record(amount, now)
        return window, now

    window, now = after_all_steps()
    samples: list[list[float]] = []  # first and last amount
    for at in accumulate(passed for passed, _ in steps):
        if not samples or at - samples[-1][0] >= seconds:
            samples.append([at, at])
        samples[-1][1] = at
    ends = [now, *(last + number * seconds for _, last in samples if last + number * seconds > now)]
    enough = next(end for end in ends if after_all_steps()[0].average(end + 2e-6 * (end > now)) <= rate)
    assert window.wait_for(rate, now) == pytest.approx(enough - now, abs=1e-5)


def test_samples_of_other_lengths_have_kafkas_figures_above_the_limit_too():
    window = RateWindow(10, number=3, seconds=2.0)
    window.record(100, 0.0)
    assert window.average(0.0) == 25, "100 within two samples of 2 s"
    assert window.wait(0.0) == 6
    assert window.average(3.0) == 17.5, "30 are paid"
