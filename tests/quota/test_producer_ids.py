"""The producer id quota: where it begins, what follows, who is refused, what memory it takes, what a restart keeps."""

from random import Random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.hashing import murmur3
from quota.decision import Action
from quota.entity import DEFAULT, Entity
from quota.kinds import producer_ids
from quota.kinds.producer_ids import (
    MAGIC,
    NAME,
    Mode,
    ProducerIdLimit,
    ProducerIdOptions,
    ProducerIds,
    Windows,
    user_limit_table,
)
from quota.state import BadState, Reader, Writer
from quota.steps import finish_at_once
from tests.properties import examples
from tests.support import limits_of

ALICE = Entity("alice", None)
HOUR = 3600.0


def quota(rate: float | None = None, mode: Mode = Mode.THROTTLE, windows: Windows = Windows()) -> ProducerIds:  # noqa: B008
    return ProducerIds(user_limit_table({} if rate is None else {ALICE: ProducerIdLimit(rate, mode)}), murmur3, windows)


def rejecting(rate: float) -> ProducerIds:
    return quota(rate, Mode.REJECT)


def counted(one: ProducerIds, now: float = 0.0, user: str = "alice") -> int:
    stands = one.standing(user, now)
    return 0 if stands is None else stands.counted


# ---------------------------------------------------------------------- the limit


def test_the_limit_bites_from_the_next_id_after_it_and_throttles_for_the_part_that_is_too_much():
    one = quota(50)
    for id in range(50):
        assert one.count("alice", [id], 0.0).decision is None
    stands = one.standing("alice", 0.0)
    assert (stands.counted, stands.tokens, stands.limit) == (50, 0, 50)
    verdict = one.count("alice", [50], 0.0)
    assert verdict.charged == 1
    decision = verdict.decision
    assert (decision.quota, decision.action, decision.entity) == ("producer_ids", Action.THROTTLE, ALICE)
    assert (decision.usage, decision.limit, decision.left) == (51, 50, 0)
    assert decision.throttle == pytest.approx(HOUR / 50)
    assert one.standing("alice", 0.0).tokens == -1
    assert one.count("alice", range(51, 100), 0.0).decision.throttle == pytest.approx(HOUR), "not capped here"


def test_over_the_limit_every_produce_of_the_user_is_throttled_until_the_rate_is_back():
    one = quota(2)
    one.count("alice", [1, 2], 0.0)
    one.count("alice", [3], 1800.0)
    for ids in ([1], [3, 3], [-1], [], [9]):
        verdict = one.count("alice", ids, 3599.0)
        assert verdict.decision.items == tuple(range(len(ids)))
    assert one.count("alice", [3], 3600.0).decision is None, "1 and 2 are past, 3 and 9 are left"
    assert counted(one, 3600.0) == 2


def test_a_known_id_is_not_counted_again_whatever_its_epoch_and_ids_below_zero_never_are():
    one = quota(2)
    assert one.count("alice", [7, -1, 7, 7], 0.0).charged == 1
    for now in range(0, 1800, 100):
        assert one.count("alice", [7, -1], now).charged == 0
    assert one.count("bob", [-1, -1, -5], 0.0).charged == 0
    assert one.count("bob", [], 0.0).charged == 0
    assert len(one) == 1


def test_an_id_that_was_seen_a_moment_ago_is_new_again_once_its_filter_is_past():
    one = quota(2)
    assert [now for now in range(0, 4 * 3600, 10) if one.count("alice", [7], now).charged] == [0, 3600, 7200, 10800]


def test_it_is_per_user_and_client_ids_have_no_limit_of_their_own():
    limits = user_limit_table({ALICE: ProducerIdLimit(1), Entity(DEFAULT, None): ProducerIdLimit(2)})
    one = ProducerIds(limits, murmur3)
    for id in range(3):
        one.count("alice", [id], 0.0)
        one.count("bob", [id], 0.0)
    assert (one.standing("alice", 0.0).tokens, one.standing("bob", 0.0).tokens) == (-2, -1)
    assert one.find("bob") == (ProducerIdLimit(2), Entity("bob", None))
    with pytest.raises(ValueError, match="client-id app"):
        user_limit_table({Entity("alice", "app"): ProducerIdLimit(1)})


