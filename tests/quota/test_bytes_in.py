"""Bytes in: which batch is refused, what is recorded, who shares what, and that meters outlive every change."""

from copy import deepcopy
from math import exp, fsum, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quota.decision import Action
from quota.entity import Entity
from quota.kinds import bytes_in as module
from quota.kinds.bytes_in import OTHERS, BytesIn, TopicLimits
from tests.properties import examples
from tests.quota.test_ewma import Literal
from tests.quota.test_rates import Kafka


def take(one: BytesIn, topic: str, size: float, now: float) -> bool:
    return one.topic(topic, now).take(size, now)


def rates(one: BytesIn, now: float) -> dict[str, float]:
    return {topic: rate for topic, rate, _ in one.standings(now)}


def over(meter: str = "ewma") -> BytesIn:
    """At 5 s: loud has 300 bytes/s of 100, calm 50 of 100, all have 350 of 200."""
    one = BytesIn(TopicLimits(200, {"loud": 100, "calm": 100}, meter))
    take(one, "loud", 1500, 0.0)
    take(one, "calm", 250, 4.0)
    return one


# ---------------------------------------------------------------------- who is refused


def test_a_topic_is_refused_iff_total_and_topic_are_above_their_thresholds():
    one = over()
    assert take(one, "loud", 10**9, 4.9), "no rate before the first tick"
    one = over()
    assert not take(one, "loud", 1, 5.0)
    assert take(one, "calm", 1, 5.0)
    roomy = BytesIn(TopicLimits(1000, {"loud": 100}))
    take(roomy, "loud", 5000, 0.0)
    assert take(roomy, "loud", 1, 5.0), "the total is 1000 of 1000, which is not above"


def test_a_topic_at_its_threshold_is_not_above_it():
    one = BytesIn(TopicLimits(200, {"edge": 100}))
    take(one, "edge", 500, 0.0)
    take(one, "loud", 5000, 0.0)
    assert take(one, "edge", 1, 5.0)
    assert not take(one, "loud", 1, 5.0)


def test_what_is_refused_is_recorded_nowhere_but_as_refused():
    one = over()
    meter = one.topic("loud", 5.0)
    assert not meter.take(10**6, 5.0)
    assert one.total.count == 1750
    assert rates(one, 10.0)["loud"] == pytest.approx(300 * exp(-5 / 60))
    one.refuse("loud", 600, 5.0)
    assert one.refused.count == 600
    assert one.refused.rate(10.0) == 120
    assert one.total.count == 1750


def test_it_is_admitted_again_when_either_has_decayed():
    """300 falls to 100 after 14 ticks (ln 3 x 12 = 13.2), but 350 to 200 after 7 (ln 1.75 x 12 = 6.7)."""
    one = over()
    assert [now for now in range(5, 100, 5) if not take(one, "loud", 0, float(now))] == [5, 10, 15, 20, 25, 30, 35]


def test_between_ticks_the_verdict_stays_whatever_comes():
    one = over()
    assert all(take(one, "calm", 10**6, now) for now in (5.0, 6.0, 9.9))
    assert not take(one, "calm", 1, 10.0)


# ---------------------------------------------------------------------- thresholds


def test_topics_without_a_threshold_share_what_is_left_equally():
    one = BytesIn(TopicLimits(1000, {"a": 300, "absent": 100}), ["internal"])
    assert one.share == 600
    one.topics_are(["a", "b", "c", "internal"])
    assert one.share == 300
    one.topic_came("d")
    one.topic_came("d")
    one.topic_came("internal")
    assert one.share == 200
    take(one, "e", 1, 0.0)
    take(one, "e", 1, 0.0)
    assert one.share == 150, "one that is produced to counts as known"
    one.topic_came("e")
    assert one.share == 150
    one.topic_went("b")
    one.topic_went("b")
    one.topic_went("a")
    one.topic_went("e")
    assert one.share == 300
    one.topics_are(["x"])
    assert one.share == 600
    one.change(TopicLimits(1000, {"x": 1}), [])
    assert one.share == 999
    one.change(None, [])
    assert one.share == inf


def test_the_share_holds_at_once():
    one = BytesIn(TopicLimits(200))
    take(one, "b", 750, 0.0)
    take(one, "a", 500, 0.0)
    assert one.topic("a", 5.0).take(0, 5.0), "100 of 200 / 2"
    one.topic_came("c")
    assert not one.topic("a", 5.0).take(0, 5.0)
    one.topic_went("c")
    assert one.topic("a", 5.0).take(0, 5.0)


