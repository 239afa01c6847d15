"""Rates of bytes and requests: the request goes on, its answer tells of the throttle, the client is muted, and whoever shares the
limit waits."""

import itertools
from datetime import timedelta
from random import Random

import pytest

from proxy.session.session import State
from proxy.wire.headers import flexible
from quota.decision import Action
from quota.entity import DEFAULT, Entity
from quota.kinds.producer_ids import Mode as IdMode
from quota.kinds.producer_ids import ProducerIdLimit, user_limit_table
from quota.limits import Exempt
from tests.apis.produce_frames import asked, records, throttle, told, write, written
from tests.apis.topic_frames import HEARTBEAT
from tests.messages import read_response, request, response
from tests.support import ALICE, byte_by_byte, changed, correlation_id_of, limits_of
from tests.wire.test_fetch import fetched

ONE = {("orders", 0): records(1000)}
FETCHES = [4, 7, 11, 12, 15, 16, 18]


def fetch(version: int, number: int = 1) -> bytes:
    return request(1, version, number, chance=Random(1))


def throttled(d, frame: bytes, version: int = 9) -> float:
    """A Produce request goes on; what its client is told."""
    d.client(frame)
    assert d.to_broker == frame
    d.broker(written(asked(frame, version), 1, version))
    return throttle(d.to_client, version)


# ------------------------------------------------------------------ producer_byte_rate


@pytest.mark.parametrize("version", [3, 8, 9, 10, 13])
def test_what_is_above_the_byte_rate_is_waited_for(world, version):
    w = world(produce={ALICE: 100})
    d = w.dialogue("alice")
    assert throttled(d, write(ONE, 1, version), version) == 0, "a burst of ten seconds passes"
    assert throttled(d, write({("orders", 0): records(300)}, 1, version), version) == 3
    assert d.session.state is State.MUTED
    d.client(HEARTBEAT)
    assert d.to_broker == b"", "nothing is looked at meanwhile"
    assert d.port.wake == 3
    d.wake()
    assert d.to_broker == HEARTBEAT
    ((decision, _),) = w.watcher.decisions
    assert (decision.quota, decision.action, decision.entity, decision.limit) == ("producer_byte_rate", Action.THROTTLE, ALICE, 100)


def test_whoever_shares_the_rate_waits_until_it_is_back(world):
    w = world(produce={ALICE: 100})
    first, second, other = w.dialogue("alice"), w.dialogue("alice"), w.dialogue("bob")
    throttled(first, write(ONE))
    assert throttled(first, write({("orders", 0): records(500)})) == 5
    second.now = other.now = 2.0
    second.client(write({("orders", 1): records(200)}))
    assert second.to_broker == b""
    assert (second.session.state, second.port.wake) == (State.HELD, 5)
    second.wake()
    assert second.to_broker
    second.broker(written([("orders", 1)]))
    assert throttle(second.to_client) == 2, "what it held up comes on top"
    assert throttled(other, write(ONE)) == 0


def test_no_throttle_is_longer_than_the_longest_and_what_is_owed_is_not_forgotten(world):
    w = world(produce={ALICE: 100}, max_throttle=30)
    d = w.dialogue("alice")
    assert throttled(d, write({("orders", 0): records(11_000)})) == 30
    d.wake()
    assert d.now == 30
    assert throttled(d, write({("orders", 0): records(100)})) == 30, "100 s were owed, 70 are left"


def test_records_alone_count_and_of_exempt_topics_none(world):
    w = world(produce={ALICE: 100}, exempt=Exempt(topics=frozenset({"internal"}), client_ids=frozenset({"tool"})))
    d = w.dialogue("alice")
    assert throttled(d, write({("internal", 0): records(90_000), ("orders", 0): records(1000)})) == 0
    assert throttled(d, write({("orders", 0): records(100)})) == 1


def test_every_pair_has_the_default_of_its_level(world):
    w = world(produce={Entity(DEFAULT, "app"): 100, Entity(None, "app"): 1})
    for user in ("alice", "bob"):
        assert throttled(w.dialogue(user), write(ONE)) == 0


def test_a_limit_that_changes_holds_for_connections_that_are_there(world):
    w = world(produce={ALICE: 100})
    d = w.dialogue("alice")
    throttled(d, write(ONE))
    w.engine.change(limits_of())
    assert throttled(d, write({("orders", 0): records(90_000)})) == 0
    w.engine.change(world(produce={ALICE: 1000}).engine.limits)
    d.client(write(ONE))
    d.broker(written([("orders", 0)]))
    assert d.to_broker
    assert d.to_client
    assert w.watcher.decisions == []