def test_users_without_a_limit_and_exempt_clients_are_counted_and_nothing_follows():
    one = quota(2, Mode.REJECT)
    for id in range(5000):
        assert one.count("bob", [id], 0.0) == (one.count("alice", [id], 0.0, exempt=True))
    stands = one.standing("bob", 0.0)
    assert 4950 <= stands.counted <= 5000
    assert stands.active == pytest.approx(5000, rel=0.01)
    assert (stands.limit, stands.tokens, stands.overfull) == (None, float("inf"), False)
    assert stands.rate == stands.counted / 36000
    assert one.count("alice", [10**6], 0.0).decision.action is Action.REFUSE


def test_another_limit_holds_at_once_and_what_was_counted_stays():
    one = quota(10)
    one.count("alice", range(5), 0.0)
    one.limits = user_limit_table({ALICE: ProducerIdLimit(4)})
    assert one.count("alice", [0], 0.0).decision.throttle == pytest.approx(HOUR / 4)
    one.limits = user_limit_table({})
    assert one.count("alice", [0], 0.0).decision is None


def test_who_is_active_when_throttle_becomes_reject_keeps_its_place():
    one = quota(2)
    one.count("alice", [1, 2], 0.0)
    one.count("alice", [1, 2], 1800.0)
    one.limits = rejecting(2).limits
    assert one.count("alice", [1, 2], 1900.0).decision is None
    assert one.count("alice", [3], 3600.0).decision.action is Action.REFUSE
    assert one.count("alice", [1, 2], 3601.0) == one.count("bob", [], 3601.0)


def test_messages_say_whose_how_much_and_the_limit():
    one, other = quota(1), rejecting(1)
    for which in (one, other):
        which.count("alice", [1], 0.0)
    message = one.count("alice", [2], 0.0).decision.message
    for part in ("producer id quota", "user alice", "exceeded", "2 new producer ids", "3600 s", "limit 1", "slowed down"):
        assert part in message
    message = other.count("alice", [2], 0.0).decision.message
    for part in ("producer id quota", "user alice", "1 producer ids", "limit 1", "refused"):
        assert part in message


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
def test_a_limit_has_to_be_above_zero(rate):
    with pytest.raises(ValueError, match="above 0"):
        ProducerIdLimit(rate)


def test_metrics_tell_rate_tokens_and_average_throttle():
    one = quota(2)
    one.count("alice", [1, 2, 3], 100.0)
    one.told("alice", 30.0, 100.0)
    one.told("alice", 10.0, 200.0)
    one.told("nobody", 10.0, 200.0)
    stands = one.standing("alice", 100.0 + 11 * 3600 - 1)
    assert stands.rate == pytest.approx(3 / (11 * 3600 - 1))
    assert (stands.throttle, stands.tokens, stands.counted) == (20.0, 2, 0)
    assert one.standing("nobody", 0.0) is None


def test_the_busiest_are_those_nearest_to_their_limit_then_those_with_most_ids():
    one = ProducerIds(user_limit_table({ALICE: ProducerIdLimit(10), Entity("bob", None): ProducerIdLimit(2)}), murmur3)
    for user, ids in (("alice", 3), ("bob", 1), ("carol", 7), ("dave", 9)):
        one.count(user, range(ids), 0.0)
    assert [name for name, _ in finish_at_once(one.busiest(3, 0.0)).shown] == ["bob", "alice", "dave"]


# ---------------------------------------------------------------------- reject


