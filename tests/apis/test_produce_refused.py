"""Thresholds of topics (seed s4): single partitions of a request are refused, the rest goes on, and the answers are merged."""

import pytest

from proxy.session.session import State
from quota.decision import Action
from quota.fence import Fence
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.limits import Exempt
from tests.apis.produce_frames import asked, records, told, topic_id, write, written
from tests.support import ANYBODY, World, byte_by_byte, limits_of

LIMITS = TopicLimits(1000, {"orders": 100, "bills": 800})
FIRST_TICK = 5.0
"""The first tick of the meters: rates are known, and both orders and the total are over."""


@pytest.fixture(params=[Mode.TRANSIENT])
def full(world, request) -> World:
    """Orders is over its threshold, and so is the total; bills is not."""
    w = world(topics=LIMITS, topics_mode=request.param)
    for topic in ("orders", "bills"):
        w.cluster.names[topic_id(topic).bytes] = topic
    d = w.dialogue()
    parts = {("orders", 0): records(9000), ("bills", 0): records(1000)}
    d.client(write(parts))
    assert d.to_broker == write(parts)
    d.broker(written(list(parts)))
    assert d.to_client == written(list(parts))
    return w


def fresh(world: World, user: str = "ANONYMOUS"):
    d = world.dialogue(user)
    d.now = FIRST_TICK
    return d


@pytest.mark.parametrize("version", [3, 7, 8, 9, 10, 12, 13])
def test_a_topic_over_its_threshold_is_refused_and_the_rest_goes_on(full, version):
    d = fresh(full)
    d.client(write({("orders", 0): records(100), ("bills", 1): records(200), ("orders", 3): records(300)}, 7, version))
    assert asked(d.to_broker, version) == [("bills", 1)]
    d.broker(written([("bills", 1)], 7, version))
    answer = d.to_client
    assert answer[4:8] == (7).to_bytes(4, "big")
    said = told(answer, version)
    assert {part: code for part, (code, _) in said.items()} == {("orders", 0): 19, ("orders", 3): 19, ("bills", 1): 0}
    if version >= 8:
        message = said["orders", 0][1]
        assert message is not None
        assert "topic orders" in message
        assert "threshold 100" in message
        assert "threshold 1000" in message
    assert d.session.state is State.OPEN, "other topics share the connection"


@pytest.mark.parametrize("version", [3, 9, 13])
def test_a_request_that_is_refused_whole_never_reaches_the_broker(full, version):
    d = fresh(full)
    d.client(write({("orders", 0): records(100)}, 7, version))
    assert d.to_broker == b""
    assert {part: code for part, (code, _) in told(d.to_client, version).items()} == {("orders", 0): 19}
    assert d.session.state is State.OPEN


def test_answers_keep_their_order(full):
    d = fresh(full)
    first, second = write({("bills", 0): records(100)}, 1), write({("orders", 0): records(100)}, 2)
    d.client(first + second)
    assert d.to_broker == first
    assert d.to_client == b"", "the refusal waits for its turn"
    d.broker(written([("bills", 0)], 1))
    answers = d.to_client
    assert answers.startswith(written([("bills", 0)], 1))
    assert told(answers[len(written([("bills", 0)], 1)) :]).keys() == {("orders", 0)}


def test_it_is_all_the_same_when_it_comes_byte_by_byte(full):
    d = fresh(full)
    d.client(*byte_by_byte(write({("orders", 0): records(100), ("bills", 1): records(200)}, 7)))
    assert asked(d.to_broker) == [("bills", 1)]
    d.broker(*byte_by_byte(written([("bills", 1)], 7)))
    assert {code for code, _ in told(d.to_client).values()} == {0, 19}


def test_only_what_is_accepted_counts(full):
    d = fresh(full)
    bytes_in = full.engine.bytes_in
    before = bytes_in.total.count
    d.client(write({("orders", 0): records(100), ("bills", 1): records(200)}, 7))
    d.broker(written([("bills", 1)], 7))
    assert d.to_broker
    assert d.to_client
    assert bytes_in.total.count == before + 200
    assert bytes_in.refused.count == 100
    rows = {(row.key.topic, row.record_bytes) for row in full.rows() if row.key.topic}
    assert rows == {("orders", 9000), ("bills", 1200)}


def test_it_ends_with_the_rate(full):
    d = full.dialogue()
    d.now = 1000.0
    d.client(write({("orders", 0): records(100)}))
    assert d.to_broker == write({("orders", 0): records(100)})
    d.broker(written([("orders", 0)]))
    assert told(d.to_client)["orders", 0] == (0, None)


def test_a_decision_says_which_topic_and_the_operator_sees_it(full):
    d = fresh(full)
    d.client(write({("orders", 0): records(100), ("orders", 1): records(100)}))
    assert d.to_client
    ((decision, requester),) = full.watcher.decisions
    assert (decision.quota, decision.action, str(decision.entity), decision.items) == (
        "bytes_in", Action.REFUSE, "topic orders", (0, 1),
    )  # fmt: skip
    assert (decision.usage, decision.limit, decision.throttle) == (1800, 100, 0)
    assert requester.topics == ("orders",)
    assert sum(row.refused.get("bytes_in", 0) for row in full.rows()) == 2