def test_requests_without_an_answer_mute_at_once(world):
    w = world(produce={ALICE: 100})
    d = w.dialogue("alice")
    d.client(write({("orders", 0): records(1300)}, acks=0))
    assert d.to_broker
    assert (d.session.state, d.port.wake) == (State.MUTED, 3)


# ------------------------------------------------------------------ consumer_byte_rate


@pytest.mark.parametrize("version", FETCHES)
@pytest.mark.parametrize("cut", ["whole", "in two", "byte by byte"])
def test_what_is_above_the_rate_of_a_consumer_comes_whole_and_is_waited_for(world, version, cut):
    w = world(consume={ALICE: 10}, max_held_response=1 << 16 if cut == "whole" else 100, max_throttle=300)
    d = w.dialogue("alice")
    answer = fetched(version, Random(3), ("orders", [500, 700]), endpoints=0)
    at = 8 + flexible(1, version)
    answer = answer[:at] + bytes(4) + answer[at + 4 :]
    pieces = {"whole": [answer], "in two": [answer[:40], answer[40:]], "byte by byte": byte_by_byte(answer)}[cut]
    d.client(fetch(version))
    assert d.to_broker == fetch(version)
    d.broker(*pieces)
    got = d.to_client
    assert len(got) == len(answer)
    before, after = read_response(1, version, answer), read_response(1, version, got)
    assert after.throttle_time.total_seconds() == pytest.approx(len(answer) / 10 - 10, abs=0.002)
    assert after.responses == before.responses, "the records are all there"
    assert d.session.state is State.MUTED
    ((decision, _),) = w.watcher.decisions
    assert (decision.quota, decision.entity) == ("consumer_byte_rate", ALICE)


def test_a_consumer_on_another_connection_waits_before_it_asks(world):
    w = world(consume={ALICE: 10})
    first, second, other = w.dialogue("alice"), w.dialogue("alice"), w.dialogue("bob")
    answer = fetched(11, Random(3), ("orders", [100]))
    first.client(fetch(11))
    first.broker(answer)
    assert first.to_broker
    assert first.to_client
    second.now = other.now = 1.0
    second.client(fetch(11))
    other.client(fetch(11))
    assert other.to_broker == fetch(11)
    assert second.to_broker == b""
    assert second.session.state is State.HELD
    second.wake()
    assert second.to_broker == fetch(11)
    other.broker(answer)
    assert other.to_client == answer


def test_the_next_fetch_after_a_throttled_one_is_not_blocked_by_it(world):
    w = world(consume={ALICE: 10})
    d = w.dialogue("alice")
    answer = fetched(11, Random(3), ("orders", [100]))
    for number in (1, 2):
        d.client(fetch(11, 1))
        assert d.to_broker == fetch(11, 1), number
        d.broker(answer)
        assert d.to_client
        assert d.session.state is State.MUTED
        d.wake()
    small = fetched(11, Random(3))
    d.now = 10_000.0
    d.client(fetch(11) + fetch(11))
    assert d.to_broker == fetch(11) * 2, "within the limit nothing waits for an answer"
    d.broker(small, small)
    assert d.to_client == small * 2


def test_each_of_several_fetches_under_way_tells_of_its_own_throttle(world):
    """Their answers come one behind the other in a read, the middle one begins in it and ends in the next."""
    w = world(consume={ALICE: 100}, max_throttle=300)
    d = w.dialogue("alice")
    large, small = (
        answer[:8] + bytes(4) + answer[12:] for answer in (fetched(11, Random(3), ("a", [2000])), fetched(11, Random(3)))
    )
    d.client(fetch(11) * 3)
    assert d.to_broker == fetch(11) * 3
    d.broker(small + large[:500], large[500:] + small)
    got = d.to_client
    ends = [0, len(small), len(small) + len(large), len(got)]
    told = [read_response(1, 11, got[a:b]).throttle_time.total_seconds() for a, b in itertools.pairwise(ends)]
    assert told == pytest.approx([0.0, (ends[2] - 1000) / 100, (ends[3] - 1000) / 100], abs=0.002)
    assert d.session.state is State.MUTED


# ------------------------------------------------------------------ request_rate


