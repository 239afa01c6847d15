"""The overload quota: who is slowed down at a broker that cannot keep up, and that nothing happens at one that does."""

import json
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial

import pytest

from proxy.hashing import murmur3
from quota.decision import Action
from quota.engine import Engine
from quota.fleet_events import FleetEvents
from quota.in_flight import Passage, Window
from quota.kinds.overload import MOST, OverloadOptions
from quota.kinds.overload import NAME as OVERLOAD
from quota.limits import Limits
from quota.overload import Goal
from quota.rules import Rules
from quota.tenants import Tenant, Tenants
from quota.windows.durations import Durations
from tests.support import limits_of

KIB, MIB = 1 << 10, 1 << 20
OPTIONS = OverloadOptions(Goal(0.1, 64 * KIB))
SIZE = 16 * KIB
SLOW = 10.0 * MIB
"""bytes per second that a slow broker does"""


class Proxy:
    """A proxy whose users produce to a broker that does so many bytes per second, and answers in the order of requests. Each has
    enough connections to have 4 MiB under way."""

    def __init__(self, *options: object, **limits: object) -> None:
        self.engine = Engine(limits_of(*(options or (OPTIONS,)), **limits), murmur3)
        self.now = 0.0
        self.total = Durations()
        self.engine.overload.step(self.now)
        self.queue: deque[tuple[Proxy, str, float, Passage | None]] = deque()
        self.queued: Counter[str] = Counter()
        self.rules: dict[tuple[str, int], Rules] = {}

    def window(self, user: str, broker: int = 1) -> Window:
        if (user, broker) not in self.rules:
            self.rules[user, broker] = Rules(self.engine, user, "app", self.now, broker)
        window = self.rules[user, broker].window
        assert window is not None
        return window

    def second(self, capacity: float, broker: int = 1, **asked: float) -> dict[str, float]:
        """Users ask for so many bytes per second in requests of 16 KiB; what the broker has done of it."""
        return second([self], capacity, broker, **asked)

    def seconds(self, count: int, capacity: float, broker: int = 1, **asked: float) -> dict[str, float]:
        """The same, the last of so many."""
        for _ in range(count - 1):
            self.second(capacity, broker, **asked)
        return self.second(capacity, broker, **asked)

    def ask(self, user: str, broker: int) -> bool:
        """A request of a user comes, if it has one."""
        window = self.window(user, broker)
        if self.queued[user] + window.waiting >= 4 * MIB:
            return False
        if window.limited:
            passage = window.enter(SIZE, lambda now: self.put(user, now, passage))
            if passage.going:
                self.put(user, self.now, passage)
        else:
            window.sent += SIZE
            self.put(user, self.now, None)
        return True

    def put(self, user: str, now: float, passage: Passage | None) -> None:
        """It goes on to the broker."""
        self.queue.append((self, user, now, passage))
        self.queued[user] += SIZE


def second(proxies: Sequence[Proxy], capacity: float, broker: int = 1, **asked: float) -> dict[str, float]:
    """The same where users have connections to several proxies; user `one` has some to the first only."""
    queue = proxies[0].queue
    done, wanted = dict.fromkeys(asked, 0.0), dict.fromkeys(asked, 0.0)
    left, steps, start = 0.0, 1000, proxies[0].now
    for i in range(steps):
        for proxy in proxies:
            proxy.now, proxy.queue = start + i / steps, queue
        for user, amount in asked.items():
            wanted[user] += amount / steps
            asked_at = proxies[:1] if user == "one" else proxies
            while wanted[user] >= SIZE and sum([proxy.ask(user, broker) for proxy in asked_at]):
                wanted[user] -= SIZE * len(asked_at)
        left = min(left + capacity / steps, capacity / steps + SIZE)
        while left >= SIZE and queue:
            left -= SIZE
            proxy, user, since, passage = queue.popleft()
            done[user] += SIZE
            proxy.queued[user] -= SIZE
            proxy.engine.overload.times(user, broker, proxy.total).add(proxy.now - since)
            if passage is not None:
                passage.end(proxy.now)
    for proxy in proxies:
        proxy.now = start + 1.0
        proxy.changes = proxy.engine.overload.step(proxy.now)
    return done