def test_reject_refuses_only_batches_with_new_ids_and_does_not_remember_them():
    one = rejecting(2)
    verdict = one.count("alice", [1, 2, 3, 1, 3, 4, -1], 0.0)
    assert verdict.charged == 2
    decision = verdict.decision
    assert (decision.action, decision.items, decision.usage, decision.left) == (Action.REFUSE, (2, 4, 5), 2, 0)
    assert decision.throttle == pytest.approx(2 / 2 * HOUR), "3 and 4 are too many"
    for _ in range(3):
        assert one.count("alice", [3], 10.0).decision.items == (0,)
        assert one.count("alice", [2, 1, -1], 10.0).decision is None
    assert counted(one, 10.0) == 2
    assert one.count("alice", [3], 3600.0).charged == 1, "new the next time, when there is room"


def test_reject_lets_a_live_id_keep_its_place_however_many_newcomers_there_are():
    one, newcomer = rejecting(2), 100
    for now in range(0, 20 * 3600, 600):
        for _ in range(3):
            newcomer += 1
            verdict = one.count("alice", [newcomer], now) if now else None
            assert verdict is None or verdict.decision.action is Action.REFUSE
        assert one.count("alice", [1, 2], now).decision is None
    assert counted(one, now) == 2


def test_reject_gives_the_place_of_who_is_gone_to_a_newcomer_within_a_window():
    one = rejecting(2)
    one.count("alice", [1, 2], 0.0)
    admitted = None
    for now in range(0, 7200, 100):
        one.count("alice", [1], now)
        if admitted is None and one.count("alice", [3], now).charged:
            admitted = now
    assert admitted == 3600


def test_a_limit_that_is_no_whole_number_admits_what_is_below():
    for one, most in ((rejecting(2.5), 2), (quota(2.5), 2)):
        assert [one.count("alice", [id], 0.0).decision is None for id in range(4)] == [id < most for id in range(4)]


# ---------------------------------------------------------------------- beside exact sets

STEPS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 3, 9, 10, 11, 25]), st.sampled_from(["a", "b"]), st.lists(st.integers(-1, 12), max_size=4)),
    max_size=80,
)
"""(seconds to the next request, user, its ids); the window has 20 seconds"""


@given(STEPS, st.integers(1, 6), st.sampled_from(Mode))
@examples(400)
def test_what_was_seen_lately_makes_no_difference(steps, rate, mode):
    """The same with a memory of recent ids, with a tiny one, and without."""
    limits, now = user_limit_table({Entity(DEFAULT, None): ProducerIdLimit(rate, mode)}), 0
    windows = Windows(20, 11, 1e-9)
    usual, never = ProducerIds(limits, murmur3, windows), ProducerIds(limits, murmur3, windows)
    for passed, user, ids in steps:
        now += passed
        never._recent.clear()
        assert usual.count(user, ids, now) == never.count(user, ids, now)
        assert counted(usual, now, user) == counted(never, now, user)


@given(STEPS, st.integers(1, 6))
@examples(400)
def test_reject_never_remembers_more_than_the_limit_and_never_refuses_who_is_known(steps, rate):
    one = ProducerIds(user_limit_table({Entity(DEFAULT, None): ProducerIdLimit(rate, Mode.REJECT)}), murmur3, Windows(20, 11, 1e-9))
    now, last = 0, {}
    for passed, user, ids in steps:
        now += passed
        decision = one.count(user, ids, now).decision
        refused = set() if decision is None else {ids[i] for i in decision.items}
        assert counted(one, now, user) <= rate
        for id in ids:
            if id >= 0 and now - last.get((user, id), -100) < 10:
                assert id not in refused
        last |= {(user, id): now for id in ids if id >= 0 and id not in refused}


@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_beside_exact_sets_it_counts_no_more_and_hardly_less(rate):
    """Without what was seen lately, as that has no false positives."""
    random, one, windows = Random(5), quota(windows=Windows(3600, 11, rate)), 3
    for window in range(windows):
        real = {random.getrandbits(40) for _ in range(10_000)}
        for id in real:
            one.count("alice", [id], window * 7200.0)
        assert len(real) * (1 - rate) <= counted(one, window * 7200.0) < len(real)