def test_requests_of_any_kind_count_but_those_of_a_login(world):
    w = world(requests={ALICE: 0.5})
    d = w.dialogue().log_in("alice")
    calm = response(12, 4, 77, Random(5), throttle_time=timedelta(0))
    for _ in range(5):
        d.client(HEARTBEAT)
        assert d.to_broker == HEARTBEAT
        d.broker(calm)
        assert d.to_client == calm
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT
    d.broker(calm)
    assert read_response(12, 4, d.to_client).throttle_time == timedelta(seconds=2)
    assert d.session.state is State.MUTED
    second = w.dialogue().log_in("alice")
    second.client(HEARTBEAT)
    assert second.to_broker == b""
    assert (second.session.state, second.port.wake) == (State.HELD, 2)
    second.wake()
    assert second.to_broker == HEARTBEAT
    said = [(decision.quota, decision.action) for decision, _ in w.watcher.decisions]
    assert said == [("request_rate", action) for action in (Action.THROTTLE, Action.HOLD, Action.THROTTLE)]


@pytest.mark.parametrize("cut", [1, 9, 10, 30])
def test_an_answer_in_pieces_tells_of_the_throttle_too(world, cut):
    w = world(requests={ALICE: 0.1})
    d = w.dialogue("alice")
    ask = request(15, 5, 1, chance=Random(4))
    answer = response(15, 5, 1, Random(5), throttle_time=timedelta(0))
    d.client(ask)
    d.broker(answer)
    d.client(ask)
    assert d.to_broker == ask * 2
    d.broker(answer[:cut], answer[cut:])
    got = d.to_client[len(answer) :]
    assert read_response(15, 5, got).throttle_time == timedelta(seconds=10)
    assert read_response(15, 5, got).groups == read_response(15, 5, answer).groups


def test_a_longer_throttle_of_the_broker_is_what_is_told(world):
    w = world(requests={ALICE: 0.1})
    d = w.dialogue("alice")
    answer = response(15, 5, 1, Random(5), throttle_time=timedelta(seconds=77))
    for _ in range(2):
        d.client(request(15, 5, 1, chance=Random(4)))
        d.broker(answer)
    assert d.to_broker
    assert d.to_client == answer * 2


# ------------------------------------------------------------------ requests by kind

METADATA, COMMIT, LIST_OFFSETS = (
    request(3, 9, 1, chance=Random(1)),
    request(8, 8, 1, chance=Random(1)),
    request(2, 6, 1, chance=Random(1)),
)
KINDS_OF_REQUESTS = {
    "group": (HEARTBEAT, 12, 4),
    "commit": (COMMIT, 8, 8),
    "describe": (LIST_OFFSETS, 2, 6),
    "fetch": (fetch(11), 1, 11),
}


def ask(d, frame: bytes, key: int, version: int) -> float:
    """A request goes on and is answered; seconds of the throttle that its client is told."""
    d.client(frame)
    assert d.to_broker == frame
    d.broker(response(key, version, correlation_id_of(frame), Random(5), throttle_time=timedelta(0)))
    answer: timedelta = read_response(key, version, d.to_client).throttle_time
    return answer.total_seconds()


@pytest.mark.parametrize("group", KINDS_OF_REQUESTS)
def test_requests_of_one_kind_are_slowed_down_and_others_are_not(world, group):
    w = world(rates={f"{group}_request_rate": {ALICE: 0.5}})
    d = w.dialogue("alice")
    for other, asked_for in KINDS_OF_REQUESTS.items():
        for _ in range(20 if other != group else 5):
            assert ask(d, *asked_for) == 0
    assert ask(d, *KINDS_OF_REQUESTS[group]) == 2
    assert d.session.state is State.MUTED
    second = w.dialogue("alice")
    second.client(KINDS_OF_REQUESTS[group][0])
    assert (second.to_broker, second.session.state) == (b"", State.HELD), "who shares the rate waits"
    third, kind = w.dialogue("alice"), next(kind for other, kind in KINDS_OF_REQUESTS.items() if other != group)
    assert ask(third, *kind) == 0, "requests of another kind do not"
    assert {decision.quota for decision, _ in w.watcher.decisions} == {f"{group}_request_rate"}


def test_a_request_counts_towards_its_kind_and_towards_all_and_the_longer_throttle_is_told(world):
    w = world(requests={ALICE: 0.1}, rates={"group_request_rate": {ALICE: 0.2}})
    d = w.dialogue("alice")
    assert ask(d, HEARTBEAT, 12, 4) == 0
    assert ask(d, HEARTBEAT, 12, 4) == 10, "2 of 1 at 0.1/s; 2 of 2 at 0.2/s"
    d.wake()
    d.now = 1000.0
    for _ in range(3):
        w.engine.rates["group_request_rate"].charge(w.engine.find(w.engine.rates["group_request_rate"], "alice", ""), (1,), d.now)
    assert ask(d, HEARTBEAT, 12, 4) == 10, "4 of 2 at 0.2/s; 1 of 1 at 0.1/s"
    assert [decision.quota for decision, _ in w.watcher.decisions] == ["request_rate", "group_request_rate"]


