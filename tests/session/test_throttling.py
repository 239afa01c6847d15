"""Throttle, refuse, hold: the answer first, then nothing is looked at until its time is over (KIP-219, KIP-599)."""

import pytest

from proxy.session.session import State
from quota.decision import Action
from quota.limits import Exempt
from tests.apis.topic_frames import BEAT, FIVE, HEARTBEAT, create, created, described
from tests.messages import correlation_id, read_request, read_response
from tests.support import ALICE, ANYBODY, byte_by_byte


def test_within_the_quota_request_and_answer_pass_as_they_are(world):
    d = world(limits={ANYBODY: FIVE}, knows_nothing=True).dialogue()
    frame, answer = create(7, 1, ("a", 80), ("b", 80)), created(7, 1, "a", "b")
    d.client(frame)
    assert d.port.broker[0] is frame
    d.broker(answer)
    assert d.port.client[0] is answer
    assert (d.to_broker, d.to_client) == (frame, answer)
    assert d.session.state is State.OPEN


def test_nothing_allowed_is_answered_here_with_error_89_and_the_wait(tired):
    d = tired.dialogue()
    d.client(create(7, 9, ("x", 1), ("y", 2)))
    assert d.to_broker == b""
    frame = d.to_client
    answer = read_response(19, 7, frame)
    assert correlation_id(frame) == 9
    assert [(topic.name, int(topic.error_code)) for topic in answer.topics] == [("x", 89), ("y", 89)]
    assert answer.throttle_time.total_seconds() == 12
    assert all("controller mutation quota of user ANONYMOUS" in topic.error_message for topic in answer.topics)
    assert all("5.6" in topic.error_message and "12 s" in topic.error_message for topic in answer.topics)


def test_after_a_refusal_nothing_is_looked_at_until_the_time_is_over(tired):
    d = tired.dialogue()
    d.client(create(7, 9, ("x", 1)))
    assert d.to_client
    assert not d.port.reading
    assert d.port.wake == pytest.approx(12)
    d.client(HEARTBEAT)
    assert d.to_broker == b""
    d.wake()
    assert d.to_broker == HEARTBEAT
    assert d.port.reading


def test_what_was_read_together_with_the_refused_request_waits_too(tired):
    d = tired.dialogue()
    d.client(HEARTBEAT + create(7, 9, ("x", 1)) + HEARTBEAT + HEARTBEAT[:7])
    assert d.to_broker.startswith(HEARTBEAT), "and the proxy's own question"
    assert d.to_client == b"", "the heartbeat is answered first"
    assert not d.port.reading
    d.broker(BEAT + described(12, 9, {"x": 0}))
    got = d.to_client
    assert got.startswith(BEAT)
    assert int(read_response(19, 7, got[len(BEAT) :]).topics[0].error_code) == 89
    assert d.to_broker == b""
    d.wake()
    assert d.to_broker == HEARTBEAT
    d.client(HEARTBEAT[7:])
    assert d.to_broker == HEARTBEAT


def test_a_part_allowed_is_forwarded_and_the_answers_are_merged(world):
    d = world(limits={ANYBODY: FIVE}, knows_nothing=True).dialogue()
    d.client(create(7, 4, *((f"t{i}", 80) for i in range(9))))
    forwarded = read_request(19, 7, d.to_broker)
    assert [topic.name for topic in forwarded.topics] == [f"t{i}" for i in range(7)]
    assert d.session.state is State.AWAITING
    d.broker(created(7, 4, *(f"t{i}" for i in range(7)), throttle_ms=3))
    answer = read_response(19, 7, d.to_client)
    assert [(topic.name, int(topic.error_code)) for topic in answer.topics] == [(f"t{i}", 0) for i in range(7)] + [
        ("t7", 89),
        ("t8", 89),
    ]
    assert answer.throttle_time.total_seconds() == 12
    assert d.port.wake == pytest.approx(12)
    d.client(HEARTBEAT)
    assert d.to_broker == b""
    d.wake()
    assert d.to_broker == HEARTBEAT


def test_a_longer_throttle_of_the_broker_is_what_the_client_is_told(world):
    d = world(limits={ANYBODY: FIVE}, knows_nothing=True).dialogue()
    d.client(create(7, 4, ("a", 560), ("b", 1)))
    assert d.to_broker
    d.broker(created(7, 4, "a", throttle_ms=20_000))
    assert read_response(19, 7, d.to_client).throttle_time.total_seconds() == 20


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_an_old_client_gets_everything_then_is_muted_and_told_why(world, version):
    d = world(limits={ANYBODY: FIVE}, knows_nothing=True).dialogue()
    frame = create(version, 4, ("a", 560), ("b", 40), ("c", 40))
    d.client(frame)
    assert d.to_broker == frame
    d.client(HEARTBEAT)
    assert d.to_broker == b"", "blocked until its answer is out"
    d.broker(created(version, 4, "a", "b", "c"))
    answer = read_response(19, version, d.to_client)
    assert [int(topic.error_code) for topic in answer.topics] == [0, 0, 0]
    assert [topic.error_message is None for topic in answer.topics] == [True, False, False]
    assert "slowed down" in answer.topics[1].error_message
    assert answer.throttle_time.total_seconds() == pytest.approx(20), "what topic c would have waited, the largest"
    d.wake(20.0)
    assert d.to_broker == HEARTBEAT


