"""The overload quota: who is slowed down at a broker that cannot keep up, and that nothing happens at one that does."""

from math import inf

import pytest

from proxy.hashing import murmur3
from quota.decision import Action
from quota.engine import Engine
from quota.entity import Entity
from quota.kinds.overload import MOST, OverloadOptions
from quota.limits import Limits
from quota.overload import Goal
from quota.rules import Rules
from quota.tenants import Tenant, Tenants
from quota.windows.durations import Durations
from tests.support import limits_of, rate_table

KIB, MIB = 1 << 10, 1 << 20
OPTIONS = OverloadOptions(Goal(0.1, 64 * KIB))
SLOW, QUICK = 0.5, 0.01


class Proxy:
    """A proxy whose users produce to brokers as fast as they may, up to what they ask for."""

    def __init__(self, *options: object, **limits: object) -> None:
        self.engine = Engine(limits_of(*(options or (OPTIONS,)), **limits), murmur3)
        self.now = 0.0
        self.total = Durations()
        self.engine.overload.step(self.now)

    def second(self, latency: float, broker: int = 1, **asked: float) -> dict[str, float]:
        """Users ask for so many bytes per second in requests of 16 KiB, each waits as it is told; what they produced."""
        got = dict.fromkeys(asked, 0.0)
        until = dict.fromkeys(asked, 0.0)
        rules = {user: Rules(self.engine, user, "app", self.now, broker) for user in asked}
        start, size = self.now, 16 * KIB
        steps = 100
        for i in range(steps):
            now = start + i / steps
            for user, amount in asked.items():
                rate = rules[user].produce
                assert rate is not None
                while got[user] < amount * (i + 1) / steps and until[user] <= now:
                    got[user] += size
                    if not rate.take(size, now) and (decision := rate.charge(size, now)) is not None:
                        until[user] = now + decision.throttle
        for user in asked:
            self.engine.overload.times(user, broker, self.total).add(latency, 10)
        self.now = start + 1.0
        self.changes = self.engine.overload.step(self.now)
        return got

    def seconds(self, count: int, latency: float, broker: int = 1, **asked: float) -> dict[str, float]:
        """The same, the last of so many."""
        for _ in range(count - 1):
            self.second(latency, broker, **asked)
        return self.second(latency, broker, **asked)


def test_at_a_slow_broker_who_has_more_than_a_share_is_slowed_down_and_nobody_else():
    proxy = Proxy()
    before = proxy.seconds(3, SLOW, flood=20 * MIB, small=MIB)
    assert [change.broker for change in proxy.changes] == [1]
    assert before["flood"] >= 20 * MIB
    after = proxy.seconds(2, SLOW, flood=20 * MIB, small=MIB)
    level = proxy.engine.overload.brokers[1].controller.level
    assert after["small"] >= MIB
    assert level <= after["flood"] + 512 * KIB < 17 * MIB


def test_at_brokers_that_keep_up_nothing_is_decided():
    proxy = Proxy()
    for _ in range(20):
        assert proxy.second(QUICK, flood=20 * MIB, small=MIB)["flood"] >= 20 * MIB
    assert proxy.engine.mutes.active(proxy.now) == {}
    assert not proxy.changes


def test_a_slow_broker_is_no_reason_to_wait_at_another_one():
    proxy = Proxy()
    proxy.seconds(5, SLOW, flood=20 * MIB, small=MIB)
    assert proxy.second(QUICK, broker=2, flood=20 * MIB)["flood"] >= 20 * MIB


def test_it_lets_go_when_the_flood_ends():
    proxy = Proxy()
    proxy.seconds(5, SLOW, flood=20 * MIB, small=MIB)
    proxy.seconds(10, QUICK, flood=MIB / 2, small=MIB / 2)
    assert proxy.engine.overload.brokers[1].controller.level == inf


def test_shares_go_by_weight_and_a_tenant_is_one_user():
    tenants = Tenants({"payments": Tenant(users=("pay-1", "pay-2"))})
    proxy = Proxy(OverloadOptions(Goal(0.1, 64 * KIB), {"heavy": 2.0}), tenants)
    asked = {"heavy": 120.0 * MIB, "light": 60.0 * MIB, "pay-1": 30.0 * MIB, "pay-2": 30.0 * MIB}
    proxy.seconds(3, SLOW, **asked)
    got = dict.fromkeys(asked, 0.0)
    for _ in range(4):
        for user, amount in proxy.second(0.09, **asked).items():
            got[user] += amount
    assert got["heavy"] == pytest.approx(2 * got["light"], rel=0.1)
    assert got["pay-1"] + got["pay-2"] == pytest.approx(got["light"], rel=0.1)


def test_a_decision_says_who_is_slowed_down_where():
    proxy = Proxy()
    proxy.seconds(4, SLOW, flood=20 * MIB, small=MIB)
    rate = Rules(proxy.engine, "flood", "app", proxy.now, 1).produce
    assert rate is not None
    decision = rate.charge(20 * MIB, proxy.now)
    assert decision is not None
    assert (decision.quota, decision.action, decision.entity.user) == ("overload", Action.THROTTLE, "flood")
    assert "user flood at broker 1" in decision.message


def test_other_limits_hold_beside_it():
    proxy = Proxy(OPTIONS, producer_byte_rate=rate_table({Entity("flood", None): MIB}))
    proxy.seconds(12, QUICK, flood=20 * MIB)
    assert proxy.second(QUICK, flood=20 * MIB)["flood"] <= 2 * MIB


def test_observed_it_tells_who_would_be_slowed_down_and_slows_nobody_down():
    proxy = Proxy(OPTIONS, observed={"overload": Action.THROTTLE})
    for _ in range(30):
        assert proxy.second(SLOW, flood=20 * MIB, small=MIB)["flood"] >= 20 * MIB
    assert {decision.entity.user for decision in proxy.engine.would} == {"flood"}
    proxy.seconds(6, QUICK, flood=20 * MIB, small=MIB)
    assert proxy.engine.overload.brokers[1].controller.level == inf


def test_it_is_off_unless_it_is_set_and_can_be_switched_while_it_runs():
    engine = Engine(Limits(), murmur3)
    assert Rules(engine, "flood", "app", 0.0, 1).produce is None
    total = Durations()
    assert engine.overload.times("flood", 1, total) is total
    engine.change(limits_of(OPTIONS))
    assert Rules(engine, "flood", "app", 0.0, 1).produce is not None
    assert Rules(engine, "flood", "app", 0.0, None).produce is None, "behind the bootstrap address any broker may be"
    engine.change(Limits())
    assert not engine.overload.brokers


def test_times_of_users_are_added_up_and_kept_of_so_many():
    proxy = Proxy()
    for i in range(3 * MOST):
        proxy.engine.overload.times(f"user-{i}", 1, proxy.total).add(0.01)
    proxy.engine.overload.step(1.0)
    assert sum(proxy.total.counts) == MOST