@pytest.mark.parametrize("full", [Mode.FAIL], indirect=True)
def test_failing_fast_is_an_error_that_no_client_retries(full):
    d = fresh(full)
    d.client(write({("orders", 0): records(100)}))
    assert told(d.to_client)["orders", 0][0] == 44


@pytest.mark.parametrize("full", [Mode.THROTTLE], indirect=True)
def test_slowing_down_takes_everything_and_mutes_the_client(full):
    d = fresh(full)
    frame = write({("orders", 0): records(100), ("bills", 0): records(100)})
    d.client(frame)
    assert d.to_broker == frame
    d.broker(written([("orders", 0), ("bills", 0)]))
    answer = d.to_client
    assert {code for code, _ in told(answer).values()} == {0}
    assert d.session.state is State.MUTED
    ((decision, _),) = full.watcher.decisions
    assert (decision.action, decision.throttle) == (Action.THROTTLE, 30)
    assert full.engine.bytes_in.throttled.count == 100


def test_without_an_answer_the_batch_is_dropped_and_the_connection_closed(full):
    d = fresh(full)
    d.client(write({("orders", 0): records(100), ("bills", 1): records(200)}, acks=0) + write({("bills", 2): records(100)}))
    assert asked(d.to_broker) == [("bills", 1)], "what goes on goes on; nothing behind it is looked at"
    assert d.session.state is State.CLOSED
    assert full.watcher.client_failures == []
    assert len(full.watcher.decisions) == 1


def test_exempt_topics_and_users_are_never_refused(world):
    w = world(topics=TopicLimits(10, {}), exempt=Exempt(users=frozenset({"admin"}), topics=frozenset({"internal"})))
    d = w.dialogue()
    d.client(write({("internal", 0): records(9000)}))
    d.broker(written([("internal", 0)]))
    admin = w.dialogue("admin")
    admin.now = d.now = FIRST_TICK
    admin.client(write({("orders", 0): records(9000)}))
    d.client(write({("internal", 0): records(9000)}))
    assert d.to_broker == write({("internal", 0): records(9000)}) * 2
    assert d.to_client == written([("internal", 0)])
    assert admin.to_broker == write({("orders", 0): records(9000)})
    assert w.engine.bytes_in.total.count == 27000, "they are metered"


# ------------------------------------------------------------------ the fence


def refused_then(full, first: bytes, then: bytes) -> dict[tuple[str, int], tuple[int, str | None]]:
    """A batch is refused, and long after, when the rate is back, this comes."""
    d = fresh(full)
    d.client(write({("orders", 0): first}, 1))
    assert told(d.to_client)["orders", 0][0] == 19
    d.now = 500.0
    d.client(write({("orders", 0): then}, 2))
    if asked_for := d.to_broker:
        assert asked(asked_for) == [("orders", 0)]
        d.broker(written([("orders", 0)], 2))
    return told(d.to_client)


def test_what_is_behind_a_refused_batch_is_refused_until_that_came_again(full):
    code, message = refused_then(full, records(100, 7, 0, 0), records(100, 7, 0, 1))["orders", 0]
    assert code == 19
    assert message is not None
    assert "sequence 0" in message
    decision = full.watcher.decisions[-1][0]
    assert decision.quota == "sequence_fence"
    d = full.dialogue()
    d.now = 501.0
    for sequence in (0, 1):
        d.client(write({("orders", 0): records(100, 7, 0, sequence)}))
        assert d.to_broker, "the refused one came, then those behind it may"
        d.broker(written([("orders", 0)]))
        assert told(d.to_client)["orders", 0] == (0, None)


@pytest.mark.parametrize(
    "then", [records(100, 8, 0, 1), records(100, 7, 1, 0), records(100)], ids=["another producer", "another epoch", "no producer"]
)
def test_the_fence_is_for_that_producer_and_epoch_alone(full, then):
    assert refused_then(full, records(100, 7, 0, 0), then)["orders", 0] == (0, None)


def test_what_is_in_flight_behind_a_refused_batch_is_refused_with_it(full):
    """The dangerous case: a broker that never heard of the producer would take the second batch for the first."""
    d = fresh(full)
    d.client(write({("orders", 0): records(100, 7, 0, 0), ("bills", 0): records(100, 7, 0, 0)}, 1))
    assert asked(d.to_broker) == [("bills", 0)]
    d.client(write({("orders", 0): records(100, 7, 0, 1), ("bills", 0): records(100, 7, 0, 1)}, 2))
    assert asked(d.to_broker) == [("bills", 0)]
    d.broker(written([("bills", 0)], 1), written([("bills", 0)], 2))
    assert d.to_client