def test_where_nothing_is_left_the_others_have_a_share_of_0():
    one = BytesIn(TopicLimits(100, {"a": 100}))
    take(one, "b", 1, 0.0)
    take(one, "a", 1000, 0.0)
    assert not take(one, "b", 1, 5.0)
    assert one.explain("b", 1, 5.0).throttle == 5


@pytest.mark.parametrize(
    ("total", "explicit", "message"),
    [
        (100, {"a": 60, "b": 65.5}, "125.500 bytes/s in sum, which is 25.500 more than the total of 100"),
        (100, {"a": 0}, "topic a, got 0"),
        (100, {"a": -5}, "topic a, got -5"),
        (100, {"a": float("nan")}, "topic a, got nan"),
        (0, {}, "total threshold above 0 bytes/s, got 0"),
        (float("inf"), {}, "got inf"),
    ],
)
def test_thresholds_that_cannot_hold_are_refused_with_the_figures(total, explicit, message):
    with pytest.raises(ValueError) as caught:
        TopicLimits(total, explicit)
    assert message in str(caught.value)


def test_a_sum_that_is_the_total_to_the_byte_is_none_too_much():
    assert TopicLimits(0.6, {"a": 0.1, "b": 0.2, "c": 0.3 - 1e-16}).rest >= 0


def test_exempt_topics_count_in_the_total_and_are_never_refused():
    one = BytesIn(TopicLimits(100), ["internal"])
    take(one, "internal", 10**6, 0.0)
    take(one, "b", 1000, 0.0)
    assert take(one, "internal", 10**6, 5.0)
    assert not take(one, "b", 1, 5.0)
    assert one.charge("internal", 1, 5.0).decision is None
    assert {stands.topic: stands.threshold for stands in one.standings(5.0)} == {"internal": inf, "b": 100}


def test_without_limits_nothing_is_refused():
    one = BytesIn(None)
    meter = one.topic("a", 0.0)
    assert meter.take(10**9, 0.0)
    assert meter.take(1, 5.0)
    one.change(TopicLimits(100), [])
    assert not meter.take(1, 5.0), "what was metered stays"
    one.change(None, [])
    assert meter.gone
    assert meter.take(10**9, 5.0)


# ---------------------------------------------------------------------- what is said, and slowing down


def test_a_refusal_says_both_rates_and_when_it_may_end():
    decision = over().explain("loud", 77, 7.0)
    assert (decision.quota, decision.action, decision.usage, decision.limit) == ("bytes_in", Action.REFUSE, 300, 100)
    assert decision.throttle == 3, "the next tick"
    assert decision.message == (
        "Too many bytes in: topic loud has 300 bytes/s, threshold 100, and all topics 350 bytes/s, threshold 200;"
        " 77 bytes were refused, try again in 3 s."
    )


def test_slowing_down_records_all_and_lasts_until_either_has_decayed():
    one = over()
    assert one.charge("calm", 100, 5.0).decision is None
    verdict = one.charge("loud", 0, 5.0)
    decision = verdict.decision
    assert decision.action is Action.THROTTLE
    assert decision.throttle == 35, "the total with 100 bytes more: 350 is 323.6 at 10 s, 200 another 5.8 ticks later"
    assert "slowed down" in decision.message
    assert one.charge("loud", 5000, 6.0).charged == 5000
    assert one.throttled.count == 5000
    assert one.total.count == 1750 + 100 + 5000
    assert one.charge("loud", 1, 6.0).decision.throttle > 35


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 8), st.integers(0, 3000)), min_size=1),
    st.sampled_from(["ewma", "window"]),
)
@examples(300)
def test_after_the_promised_time_it_is_admitted(steps, meter):
    one, now = BytesIn(TopicLimits(200, {"a": 90, "b": 110}, meter)), 0.0
    for topic, passed, size in steps:
        now += passed
        decision = one.charge(topic, size, now).decision
        if decision is not None:
            assert 0 <= decision.throttle < 200
    wait = one.explain("a", 0, now).throttle if meter == "window" else one.charge("a", 0, now).decision
    if wait is not None:
        told = wait if meter == "window" else wait.throttle
        assert take(one, "a", 1, now + told + 1e-6)


# ---------------------------------------------------------------------- samples