def test_the_first_question_for_versions_is_free_and_later_ones_are_metadata(world):
    w = world(rates={"metadata_request_rate": {ALICE: 0.1}})
    d = w.dialogue().log_in("alice")
    versions = request(18, 3, 1, chance=Random(1))
    for muted in (False, False, True):
        d.client(versions)
        assert d.to_broker == versions
        d.broker(response(18, 3, 1, Random(5), throttle_time=timedelta(0)))
        assert d.to_client
        assert (d.session.state is State.MUTED) == muted


# ------------------------------------------------------------------ producer ids: reject and hold_new


def test_new_ids_are_refused_and_known_ones_go_on(world):
    w = world(producer_ids={ALICE: 2}, ids_mode=IdMode.REJECT)
    known = w.dialogue("alice")
    for id in (1, 2):
        assert throttled(known, write({("orders", 0): records(100, id)})) == 0
    d = w.dialogue("alice")
    d.client(write({("orders", 0): records(100, 3)}))
    assert d.to_broker == b""
    answer = d.to_client
    code, message = told(answer)["orders", 0]
    assert code == 19
    assert message is not None
    assert "producer id quota of user alice" in message
    assert throttle(answer) == 30, "a new producer has a connection of its own, and is not to come again at once"
    assert d.session.state is State.MUTED
    for id in (1, 2):
        assert throttled(known, write({("orders", 0): records(100, id, 0, 1)})) == 0
        assert known.session.state is State.OPEN


def test_a_refused_id_is_fenced_until_it_comes_again_from_its_beginning(world):
    w = world(producer_ids={ALICE: 1}, ids_mode=IdMode.REJECT)
    assert throttled(w.dialogue("alice"), write({("orders", 0): records(100, 1)})) == 0
    d = w.dialogue("alice")
    d.client(write({("orders", 0): records(100, 3, 0, 0)}))
    assert told(d.to_client)["orders", 0][0] == 19
    w.engine.change(changed(w.engine.limits, producer_ids=user_limit_table({ALICE: ProducerIdLimit(9, IdMode.REJECT)})))
    d.wake()
    d.client(write({("orders", 0): records(100, 3, 0, 1)}))
    assert d.to_broker == b"", "there is room by now, but its first batch is not written"
    assert told(d.to_client)["orders", 0][0] == 19
    assert throttled(d, write({("orders", 0): records(100, 3, 0, 0)})) == 0


def test_a_fence_stands_when_its_id_is_known_by_another_partition(world):
    """Also for a request like those of an id that this connection had before: it would be recognized."""
    w = world(producer_ids={ALICE: 1}, ids_mode=IdMode.REJECT)
    d = w.dialogue("alice")
    for sequence in (0, 1):
        assert throttled(d, write({("orders", 1): records(100, 1, 0, sequence)})) == 0
    for partition in (0, 1):
        d.client(write({("orders", partition): records(100, 3, 0, 0)}))
        assert told(d.to_client)["orders", partition][0] == 19
        d.wake()
    w.engine.change(changed(w.engine.limits, producer_ids=user_limit_table({ALICE: ProducerIdLimit(9, IdMode.REJECT)})))
    assert throttled(d, write({("orders", 0): records(100, 3, 0, 0)})) == 0, "the id is known from now on"
    d.client(write({("orders", 1): records(100, 3, 0, 1)}))
    assert d.to_broker == b"", "the first batch of this partition is not written"
    assert told(d.to_client)["orders", 1][0] == 19
    for sequence in (0, 1):
        assert throttled(d, write({("orders", 1): records(100, 3, 0, sequence)})) == 0


def test_another_epoch_is_the_same_id_and_a_known_one_may_come_on_any_connection(world):
    w = world(producer_ids={ALICE: 1}, ids_mode=IdMode.REJECT)
    assert throttled(w.dialogue("alice"), write({("orders", 0): records(100, 1, 0, 0)})) == 0
    d = w.dialogue("alice")
    for epoch in (0, 1, 2):
        assert throttled(d, write({("orders", 0): records(100, 1, epoch, 0)})) == 0
    assert w.engine.producer_ids.standing("alice", 0.0).counted == 1