def test_a_limit_that_is_raised_or_taken_away_leaves_the_fence(full):
    d = fresh(full)
    d.client(write({("orders", 0): records(100, 7, 0, 0)}, 1))
    assert d.to_client
    full.engine.change(limits_of())
    d.client(write({("orders", 0): records(100, 7, 0, 1)}, 2))
    assert told(d.to_client)["orders", 0][0] == 19
    d.client(write({("orders", 0): records(100, 7, 0, 0)}, 3))
    assert asked(d.to_broker) == [("orders", 0)]
    d.client(write({("orders", 0): records(100, 7, 0, 1)}, 4))
    assert asked(d.to_broker) == [("orders", 0)]


def test_a_refused_batch_of_somebody_else_fences_nobody(full):
    """Producer ids are small numbers: a stranger who claims one, or a higher epoch of it, opens and closes nothing."""
    victim, stranger = fresh(full, "alice"), fresh(full, "mallory")
    stranger.client(write({("orders", 0): records(100, 7, 0, 0)}, 1))
    assert told(stranger.to_client)["orders", 0][0] == 19
    victim.now = 500.0
    victim.client(write({("orders", 0): records(100, 7, 0, 701)}, 2))
    assert asked(victim.to_broker) == [("orders", 0)]
    victim.broker(written([("orders", 0)], 2))
    assert told(victim.to_client)["orders", 0] == (0, None)


def test_a_forged_epoch_does_not_open_the_fence_of_somebody_else(full):
    victim, stranger = fresh(full, "alice"), fresh(full, "mallory")
    victim.client(write({("orders", 0): records(100, 7, 0, 5)}, 1))
    assert told(victim.to_client)["orders", 0][0] == 19
    stranger.client(write({("orders", 0): records(100, 7, 9, 0)}, 1))
    assert told(stranger.to_client)["orders", 0][0] == 19
    victim.client(write({("orders", 0): records(100, 7, 0, 6)}, 2))
    code, message = told(victim.to_client)["orders", 0]
    assert (code, "sequence 5" in (message or "")) == (19, True)


def test_who_has_used_up_the_fences_passes_no_quota_and_hurts_nobody_else(full):
    full.engine.fence = Fence(capacity=9)
    victim, stranger = fresh(full, "alice"), fresh(full, "mallory")
    stranger.client(write({("orders", i): records(100, 1000 + i, 0, 0) for i in range(20)}, 1))
    assert {code for code, _ in told(stranger.to_client).values()} == {19}, "what is not remembered is refused all the same"
    victim.client(write({("orders", 0): records(100, 7, 0, 5)}, 1))
    assert told(victim.to_client)["orders", 0][0] == 19, "there is room to remember it"
    assert len(full.engine.fence) == 9
    victim.now = stranger.now = 500.0
    stranger.client(write({("orders", 0): records(100, 50, 0, 1)}, 2))
    code, message = told(stranger.to_client)["orders", 0]
    assert code == 19
    assert "More batches of user mallory were refused than the proxy remembers" in (message or "")
    assert full.engine.fence.overflows == 13
    victim.client(write({("orders", 0): records(100, 8, 0, 1)}, 2))
    assert victim.to_broker, "others do not notice"
    victim.broker(written([("orders", 0)], 2))
    assert victim.to_client


def test_more_partitions_than_can_be_judged_close_the_connection(full):
    d = fresh(full)
    d.client(write({("orders", i): records(61) for i in range(1001)}))
    assert "1001 partitions" in d.failures[0]


def test_all_kinds_at_once_and_each_says_its_own(world):
    w = world(topics=LIMITS, produce={ANYBODY: 50}, producer_ids={ANYBODY: 1}, requests={ANYBODY: 0.1})
    d = w.dialogue()
    parts = {("orders", 0): records(9000, 7), ("bills", 0): records(1000, 7)}
    d.client(write(parts))
    d.broker(written(list(parts)))
    assert d.to_broker
    assert d.to_client
    w.watcher.decisions.clear()
    d.wake()
    d.now = max(d.now, FIRST_TICK)
    second = w.dialogue()
    second.now = FIRST_TICK
    w.engine.mutes._until.clear()
    second.client(write({("orders", 0): records(100, 8), ("bills", 1): records(200, 8)}, 7))
    assert asked(second.to_broker) == [("bills", 1)]
    second.broker(written([("bills", 1)], 7, throttle_ms=1))
    answer = second.to_client
    said = {decision.quota: decision for decision, _ in w.watcher.decisions}
    assert said.keys() == {"bytes_in", "producer_byte_rate", "producer_ids", "request_rate"}
    assert said["bytes_in"].throttle == 0
    longest = max(decision.throttle for decision in said.values())
    assert read_throttle(answer) == longest == 30
    assert second.session.state is State.MUTED


def read_throttle(answer: bytes) -> float:
    from tests.apis.produce_frames import throttle

    return throttle(answer)