def test_with_samples_each_record_may_change_the_verdict():
    one = BytesIn(TopicLimits(200, {"a": 100, "b": 100}, "window"))
    assert take(one, "a", 1000, 0.0)
    assert take(one, "a", 2000, 0.0), "100 and 100, of 100 and 200"
    assert not take(one, "a", 1, 0.0)
    assert one.explain("a", 1, 0.0).throttle == 11
    assert take(one, "b", 1, 0.0)
    assert take(one, "a", 1, 11.0)


@pytest.mark.parametrize(("before", "after"), [("ewma", "window"), ("window", "ewma")])
def test_another_meter_goes_on_from_the_rate_that_was(before, after):
    one = BytesIn(TopicLimits(200, {}, before))
    for second in range(300):
        one.charge("a", 70, float(second))
    one.change(TopicLimits(200, {}, after), [])
    assert rates(one, 300.0)["a"] == pytest.approx(70, rel=0.03)
    assert one.total.measured(300.0) == pytest.approx(70, rel=0.03)
    for second in range(300, 330):
        one.charge("a", 70, float(second))
        assert rates(one, float(second))["a"] == pytest.approx(70, rel=0.1)


# ---------------------------------------------------------------------- against literal models


class Model:
    """seed s4, `recordQuota`, with the thresholds of its point 1 counted anew each time."""

    def __init__(self, limits: TopicLimits, exempt: set[str]) -> None:
        self.limits, self.exempt = limits, exempt
        self.new = Literal if limits.meter == "ewma" else lambda: Kafka(11, 1.0)
        self.total = self.new()
        self.meters: dict = {}
        self.listed: set[str] = set()
        self.claimed: set[str] = set()

    def rate(self, meter, now: float) -> float:
        if isinstance(meter, Kafka):
            return deepcopy(meter).rate(now)  # where Kafka looks at an empty sample, it begins anew
        meter.tick(now)
        return meter.rate

    def threshold(self, topic: str) -> float:
        if topic in self.exempt:
            return inf
        if topic in self.limits.explicit:
            return self.limits.explicit[topic]
        sharing = [name for name in self.listed | self.claimed if name not in self.exempt and name not in self.limits.explicit]
        return (self.limits.total - fsum(self.limits.explicit.values())) / max(len(sharing), 1)

    def record_quota(self, topic: str, size: float, now: float) -> bool:
        if topic not in self.meters:
            self.meters[topic] = self.new()
            self.claimed |= {topic} - self.listed
        meter = self.meters[topic]
        if self.rate(self.total, now) > self.limits.total and self.rate(meter, now) > self.threshold(topic):
            return False
        self.total.record(size, now)
        meter.record(size, now)
        return True

    def went(self, topic: str) -> None:
        """The meter stays: what was charged is not forgotten because somebody says that the topic is gone."""
        self.listed.discard(topic)
        self.claimed.discard(topic)


TOPICS = "abcdefgh"
NAMES = st.sampled_from(TOPICS)
LIMITS = st.builds(
    lambda total, shares, top: (total, {name: total * share / 1000 for name, share in zip(TOPICS, shares, strict=False)}, set(top)),
    st.sampled_from([128.0, 1024.0]),
    st.lists(st.integers(1, 300), max_size=3),
    st.lists(NAMES, max_size=2),
)
PRODUCE = st.tuples(st.just("produce"), NAMES, st.integers(0, 20_000))
CHANGE = st.one_of(
    PRODUCE,
    PRODUCE,
    st.tuples(st.just("came"), NAMES, st.none()),
    st.tuples(st.just("went"), NAMES, st.none()),
    st.tuples(st.just("are"), st.frozensets(NAMES), st.none()),
    st.tuples(st.just("change"), LIMITS, st.none()),
)
TIMELINE = st.lists(st.tuples(st.integers(0, 64).map(lambda n: n / 8), CHANGE), max_size=60)
"""(seconds to the next, what happens)"""