def test_at_a_slow_broker_who_has_more_than_a_share_is_slowed_down_and_nobody_else():
    proxy = Proxy()
    proxy.seconds(4, SLOW, flood=30 * MIB, small=MIB)
    assert [change.broker for change in proxy.changes] == [1]
    after = proxy.seconds(6, SLOW, flood=30 * MIB, small=MIB)
    assert after["small"] == pytest.approx(MIB, rel=0.03)
    assert after["flood"] + after["small"] >= 0.95 * SLOW
    assert proxy.engine.overload.brokers[1].controller.latency < 0.1


def test_who_asks_for_little_may_ask_for_it_late_and_at_once():
    """What it could not send while the broker was slow: as many requests as it likes, of any size, with any acks."""
    proxy = Proxy()
    proxy.seconds(8, SLOW, flood=30 * MIB, small=MIB)
    small, flood = proxy.window("small"), proxy.window("flood")
    assert small.size < MIB, "or all of it would have room"
    for _ in range(3):
        assert small.enter(MIB, pytest.fail).going
        small.owe(MIB, proxy.now, answered=False)
        assert small.pause(proxy.now) == 0.0
    assert not flood.has_room(SIZE)


def test_who_asked_for_little_may_not_flood_from_then_on():
    proxy = Proxy()
    proxy.seconds(8, SLOW, flood=30 * MIB, small=MIB)
    first, second = (proxy.second(SLOW, flood=30 * MIB, small=30 * MIB)["small"] for _ in range(2))
    assert first <= 0.75 * SLOW
    assert second <= 0.65 * SLOW
    after = proxy.seconds(6, SLOW, flood=30 * MIB, small=30 * MIB)
    assert after["small"] == pytest.approx(after["flood"], rel=0.2)


def test_at_brokers_that_keep_up_nobody_waits():
    proxy = Proxy()
    for _ in range(10):
        assert proxy.second(50 * MIB, flood=30 * MIB, small=MIB)["flood"] >= 29 * MIB
        assert not proxy.changes
        assert not proxy.window("flood").limited


def test_a_slow_broker_is_no_reason_to_wait_at_another_one():
    proxy = Proxy()
    proxy.seconds(5, SLOW, flood=30 * MIB)
    assert proxy.window("flood").limited
    assert not proxy.window("flood", 2).limited


def test_it_lets_go_when_the_flood_ends():
    proxy = Proxy()
    proxy.seconds(5, SLOW, flood=30 * MIB, small=MIB)
    proxy.seconds(10, SLOW, flood=MIB / 2, small=MIB / 2)
    assert not proxy.window("flood").limited


def test_shares_go_by_weight_and_a_tenant_is_one_user():
    tenants = Tenants({"payments": Tenant(users=("pay-1", "pay-2"))})
    proxy = Proxy(OverloadOptions(Goal(0.1, 64 * KIB), {"heavy": 2.0}), tenants)
    asked = dict.fromkeys(("heavy", "light", "pay-1", "pay-2"), 30.0 * MIB)
    got = proxy.seconds(12, SLOW, **asked)
    assert got["heavy"] == pytest.approx(2 * got["light"], rel=0.15)
    assert got["pay-1"] + got["pay-2"] == pytest.approx(got["light"], rel=0.15)


def test_a_decision_says_who_is_slowed_down_where():
    proxy = Proxy()
    proxy.seconds(7, SLOW, flood=30 * MIB, small=MIB)
    decision = proxy.engine.overload.waits(proxy.window("flood"), SIZE, (0,), proxy.now).decision
    assert decision is not None
    assert (decision.quota, decision.action, decision.entity.user) == ("overload", Action.THROTTLE, "flood")
    assert "user flood at broker 1" in decision.message
    assert decision.usage > decision.limit
    assert decision.throttle > 0


def test_requests_that_are_larger_than_a_window_do_not_make_a_broker_look_slow():
    """Who fell behind sends large ones, which take long by themselves: windows would get smaller by that, and they fall behind."""
    proxy = Proxy()
    overload, window = proxy.engine.overload, proxy.window("small")
    times = overload.times("small", 1, proxy.total)
    for second in (1.0, 2.0, 3.0):
        window.sent = 100.0 * KIB
        times.add(0.4)
        overload.step(second)
    assert overload.brokers[1].controller.latency == pytest.approx(0.4, rel=0.2)
    window.resize(10.0 * KIB, 0.4, 3.0)
    window.sent = 100.0 * KIB
    times.add(0.4)
    overload.step(4.0)
    assert overload.brokers[1].controller.latency == pytest.approx(0.04, rel=0.2)