# ---------------------------------------------------------------------- memory


def test_who_was_charged_longest_ago_is_forgotten_first(monkeypatch):
    monkeypatch.setattr(producer_ids, "MAX_USERS", 3)
    one = quota()
    for user in ("a", "b", "c", "a", "d"):
        one.count(user, [1], 0.0)
    assert set(one.usage(0.0)) == {"a", "c", "d"}
    assert one.size_bytes == sum(known.seen.size_bytes for known in one._users.values())


def test_beyond_the_bytes_filters_do_not_grow_and_small_users_still_find_room(monkeypatch):
    monkeypatch.setattr(producer_ids, "MAX_BYTES", 40_000)
    one = ProducerIds(user_limit_table({ALICE: ProducerIdLimit(100)}), murmur3)
    for id in range(30_000):
        one.count("hog", [id], 0.0)
    assert one.size_bytes <= 20_000, "nobody takes more than what is left free"
    assert one.standing("hog", 0.0).overfull
    assert one.standing("hog", 0.0).counted < 30_000
    for id in range(2000):
        one.count("bob", [id], 0.0)
    assert counted(one, user="bob") > 1990
    assert not one.standing("bob", 0.0).overfull
    for id in range(101):
        decision = one.count("alice", [id], 0.0).decision
    assert decision is not None, "limits hold nevertheless"
    for user in range(100):
        for id in range(600):
            one.count(f"user {user}", [id], 0.0)
    least = 103 * 2 * one._users["alice"].seen.size_bytes
    assert one.size_bytes <= 40_000 + least
    assert one.size_bytes == sum(known.seen.size_bytes for known in one._users.values())
    one.sweep(1800.0)
    assert one.size_bytes > 0
    one.sweep(3600.0)
    assert one.size_bytes == 0
    for id in range(2000):
        one.count("hog", [id], 4000.0)
    assert counted(one, 4000.0, "hog") > 1990, "what was past made room"


def test_what_was_seen_lately_is_bounded(monkeypatch):
    monkeypatch.setattr(producer_ids, "MAX_RECENT", 100)
    one = quota()
    for id in range(1000):
        one.count(f"user {id % 7}", [id % 300], 0.0)
        assert len(one._recent) <= 100
    assert sum(stands.counted for stands in one.usage(0.0).values()) == 1000


def test_two_users_with_the_same_id_are_counted_both_and_each_once():
    one = quota()
    for _ in range(3):
        for user in ("alice", "bob"):
            one.count(user, [7], 0.0)
    assert (counted(one), counted(one, user="bob")) == (1, 1)


def test_a_sweep_drops_what_is_past_and_users_of_whom_nothing_is_left():
    one = quota()
    one.count("alice", [1], 0.0)
    one.told("alice", 1.0, 7200.0)
    one.sweep(3600.0)
    assert one.size_bytes == 0
    assert one.standing("alice", 3600.0).rate > 0, "metrics remember for eleven samples"
    one.sweep(11 * HOUR)
    assert len(one) == 1
    one.sweep(11 * HOUR + 7200.0)
    assert len(one) == 0


def test_time_that_goes_back_does_no_harm():
    one = quota(2)
    one.count("alice", [1], 5000.0)
    assert one.count("alice", [1, 2], 10.0).charged == 1
    assert counted(one, 10.0) == 2


# ---------------------------------------------------------------------- a restart


def busy() -> ProducerIds:
    one = quota(100)
    for now, user, ids in ((0.0, "bob", range(700)), (1000.0, "alice", range(60)), (3000.0, "alice", range(50, 101))):
        for id in ids:
            one.count(user, [id], now)
    return one