@pytest.mark.parametrize("meter", ["ewma", "window"])
@given(steps=TIMELINE, limits=LIMITS)
@examples(300)
def test_whatever_comes_goes_or_changes_it_decides_as_the_seed_and_no_meter_is_lost(meter, steps, limits):
    total, explicit, exempt = limits
    one = BytesIn(TopicLimits(total, explicit, meter), exempt)
    model, now, held = Model(TopicLimits(total, explicit, meter), exempt), 0.0, {}
    for passed, (what, arg, size) in steps:
        now += passed
        if what == "produce":
            kept = held.setdefault(arg, one.topic(arg, now))
            if kept.gone:
                kept = held[arg] = one.topic(arg, now)
            edge = model.rate(model.total, now) == pytest.approx(model.limits.total, rel=1e-9) or (
                arg in model.meters and model.rate(model.meters[arg], now) == pytest.approx(model.threshold(arg), rel=1e-9)
            )
            if edge:
                return
            assert kept.take(size, now) == model.record_quota(arg, size, now)
            assert one.topic(arg, now) is kept
        elif what == "came":
            one.topic_came(arg)
            model.listed.add(arg)
            model.claimed.discard(arg)
        elif what == "went":
            one.topic_went(arg)
            model.went(arg)
        elif what == "are":
            one.topics_are(arg)
            model.listed = set(arg)
            model.claimed -= arg
        else:
            model.limits, model.exempt = TopicLimits(arg[0], arg[1], meter), arg[2]
            one.change(model.limits, model.exempt)
        stands = {stands.topic: (stands.rate, stands.threshold) for stands in one.standings(now)}
        assert stands.keys() == model.meters.keys()
        for name, figures in stands.items():
            expected = model.rate(model.meters[name], now), model.threshold(name)
            assert figures == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert one.total.measured(now) == pytest.approx(model.rate(model.total, now), rel=1e-9, abs=1e-9)


# ---------------------------------------------------------------------- memory


def test_idle_topics_are_forgotten_and_their_meters_stay_safe_to_use():
    one = BytesIn(TopicLimits(100, {"a": 50}))
    one.topics_are(["a", "b"])
    meters = [one.topic(name, 0.0) for name in ("a", "b", "claimed")]
    for meter in meters:
        meter.take(1000, 0.0)
    assert one.share == 25
    one.sweep(240.0)
    assert len(rates(one, 240.0)) == 3, "200 bytes/s are more than 1 for 318 s"
    one.sweep(299.0)
    one.sweep(330.0)
    assert (rates(one, 330.0), [meter.gone for meter in meters]) == ({}, [True] * 3)
    assert one.share == 50, "what was only claimed has no share any more"
    assert meters[0].take(10_000, 331.0)
    assert rates(one, 335.0) == {"a": 2000}
    assert not meters[0].take(1, 335.0)


def test_a_sweep_looks_at_some_and_at_all_not_more_often_than_every_minute():
    one = BytesIn(TopicLimits(100))
    one._sweeps._count = 10
    for i in range(25):
        one.topic(f"t{i}", 0.0)
    sizes = []
    for now in (0.0, 1.0, 2.0):
        one.sweep(now)
        sizes.append(len(rates(one, now)))
    assert sizes == [15, 5, 0]
    one.topic("late", 3.0)
    one.sweep(59.0)
    assert len(rates(one, 59.0)) == 1
    one.sweep(60.0)
    assert len(rates(one, 60.0)) == 0


def test_names_that_are_only_claimed_share_one_meter_beyond_a_bound(monkeypatch):
    monkeypatch.setattr(module, "MAX_CLAIMED", 3)
    one = BytesIn(TopicLimits(100))
    one.topics_are(["real"])
    for i in range(50):
        take(one, f"claimed-{i}", 100, 0.0)
    assert take(one, "real", 5, 0.0)
    assert one.share == 25
    assert rates(one, 5.0) == {"claimed-0": 20, "claimed-1": 20, "claimed-2": 20, "real": 1, OTHERS: 940}
    others = one.topic("claimed-40", 5.0)
    assert others is one.topic("claimed-41", 5.0)
    assert not others.take(1, 5.0)
    one.topics_are(["real", "claimed-0", "claimed-40"])
    assert others.gone
    assert one.topic("claimed-40", 5.0).name == "claimed-40"
    assert one.topic(OTHERS, 5.0).name == OTHERS
    assert one.share == 20, "three that are known, two that are claimed"


def test_the_example_of_the_docs():
    """docs/byte-quotas.md: rates in MB/s at the beginning of each interval of 5 s, and whether what is too much is refused."""
    one = BytesIn(TopicLimits(100, {"orders": 50, "bills": 20}))
    one.topics_are(["orders", "bills", "clicks", "a", "b"])
    assert one.share == 10
    found = {}
    for tick in range(0, 105, 5):
        passed = {topic: take(one, topic, rate * 5, tick) for topic, rate in (("orders", 80), ("clicks", 15), ("bills", 10))}
        assert passed["bills"]
        assert passed["orders"] == passed["clicks"]
        found[tick] = (round(one.total.measured(tick), 2), passed["orders"])
    assert [tick for tick, (_, passed) in found.items() if not passed] == [5, 40, 100]
    assert [found[tick][0] for tick in (0, 5, 10, 15, 35, 40, 45)] == [0, 105, 97.4, 98.01, 99.99, 100.39, 93.17]