def test_everybody_gets_the_least_rate_although_the_broker_answers_nothing():
    proxy = Proxy()
    proxy.seconds(6, SLOW, flood=30 * MIB)
    proxy.queue.clear()
    proxy.queued.clear()
    proxy.second(0.0, flood=30 * MIB)
    for _ in range(5):
        proxy.second(0.0, flood=30 * MIB)
        assert len(proxy.queue) >= 64 * KIB / SIZE
        proxy.queue.clear()
        proxy.queued.clear()


def test_observed_it_is_known_what_would_be_and_nobody_waits():
    proxy = Proxy(OPTIONS, observed={"overload": Action.THROTTLE})
    proxy.seconds(6, SLOW, flood=30 * MIB, small=MIB)
    assert proxy.window("flood").limited
    assert not proxy.window("flood").waiting
    assert not proxy.window("flood").has_room(SIZE)
    proxy.seconds(8, 50 * MIB, flood=30 * MIB, small=MIB)
    assert not proxy.window("flood").limited


def arrive(events: FleetEvents, proxy: Proxy, who: str, event: list[object]) -> None:
    """Another proxy is told something, by way of a store."""
    events.hear(who, [json.loads(json.dumps(event))], 0.0, proxy.now)


@pytest.mark.parametrize("told", [True, False])
def test_behind_two_proxies_a_user_has_what_another_has_behind_one(told):
    """Where they do not tell each other, it has twice as much."""
    here, there = Proxy(), Proxy()
    if told:
        to_here, to_there = FleetEvents(here.engine, lambda: 0.0), FleetEvents(there.engine, lambda: 0.0)
        here.engine.overload.tell = partial(arrive, to_there, there, "here")
        there.engine.overload.tell = partial(arrive, to_here, here, "there")
    both = one = 0.0
    for i in range(20):
        done = second([here, there], SLOW, both=30 * MIB, one=30 * MIB)
        if i >= 12:
            both, one = both + done["both"], one + done["one"]
    assert both + one >= 8 * 0.95 * SLOW
    assert (both < 1.2 * one) == told
    assert both > 0.8 * one


def test_what_others_tell_holds_for_some_seconds_and_nonsense_never():
    proxy = Proxy()
    proxy.seconds(6, SLOW, flood=30 * MIB)
    before = proxy.window("flood").size
    wants = proxy.window("flood").wants
    events = FleetEvents(proxy.engine, lambda: 0.0)
    events.hear("b", [[OVERLOAD, 1, round(before), [["flood", round(3 * wants)]]]], 0.0, proxy.now)
    for event in (["x"], [OVERLOAD, 1, -5, []], [OVERLOAD, 1, 5, [["flood", -1]]], [OVERLOAD, 1, 5, [7]], [OVERLOAD, 99, 5, []]):
        events.hear("c", [event], 0.0, proxy.now)
    assert set(proxy.engine.overload.brokers) == {1}
    proxy.second(SLOW, flood=30 * MIB)
    assert proxy.window("flood").size == pytest.approx(before / 4, rel=0.4)
    proxy.seconds(8, SLOW, flood=30 * MIB)
    assert proxy.window("flood").size == pytest.approx(before, rel=0.4)


def test_it_is_off_unless_it_is_set_and_can_be_switched_while_it_runs():
    engine = Engine(Limits(), murmur3)
    assert Rules(engine, "flood", "app", 0.0, 1).window is None
    total = Durations()
    assert engine.overload.times("flood", 1, total) is total
    engine.change(limits_of(OPTIONS))
    assert Rules(engine, "flood", "app", 0.0, 1).window is not None
    assert Rules(engine, "flood", "app", 0.0, None).window is None, "behind the bootstrap address any broker may be"
    engine.change(Limits())
    assert not engine.overload.brokers


def test_times_of_users_are_added_up_and_kept_of_so_many():
    proxy = Proxy()
    for i in range(3 * MOST):
        proxy.engine.overload.times(f"user-{i}", 1, proxy.total).add(0.01)
    proxy.engine.overload.step(1.0)
    assert sum(proxy.total.counts) == MOST