def test_a_restart_keeps_what_was_counted_and_when_it_passes():
    """Monotonic times begin anew, the wall clock goes on."""
    before, after = busy(), quota(100)
    data = before.dump(3100.0, wall=1.8e9)
    assert after.load(data, 5.0, wall=1.8e9 + 100) == 2
    shift = 3200.0 - 5.0
    for now in (3200.0, 3599.0, 4599.0, 4600.0):
        for user in ("alice", "bob"):
            assert after.standing(user, now - shift) == pytest.approx(before.standing(user, now), nan_ok=True), (now, user)
        for id in (0, 50, 100, 101):
            assert after.count("alice", [id], now - shift) == before.count("alice", [id], now)
    assert after.size_bytes == sum(known.seen.size_bytes for known in after._users.values())
    assert list(after._users) == list(before._users)


def test_what_passed_while_it_was_away_is_not_counted():
    after = quota(100)
    assert after.load(busy().dump(3100.0, 1.8e9), 0.0, 1.8e9 + 3600) == 2, "for the rate"
    assert (counted(after), after.size_bytes) == (0, 0)
    assert quota(100).load(busy().dump(3100.0, 1.8e9), 0.0, 1.8e9 + 11 * 3600) == 0


@pytest.mark.parametrize("jump", [-1e9, -100.0])
def test_a_wall_clock_that_was_set_back_keeps_nothing_longer_than_a_window(jump):
    after = quota(100)
    after.load(busy().dump(3100.0, 1.8e9), 0.0, 1.8e9 + jump)
    assert counted(after) == 101
    assert counted(after, 3600.0) == 0


def test_users_who_were_charged_since_the_start_keep_what_they_have():
    after = quota(100)
    after.count("alice", [7, 8], 0.0)
    assert after.load(busy().dump(3100.0, 1.8e9), 0.0, 1.8e9) == 1
    assert (counted(after), counted(after, user="bob")) == (2, 700)
    assert list(after._users) == ["bob", "alice"]


def test_a_state_is_loaded_as_far_as_there_is_room_the_latest_users_first(monkeypatch):
    one = quota()
    for user in "abcdef":
        one.count(user, [1], 0.0)
    data = one.dump(0.0, 0.0)
    after = quota()
    monkeypatch.setattr(producer_ids, "MAX_BYTES", 3 * one._users["a"].seen.size_bytes)
    assert after.load(data, 0.0, 0.0) == 3
    assert list(after._users) == ["d", "e", "f"]
    monkeypatch.setattr(producer_ids, "MAX_USERS", 5)
    with pytest.raises(BadState, match="5 is the most"):
        quota().load(data, 0.0, 0.0)


def small() -> bytes:
    one = quota(5)
    for now in (0.0, 1800.0):
        one.count("alice", [int(now), 2, 3], now)
    return one.dump(1900.0, 1.8e9)


def test_every_cut_and_every_changed_byte_is_refused_and_nothing_that_runs_is_lost():
    data, one = small(), quota(5)
    one.count("alice", [1, 2, 3, 4], 0.0)
    before = one.standing("alice", 0.0), one.size_bytes, len(one)
    for at in range(len(data)):
        for wrong in (data[:at], data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]):
            with pytest.raises(BadState):
                one.load(wrong, 0.0, 1.8e9)
    for wrong in (data + b"x", b"", data[1:], data * 2):
        with pytest.raises(BadState):
            one.load(wrong, 0.0, 1.8e9)
    assert (one.standing("alice", 0.0), one.size_bytes, len(one)) == before
    assert one.load(data, 0.0, 1.8e9) == 0
    assert quota(5).load(data, 0.0, 1.8e9) == 1


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (ProducerIds(user_limit_table({}), murmur3, Windows(1800)), "seconds=3600"),
        (ProducerIds(user_limit_table({}), murmur3, Windows(false_positives=0.02)), "false_positives=0.01"),
        (ProducerIds(user_limit_table({}), lambda id: (id, id)), "hashed"),
    ],
)
def test_a_state_of_other_windows_or_another_hash_is_refused(other, why):
    with pytest.raises(BadState, match=why):
        other.load(small(), 0.0, 1.8e9)