# ---------------------------------------------------------------------- what is not forgotten, and what does not count


def test_a_topic_that_is_deleted_and_made_again_has_what_was_charged():
    one = over()
    one.topic_came("loud")
    for _ in range(2):
        one.topic_went("loud")
        assert not take(one, "loud", 1, 5.0)
        one.topic_came("loud")
        assert not take(one, "loud", 1, 5.0)


def test_a_topic_that_was_said_to_be_gone_has_its_share_again_when_it_is_written_to():
    one = BytesIn(TopicLimits(100))
    one.topic_came("a")
    one.topic_came("b")
    take(one, "a", 10, 0.0)
    one.topic_went("a")
    assert one.share == 100
    one.written("a", 1.0)
    assert one.share == 50
    one.topic_came("a")
    assert one.share == 50


def test_what_is_expected_of_a_user_counts_for_that_user_alone():
    one = BytesIn(TopicLimits(200, {"orders": 100}))
    one.expect("alice", 5000, 0.0)
    assert one.is_over("alice", "orders", 5.0)
    assert one.is_over("alice", "made-up", 5.0), "a name that nobody has confirmed is no way round"
    assert not one.is_over("bob", "orders", 5.0)
    assert take(one, "orders", 1, 5.0)
    assert (one.share, rates(one, 5.0).keys()) == (100, {"orders"})
    one.answered("alice", 5000, 0.0, 7.0)
    assert not one.is_over("alice", "orders", 7.0)


@pytest.mark.parametrize("meter", ["ewma", "window"])
def test_what_is_never_answered_is_forgotten_with_time(meter):
    one = BytesIn(TopicLimits(200, {"orders": 100}, meter))
    one.expect("alice", 5000, 0.0)
    assert one.is_over("alice", "orders", 5.0)
    one.sweep(500.0)
    one.sweep(600.0)
    assert not one.is_over("alice", "orders", 600.0)
    assert not one._expected


@pytest.mark.parametrize("later", [0.0, 4.9, 5.0, 7.0, 60.0])
def test_bytes_that_are_given_back_leave_the_rates_as_if_they_had_never_come(later):
    one, other = BytesIn(TopicLimits(200, {"a": 100})), BytesIn(TopicLimits(200, {"a": 100}))
    for each in (one, other):
        take(each, "a", 100, 3.0)
    take(one, "a", 7000, 4.0)
    one.topic("a", 4.0 + later).give_back(7000, 4.0 + later, 4.0)
    for moment in (5.0, 64.0, 70.0):
        now = max(moment, 4.0 + later)
        assert rates(one, now) == pytest.approx(rates(other, now), abs=1e-9)
        assert one.total.measured(now) == pytest.approx(other.total.measured(now), abs=1e-9)
    assert one.total.count == 100


def test_who_is_declined_is_told_to_come_back_at_the_next_tick_of_the_average() -> None:
    quota = BytesIn(TopicLimits(100, {"orders": 10}))
    quota.expect("alice", 10_000, 0.0)
    quota.expect("alice", 10_000, 6.0)
    assert quota.is_over("alice", "orders", 6.0)
    found = quota.decline("alice", "orders", 6.0)
    assert (found.entity, found.throttle, found.limit) == (Entity("alice", None), 4.0, 90)
    assert found.message.endswith("try again in 4 s.")


@pytest.mark.parametrize("later", [0.0, 3.0, 7.0, 65.0])
def test_what_was_expected_is_given_back_as_of_when_it_came(later):
    """However long the broker took to answer, and whatever else is expected of the user."""
    one, other = (BytesIn(TopicLimits(100, {"orders": 10})) for _ in range(2))
    for quota in (one, other):
        quota.expect("alice", 3000, 2.0)
    one.expect("alice", 10_000, 2.0)
    one.answered("alice", 10_000, 2.0, 2.0 + later)
    for now in (2.0 + later, 10.0 + later):
        assert one._expected["alice"].measured(now) == pytest.approx(other._expected["alice"].measured(now))
