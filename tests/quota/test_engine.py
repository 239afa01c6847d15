"""Controller mutations topic by topic, throttles and their cap, mutes and holds, what is forgotten and what is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.batch import Batch
from quota.catalogue import FETCH
from quota.decision import Action, Busiest, Decision, Verdict
from quota.engine import MAX_HOLD, Engine
from quota.entity import DEFAULT, Entity
from quota.kinds import controller_mutations
from quota.kinds.controller_mutations import ControllerMutations, MutationLimit, Usage
from quota.kinds.producer_ids import ProducerIdLimit, ProducerIdOptions, user_limit_table
from quota.kinds.rates import RateLimit
from quota.limit_table import LimitTable
from quota.limits import Exempt
from quota.produce import Judging, charge_producer_ids
from quota.rules import Rules
from quota.steps import finish_at_once
from tests.support import charge_mutations, limits_of

ALICE = Entity("alice", None)
FIVE = MutationLimit(5, 500)


def engine(limits: dict[Entity, MutationLimit] | None = None, max_throttle: float = 30.0, exempt: Exempt = Exempt()) -> Engine:  # noqa: B008
    return Engine(
        limits_of(controller_mutations=LimitTable(limits or {ALICE: FIVE}), max_throttle=max_throttle, exempt=exempt), murmur3
    )


def charge(e: Engine, partitions: list[int], now: float, *, refusable: bool = True, user: str = "alice", client_id: str = "app"):
    found = e.find(e.controller_mutations, user, client_id)
    assert found is not None
    return charge_mutations(e, found, partitions, refusable=refusable, now=now)


def test_admission_is_topic_by_topic_and_overshoots_by_the_last_one_at_most():
    verdict = charge(engine(), [80] * 10, 0.0)
    assert verdict.charged == 560
    assert verdict.decision is not None
    assert verdict.decision.items == (7, 8, 9)
    assert (verdict.decision.action, verdict.decision.entity, verdict.decision.limit) == (Action.REFUSE, ALICE, 5)
    assert verdict.decision.usage == pytest.approx(5.6)
    assert verdict.decision.throttle == pytest.approx(12.0)


def test_refused_topics_are_not_recorded():
    e = engine()
    charge(e, [560], 0.0)
    for second in range(1, 10):
        assert charge(e, [10_000], float(second)).charged == 0
    assert charge(e, [1], 11.0).decision is None


def test_an_old_client_gets_everything_recorded_and_the_largest_wait():
    e = engine()
    verdict = charge(e, [560, 40, 40], 0.0, refusable=False)
    assert verdict.charged == 640
    assert verdict.decision is not None
    assert (verdict.decision.action, verdict.decision.items) == (Action.THROTTLE, (1, 2))
    assert verdict.decision.throttle == pytest.approx(20.0), "computed before the last is recorded"
    assert "slowed down" in verdict.decision.message
    assert charge(e, [1], 0.0).decision.usage == pytest.approx(6.4)


def test_what_costs_nothing_is_always_admitted():
    e = engine()
    verdict = charge(e, [560, 0, 5, 0], 0.0)
    assert verdict.decision is not None
    assert verdict.decision.items == (2,)
    assert charge(e, [0, 0], 0.0).decision is None


def test_the_throttle_is_capped_and_debt_beyond_it_throttles_the_next_request():
    e = engine(max_throttle=30.0)
    charge(e, [5000], 0.0)
    first = charge(e, [1], 0.0).decision
    assert first is not None
    assert first.throttle == 30.0
    second = charge(e, [1], 30.0).decision
    assert second is not None
    assert second.throttle > 0


@given(st.lists(st.integers(0, 2**31 - 1), max_size=8), st.floats(0.01, 1e6), st.integers(1, 1000), st.floats(0.1, 3600))
def test_a_throttle_is_positive_and_never_above_the_cap(partitions, rate, windows, cap):
    e = engine({ALICE: MutationLimit(rate, rate * windows)}, max_throttle=cap)
    for now in (0.0, 0.5, 7.0):
        for refusable in (True, False):
            decision = charge(e, partitions, now, refusable=refusable).decision
            assert decision is None or 0 < decision.throttle <= cap


def test_the_message_says_which_quota_whose_usage_limit_and_when():
    e = engine()
    message = charge(e, [560, 1], 0.0).decision.message
    for part in ("controller mutation quota", "user alice", "5.6", "5/s", "500", "12 s", "refused"):
        assert part in message


OF_USERS = (
    *(Entity("alice", "app"), Entity("alice", DEFAULT), Entity("alice", None)),
    *(Entity(DEFAULT, "app"), Entity(DEFAULT, DEFAULT), Entity(DEFAULT, None)),
)
OF_CLIENT_IDS = (Entity(None, "app"), Entity(None, DEFAULT))


def test_numbers_in_a_message_are_written_out():
    e = engine({ALICE: MutationLimit(1000, 2000)}, max_throttle=3600)
    message = charge(e, [4_000_000, 1], 0.0).decision.message
    assert "e+" not in message


@pytest.mark.parametrize(
    ("exempt", "limited"),
    [
        (Exempt(users=frozenset({"alice"})), ()),
        (Exempt(clients=frozenset({("alice", "app")})), ()),
        (Exempt(clients=frozenset({("alice", "other"), ("bob", "app")})), (*OF_USERS, *OF_CLIENT_IDS)),
        (Exempt(users=frozenset({"app"})), (*OF_USERS, *OF_CLIENT_IDS)),
        (Exempt(client_ids=frozenset({"app"})), OF_USERS),
        (Exempt(client_ids=frozenset({"other"})), (*OF_USERS, *OF_CLIENT_IDS)),
    ],
)
def test_who_is_exempt_from_which_limits(exempt, limited):
    """An exempt client id is exempt from limits of client ids alone: whoever claims it has those of its user."""
    for key in (*OF_USERS, *OF_CLIENT_IDS):
        e = Engine(
            limits_of(
                exempt=exempt,
                controller_mutations=LimitTable({key: FIVE}),
                producer_byte_rate=LimitTable({key: RateLimit(5)}),
                consumer_byte_rate=LimitTable({key: RateLimit(5)}),
                request_rate=LimitTable({key: RateLimit(5)}),
            ),
            murmur3,
        )
        rules = Rules(e, "alice", "app", 0.0)
        found = [e.find(e.controller_mutations, "alice", "app"), rules.produce, rules.answers.get(FETCH), rules.request or None]
        assert [it is not None for it in found] == [key in limited] * 4, key


def test_a_muted_entity_is_held_on_other_connections_ten_seconds_at_most():
    e = engine()
    charge(e, [560, 1], 100.0)
    found = e.find(e.controller_mutations, "alice", "other")
    assert found is not None
    holds = [e.hold(e.controller_mutations, found, [0, 2], now) for now in (100.0, 105.0, 111.0)]
    assert [hold.throttle for hold in holds if hold] == pytest.approx([MAX_HOLD, 7.0, 1.0])
    assert {(hold.action, hold.entity, hold.items, hold.limit) for hold in holds if hold} == {(Action.HOLD, ALICE, (0, 2), 5)}
    assert e.hold(e.controller_mutations, found, [0], 112.0) is None
    assert MAX_HOLD == 10.0


def test_a_shorter_throttle_does_not_shorten_a_mute():
    e = engine()
    charge(e, [560, 1], 0.0)
    charge(e, [1], 10.0)
    assert e.mutes.left("controller_mutations", ALICE, 10.0) == pytest.approx(2.0)
    assert e.mutes.active(11.0) == {("controller_mutations", ALICE): pytest.approx(1.0)}


def test_a_hold_says_what_is_left_and_makes_nobody_known():
    e = engine()
    charge(e, [560, 1], 100.0)
    e.controller_mutations.credit(charge(e, [100], 111.0).receipt, [0])
    found = e.find(e.controller_mutations, "alice", "other")
    assert found is not None
    hold = e.hold(e.controller_mutations, found, [0], 111.5)
    assert hold is not None
    assert (hold.usage, hold.left) == (pytest.approx(4.984), pytest.approx(1.6))


def test_where_nothing_tells_of_a_throttle_nobody_is_muted_and_the_units_count_all_the_same():
    e = engine()
    found = e.find(e.controller_mutations, "alice", "app")
    assert found is not None
    verdict = charge_mutations(e, found, [560, 1], refusable=True, now=0.0, mute=False)
    assert verdict.decision is not None
    assert (verdict.charged, verdict.decision.throttle) == (560, pytest.approx(12.0))
    assert e.hold(e.controller_mutations, found, [0], 0.0) is None
    assert charge(e, [1], 0.0).decision is not None
    assert e.hold(e.controller_mutations, found, [0], 0.0) is not None


def test_others_have_windows_and_mutes_of_their_own():
    e = engine({Entity(DEFAULT, None): FIVE})
    charge(e, [560, 1], 0.0)
    assert charge(e, [500], 0.0, user="bob").decision is None
    found = e.find(e.controller_mutations, "bob", "app")
    assert found is not None
    assert e.hold(e.controller_mutations, found, [0], 0.0) is None


def test_all_client_ids_of_a_user_share_the_window_of_a_user_limit():
    e = engine()
    charge(e, [560], 0.0, client_id="one")
    assert charge(e, [1], 0.0, client_id="two").decision is not None


def test_sweeping_forgets_what_has_passed_and_nothing_else():
    e = engine({Entity(DEFAULT, None): FIVE})
    charge(e, [560, 1], 0.0, user="alice")
    charge(e, [560, 1], 90.0, user="bob")
    assert set(e.controller_mutations.usage(90.0)) == {ALICE, Entity("bob", None)}
    e.sweep(99.0)
    assert set(e.controller_mutations.usage(99.0)) == {ALICE, Entity("bob", None)}
    e.sweep(100.0)
    assert set(e.controller_mutations.usage(100.0)) == {Entity("bob", None)}
    assert e.mutes.left("controller_mutations", Entity("bob", None), 100.0) == pytest.approx(2.0)
    assert charge(e, [1], 100.0, user="bob").decision is not None
    assert e.mutes._until.keys() == {("controller_mutations", Entity("bob", None))}
    e.sweep(1000.0)
    assert e.controller_mutations.usage(1000.0) == {}
    assert e.mutes.active(0.0) == {}


@pytest.mark.parametrize("key", [Entity(None, DEFAULT), Entity(DEFAULT, DEFAULT), Entity("mallory", DEFAULT)])
def test_new_client_ids_are_no_way_round_a_limit_and_take_nobodys_window(monkeypatch, key):
    monkeypatch.setattr(controller_mutations, "MAX_ENTITIES", 90)
    quota = ControllerMutations(LimitTable({key: FIVE, Entity("alice", None): FIVE, Entity(None, "named"): FIVE}))

    def charge(user: str, name: str, amount: int) -> Verdict:
        found = quota.find(user, name)
        assert found is not None
        return quota.charge(found, [amount], refusable=True, now=0.0)

    charge("alice", "app", 600)
    for i in range(1000):
        charge("mallory", f"made-up-{i}", 2)
    assert len(quota) == 81, "of 90"
    refused = charge("mallory", "made-up-1001", 1).decision
    assert refused is not None
    assert refused.entity == Entity("mallory", "<others>")
    assert charge("mallory", "made-up-1", 1).decision is None, "who has a window keeps it"
    assert charge("alice", "app", 1).decision is not None, "and others theirs"
    quota.sweep(10_000.0)
    assert len(quota) == 0
    assert quota.find("mallory", "made-up-1001").owner == Entity("mallory", "made-up-1001")


def test_usage_names_average_rate_and_what_is_left():
    e = engine()
    charge(e, [250], 0.0)
    assert e.controller_mutations.usage(0.0) == {ALICE: (2.5, 5, 250)}


def test_the_busiest_use_most_of_their_own_rate(monkeypatch):
    bob, carol = Entity("bob", None), Entity("carol", None)
    e = engine({ALICE: FIVE, bob: MutationLimit(50, 5000), carol: FIVE})
    for user, partitions in (("alice", 200), ("bob", 1000), ("carol", 300)):
        charge(e, [partitions], 0.0, user=user)

    def busiest(count: int, now: float) -> Busiest[Entity, Usage]:
        return finish_at_once(e.controller_mutations.busiest(count, now))

    assert [entity for entity, _ in busiest(9, 0.0).shown] == [carol, ALICE, bob]
    assert busiest(1, 0.0).shown == [(carol, (3.0, 5, 200))]
    assert busiest(0, 0.0) == ([], 0)
    monkeypatch.setattr(controller_mutations, "LOOKED_AT", 2)
    charge(e, [1], 0.0, user="bob")
    assert [entity for entity, _ in busiest(9, 0.0).shown] == [carol, bob], "those that were charged last"


def test_the_default_burst_is_eleven_seconds_of_the_rate():
    assert MutationLimit.of(5, None) == MutationLimit(5, 55)
    assert MutationLimit.of(5, 7) == MutationLimit(5, 7)


# ---------------------------------------------------------------------- producer ids

BOB = Entity("bob", None)


def counting(rate: float = 2, count_unlimited: bool = True, sweep_interval: float = 60.0, exempt: Exempt = Exempt()) -> Engine:  # noqa: B008
    options = ProducerIdOptions(count_unlimited, sweep_interval)
    return Engine(limits_of(options, exempt=exempt, producer_ids=user_limit_table({ALICE: ProducerIdLimit(rate)})), murmur3)


def test_a_throttle_for_producer_ids_is_capped_told_and_mutes():
    e = counting()
    assert charge_producer_ids(e, "alice", [1, 2], 0.0).decision is None
    decision = charge_producer_ids(e, "alice", [3], 0.0).decision
    assert decision is not None
    assert (decision.throttle, e.mutes.left("producer_ids", ALICE, 0.0)) == (30, 30)
    assert e.producer_ids.standing("alice", 0.0).throttle == 30
    assert charge_producer_ids(e, "alice", [4], 0.0, exempt=True).decision is None


def test_only_ids_that_are_new_to_a_user_who_is_muted_and_over_are_held():
    e = counting()
    charge_producer_ids(e, "alice", [1, 2, 3], 0.0)

    def held(user: str, ids: list[int], now: float) -> Decision | None:
        batches = [Batch("orders", True, None, i, 100, id, 0, 0) for i, id in enumerate(ids)]
        return Judging(e, Rules(e, user, "app", now), batches).hold(now)

    hold = held("alice", [1, 4, -1], 25.0)
    assert hold is not None
    assert (hold.quota, hold.action, hold.entity, hold.items, hold.throttle) == ("producer_ids", Action.HOLD, ALICE, (0, 1, 2), 5)
    assert (hold.usage, hold.limit, hold.left) == (3, 2, 0)
    assert held("alice", [1, -1], 25.0) is None
    assert held("alice", [4], 30.0) is None
    assert held("bob", [4], 25.0) is None
    e.mutes.start("producer_ids", ALICE, 4000.0)
    assert held("alice", [4], 3600.0) is None, "the rate is back"


def test_users_of_whom_nothing_is_left_are_looked_for_now_and_then():
    e = counting(sweep_interval=60.0)
    charge_producer_ids(e, "bob", [1], 0.0)
    e.sweep(0.0)
    last = 11 * 3600.0
    e.sweep(last - 30)
    assert len(e.producer_ids) == 1
    e.sweep(last)
    assert len(e.producer_ids) == 1, "thirty seconds after the last look"
    e.sweep(last + 30)
    assert len(e.producer_ids) == 0


def test_ids_that_need_no_look():
    e = counting()
    ids = e.producer_ids
    assert ids.unchecked == -1
    assert not ids.is_calm("alice", 1, 0.0)
    charge_producer_ids(e, "alice", [1], 0.0)
    assert ids.is_calm("alice", 1, 0.0)
    assert not ids.is_calm("alice", 2, 0.0)
    assert not ids.is_calm("alice", 1, 1800.0), "its filter may pass"
    charge_producer_ids(e, "alice", [2, 3], 0.0)
    assert ids.unchecked < -(2**63), "everything of a user who is over is looked at"
    assert not ids.is_calm("alice", 1, 0.0)
    assert not ids.is_calm("alice", -1, 0.0)
    assert ids.is_calm("bob", -1, 0.0)
    e.sweep(3600.0)
    assert ids.unchecked == -1


def test_nobody_is_looked_at_where_nobody_is_counted():
    e = counting(count_unlimited=False)
    charge_producer_ids(e, "bob", [1], 0.0)
    assert len(e.producer_ids) == 0
    assert e.producer_ids.is_calm("bob", 7, 0.0), "known to be of no interest"
    charge_producer_ids(e, "alice", [1], 0.0)
    e.change(limits_of(ProducerIdOptions(count_unlimited=False)))
    assert (len(e.producer_ids), e.producer_ids.unchecked, e.producer_ids.size_bytes) == (0, 2**63 - 1, 0)
    e.change(limits_of(ProducerIdOptions(count_unlimited=False), producer_ids=user_limit_table({BOB: ProducerIdLimit(1)})))
    assert not e.producer_ids.is_calm("bob", 7, 0.0)
    charge_producer_ids(e, "bob", [1, 2], 0.0)
    assert e.mutes.left("producer_ids", BOB, 0.0) > 0


def test_exempt_users_are_counted_without_a_limit():
    e = counting(exempt=Exempt(users=frozenset({"alice"})))
    assert charge_producer_ids(e, "alice", [1, 2, 3], 0.0).charged == 3
    assert (e.mutes.active(0.0), e.producer_ids.unchecked) == ({}, -1)
    assert e.producer_ids.is_calm("alice", 1, 0.0)


def test_users_who_are_counted_no_more_are_not_loaded_either():
    e = counting()
    for user in ("alice", "bob"):
        charge_producer_ids(e, user, [1, 2, 3], 0.0)
    data = e.producer_ids.dump(0.0, 1e9)
    after = counting(count_unlimited=False)
    assert after.producer_ids.load(data, 0.0, 1e9) == 1
    assert after.producer_ids.unchecked < -1, "alice is over"
    assert charge_producer_ids(after, "alice", [1], 0.0).decision is not None


def test_who_has_no_window_has_used_nothing() -> None:
    quota = ControllerMutations(LimitTable({ALICE: FIVE}))
    assert quota.level(ALICE, 0.0) == 0.0