def test_another_version_or_too_large_a_state_is_refused(monkeypatch):
    with pytest.raises(BadState, match="version"):
        quota().load(small().replace(MAGIC, MAGIC.replace(b"1", b"2")), 0.0, 0.0)
    monkeypatch.setattr(producer_ids, "MAX_STATE", 100)
    with pytest.raises(BadState, match="100 at most"):
        quota().load(small(), 0.0, 0.0)


def sealed(body: bytes) -> bytes:
    out = Writer()
    out.bits(body)
    return out.sealed(MAGIC)


BODY = small()[len(MAGIC) : -32]


@given(
    st.lists(st.tuples(st.integers(0, len(BODY) - 8), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4),
    st.integers(0, 40),
)
@examples(500)
def test_a_forged_state_is_refused_or_does_no_harm(changes, cut):
    body = bytearray(BODY)
    for at, data in changes:
        body[at : at + len(data)] = data
    one = quota(5)
    try:
        one.load(sealed(bytes(body[: len(body) - cut])), 0.0, 1.8e9)
    except BadState:
        assert len(one) == 0
        return
    for now in (0.0, 1000.0, 2000.0, 5000.0):
        one.count("alice", range(20), now)
        one.usage(now)
        one.dump(now, 1.8e9)


@pytest.mark.parametrize("at", range(0, len(BODY) - 8, 4))
def test_no_number_of_a_forged_state_makes_it_allocate_or_fail(at):
    for value in (pack(">Q", 2**64 - 1), pack(">Q", 31), pack(">d", float("inf")), pack(">d", -1e308), bytes(8)):
        one = quota(5)
        try:
            one.load(sealed(BODY[:at] + value + BODY[at + 8 :]), 0.0, 1.8e9)
        except BadState:
            continue
        one.usage(0.0)
        one.count("alice", range(20), 2000.0)


def test_names_of_any_kind_survive():
    one, after = quota(), quota()
    for name in ("", "CN=ä,O=\u4e16", "\udcff", "x" * 40_000):
        one.count(name, [1], 0.0)
    after.load(one.dump(0.0, 0.0), 0.0, 0.0)
    assert list(after._users) == list(one._users)


def test_a_reader_takes_what_is_there_and_nothing_else():
    out = Writer()
    out.number(5)
    out.real(0.5)
    out.text("a")
    data = out.sealed(b"kind 1")
    source = Reader(data, b"kind 1", len(data))
    assert (source.number(), source.real(), source.text(), source.left) == (5, 0.5, "a", 0)
    source.end()
    with pytest.raises(BadState, match="early"):
        source.number()
    with pytest.raises(BadState, match="behind"):
        Reader(data, b"kind 1", len(data)).end()


def test_a_client_that_waits_for_a_producer_id_is_told_why_and_what_is_left() -> None:
    ids = ProducerIds(user_limit_table({ALICE: ProducerIdLimit(2)}), murmur3)
    assert ids.wait_for_room("alice", -1, 10.0, 0.0) is None
    ids.count("alice", [1, 2], 0.0)
    wait = ids.wait_for_room("alice", -1, 10.0, 0.0)
    assert wait is not None
    assert (wait.action, wait.usage, wait.limit, wait.throttle, wait.left) == (Action.HOLD, 2, 2, 10.0, 0.0)
    assert wait.message == "user alice has used up its producer id quota: a new id waits for 10 s."
    assert ids.wait_for_room("alice", 1, 10.0, 0.0) is None, "it has one that is known, and gets another epoch"


@pytest.mark.parametrize(("options", "observed", "waits"), [((True,), (), True), ((True,), (NAME,), False), ((False,), (), False)])
def test_new_ids_wait_where_settings_say_so_and_the_quota_is_enforced(options, observed, waits):
    ids = quota()
    ids.configure(limits_of(ProducerIdOptions(hold_new=options[0]), observed=dict.fromkeys(observed, Action.HOLD)))
    assert ids.hold_new == waits
    ids.configure(limits_of())
    assert not ids.hold_new