def test_an_old_client_keeps_the_brokers_own_error(world):
    d = world(limits={ANYBODY: FIVE}, knows_nothing=True).dialogue()
    d.client(create(4, 4, ("a", 560), ("b", 40)))
    assert d.to_broker
    d.broker(created(4, 4, "a", "b", error=36))
    answer = read_response(19, 4, d.to_client)
    assert [(int(topic.error_code), topic.error_message) for topic in answer.topics] == [(36, None), (36, None)]


def test_max_throttle_caps_what_is_told_and_how_long_is_muted(world):
    d = world(limits={ANYBODY: FIVE}, max_throttle=2.5, knows_nothing=True).dialogue()
    d.client(create(7, 4, ("a", 560), ("b", 1)))
    assert d.to_broker
    d.broker(created(7, 4, "a"))
    assert read_response(19, 7, d.to_client).throttle_time.total_seconds() == 2.5
    assert d.port.wake == 2.5


@pytest.mark.parametrize(
    ("exempt", "topic"),
    [
        (Exempt(users=frozenset({"alice"})), "t"),
        (Exempt(clients=frozenset({("alice", "app")})), "t"),
        (Exempt(topics=frozenset({"t"})), "t"),
    ],
    ids=["user", "client id", "topic"],
)
def test_exempt_is_never_limited(world, exempt, topic):
    d = world(limits={ALICE: FIVE}, exempt=exempt).dialogue("alice")
    for i in range(3):
        frame = create(7, i, (topic, 10_000))
        d.client(frame)
        assert d.to_broker == frame
    assert d.world.watcher.decisions == []


def test_who_claims_an_exempt_client_id_has_the_limit_of_its_user(world):
    d = world(limits={ALICE: FIVE}, exempt=Exempt(client_ids=frozenset({"mirror"})), knows_nothing=True).dialogue("alice")
    for i, goes_on in enumerate((True, False)):
        d.client(create(7, i, (f"t{i}", 5000), client_id="mirror"))
        assert bool(d.to_broker) == goes_on
        if goes_on:
            d.broker(created(7, i, f"t{i}"))
        assert d.to_client


def test_validating_only_is_not_charged(tired):
    d = tired.dialogue()
    frame = create(7, 2, ("y", 1000), validate_only=True)
    d.client(frame)
    assert d.to_broker == frame


def test_partitions_left_to_the_broker_cost_its_default(world):
    w = world(limits={ANYBODY: FIVE}, default_partitions=8)
    d = w.dialogue()
    d.client(create(4, 2, ("a", -1), ("b", -1)))
    assert d.to_broker
    d.broker(created(4, 2, "a", "b"))
    assert d.to_client
    assert sum(row.mutations for row in w.rows()) == 16


def test_a_number_of_partitions_that_cannot_be_costs_nothing(world):
    w = world(limits={ANYBODY: FIVE}, default_partitions=8)
    d = w.dialogue()
    d.client(create(7, 2, ("a", 0), ("b", -7)))
    assert d.to_broker
    assert sum(row.mutations for row in w.rows()) == 0


def test_the_same_dialogue_byte_by_byte(world):
    results = []
    for cut in (lambda data: [data], byte_by_byte):
        d = world(limits={ANYBODY: FIVE}, knows_nothing=True).dialogue()
        d.client(*cut(HEARTBEAT + create(7, 4, ("a", 560), ("b", 1)) + HEARTBEAT))
        d.broker(*cut(BEAT + created(7, 4, "a")))
        before = d.to_broker, d.to_client
        d.wake()
        results.append((*before, d.to_broker))
    assert results[0] == results[1]


def test_decisions_are_told_with_who_what_and_why(tired):
    d = tired.dialogue()
    d.client(create(7, 9, ("x", 1), ("y", 2)))
    assert d.to_client
    ((decision, by),) = tired.watcher.decisions
    assert (decision.quota, decision.action, decision.entity, decision.limit) == ("controller_mutations", Action.REFUSE, ANYBODY, 5)
    assert (decision.usage, decision.throttle) == (pytest.approx(5.6), pytest.approx(12))
    assert (by.principal, by.client_id, by.client_address, by.api_key, by.api_version) == (
        "User:ANONYMOUS",
        "app",
        "10.0.0.1:1234",
        19,
        7,
    )
    assert by.topics == ("x", "y")
    (row,) = [row for row in tired.rows() if row.refused]
    assert (row.refused, row.throttle_ms) == ({"controller_mutations": 2}, 12_000)