def test_a_refused_producer_that_comes_with_another_epoch_starts_anew(world):
    w = world(producer_ids={ALICE: 1}, ids_mode=IdMode.REJECT)
    throttled(w.dialogue("alice"), write({("orders", 0): records(100, 1)}))
    d = w.dialogue("alice")
    d.client(write({("orders", 0): records(100, 3, 0, 7)}))
    assert told(d.to_client)["orders", 0][0] == 19
    d.wake()
    w.engine.change(changed(w.engine.limits, producer_ids=user_limit_table({ALICE: ProducerIdLimit(9, IdMode.REJECT)})))
    d.client(write({("orders", 0): records(100, 3, 0, 8)}))
    assert told(d.to_client)["orders", 0][0] == 19
    assert throttled(d, write({("orders", 0): records(100, 3, 1, 0)})) == 0


def test_of_one_request_only_the_new_id_is_refused(world):
    w = world(producer_ids={ALICE: 1}, ids_mode=IdMode.REJECT)
    d = w.dialogue("alice")
    assert throttled(d, write({("orders", 0): records(100, 1)})) == 0
    d.client(write({("orders", 0): records(100, 1, 0, 1), ("orders", 1): records(100, 3)}))
    sent = d.to_broker
    assert asked(sent) == [("orders", 0)]
    d.broker(written([("orders", 0)]))
    assert {part: code for part, (code, _) in told(d.to_client).items()} == {("orders", 0): 0, ("orders", 1): 19}


@pytest.mark.parametrize("mode", list(IdMode))
def test_whoever_wants_a_new_id_waits_while_its_user_has_no_more(world, mode):
    w = world(producer_ids={ALICE: 2}, ids_mode=mode, hold_new_ids=True)
    init = request(22, 4, 1, chance=Random(1))
    d = w.dialogue("alice")
    d.client(init)
    assert d.to_broker == init
    for id in (1, 2):
        throttled(w.dialogue("alice"), write({("orders", 0): records(100, id)}))
    second, other = w.dialogue("alice"), w.dialogue("bob")
    second.client(init)
    other.client(init)
    assert other.to_broker == init
    assert second.to_broker == b""
    assert (second.session.state, second.port.wake) == (State.HELD, 10)
    second.wake()
    assert second.to_broker == init, "ten seconds at most"


@pytest.mark.parametrize("version", range(7))
def test_a_producer_that_is_known_gets_another_epoch_at_once(world, version):
    w = world(producer_ids={ALICE: 1}, ids_mode=IdMode.REJECT, hold_new_ids=True)
    throttled(w.dialogue("alice"), write({("orders", 0): records(100, 1)}))
    for id, waits in ((1, version < 3), (2, True), (-1, True)):
        d = w.dialogue("alice")
        init = request(22, version, 1, chance=Random(1), transactional_id="t", **({"producer_id": id} if version >= 3 else {}))
        d.client(init[:9], init[9:])
        assert d.to_broker == (b"" if waits else init)
        assert (d.session.state is State.HELD) == waits


def test_half_an_init_producer_id_closes_the_connection(world):
    w = world(producer_ids={ALICE: 1}, hold_new_ids=True)
    d = w.dialogue("alice")
    whole = request(22, 3, 1, chance=Random(1), transactional_id="t")
    half = whole[4:-20]
    d.client(len(half).to_bytes(4, "big") + half)
    assert (d.to_broker, d.port.closes) == (b"", 1)


@pytest.mark.parametrize("rate", [None, 0.5, 1e6])
@pytest.mark.parametrize("versions", [[12] * 12, [12] * 5 + [13] * 7, [11, 12] * 6])
def test_requests_for_records_that_come_together_are_what_each_is_by_itself(world, versions, rate):
    asking = [request(1, version, n, chance=Random(n)) for n, version in enumerate(versions)]
    answers = [fetched(version, Random(n), ("orders", [100 * n])) for n, version in enumerate(versions)]
    answers = [answer[:4] + n.to_bytes(4, "big") + answer[8:] for n, answer in enumerate(answers)]
    outcomes = []
    for reads in (asking, [b"".join(asking)]):
        w = world(requests={} if rate is None else {ALICE: rate})
        d = w.dialogue("alice")
        d.client(*reads)
        went_on = d.to_broker
        d.broker(*itertools.compress(answers, (end <= len(went_on) for end in itertools.accumulate(map(len, asking)))))
        decided = [(decision.quota, decision.throttle) for decision, _ in w.watcher.decisions]
        outcomes.append((went_on, d.to_client, d.session.state, w.rows(), decided))
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0][2] is State.OPEN) == (rate != 0.5)
    assert (outcomes[0][0] == b"".join(asking)) == (rate != 0.5)
