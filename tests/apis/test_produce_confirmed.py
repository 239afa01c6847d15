"""Topics and bytes are only made of what brokers have confirmed: whoever may not write to a topic, or says a name that is none,
cannot have anybody else refused, and what was not written is given back."""

import pytest

from proxy.apis.produce import MAX_JUDGED
from proxy.apis.produced import MAX_UNSETTLED
from proxy.session.session import State
from quota.decision import Action
from quota.entity import Entity
from quota.kinds.bytes_in import Mode, TopicLimits
from quota.limits import Exempt
from tests.apis.produce_frames import asked, records, throttle, told, topic_id, write, written
from tests.apis.topic_frames import sizes_told
from tests.messages import read_request
from tests.support import ALICE, Dialogue, World, correlation_id_of, last_frame

LIMITS = TopicLimits(1000, {"orders": 500, "bills": 400})
NOT_AUTHORIZED, UNKNOWN_TOPIC, TOO_LARGE = 29, 3, 10
VERSIONS = [3, 7, 8, 9, 10, 12, 13]
NAMES = {topic_id(topic).bytes: topic for topic in ("orders", "bills", "clicks")}


@pytest.fixture(params=[Mode.TRANSIENT])
def cluster(world, request) -> World:
    w = world(topics=LIMITS, topics_mode=request.param, strangers=True)
    w.engine.bytes_in.topics_are(["orders", "bills", "clicks"])
    w.cluster.names.update(NAMES)
    return w


def send(
    d: Dialogue, parts: dict, version: int = 9, errors: dict[str, int] | None = None, number: int = 1
) -> dict[tuple[str, int], tuple[int, str | None]]:
    """A request, the broker's answer to what goes on of it, and what the client is told."""
    d.client(write(parts, number, version))
    if going := d.to_broker:
        d.broker(written(asked(going, version), number, version, errors=errors))
    return told(d.to_client, version)


def refused(d: Dialogue, parts: dict, version: int = 9) -> bool:
    return any(code for code, _ in send(d, parts, version).values())


ORDERS = {("orders", 0): records(100)}


def owner_is_never_refused(w: World, until: int = 400, version: int = 9) -> None:
    """Alice writes 100 bytes a second to orders, whose threshold is 500."""
    owner = w.dialogue("alice")
    for second in range(5, until):
        owner.now = float(second)
        assert not refused(owner, ORDERS, version), f"at {second} s"


# ------------------------------------------------------------------ what the broker refuses


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("error", [NOT_AUTHORIZED, UNKNOWN_TOPIC, TOO_LARGE, 6])
def test_a_batch_that_the_broker_refuses_counts_for_nobody(cluster, version, error):
    stranger = cluster.dialogue("mallory")
    assert send(stranger, {("orders", 0): records(600_000)}, version, {"orders": error})["orders", 0][0] == error
    assert cluster.engine.bytes_in.total.count == 0
    owner_is_never_refused(cluster, 60, version)


def test_nor_while_the_broker_has_not_answered_yet(cluster):
    """A tick of the average passes between the request and its answer."""
    stranger = cluster.dialogue("mallory")
    stranger.client(write({("orders", 0): records(600_000)}))
    assert stranger.to_broker
    owner = cluster.dialogue("alice")
    owner.now = 6.0
    assert not refused(owner, ORDERS)
    owner.now = 11.0
    assert not refused(owner, ORDERS)
    stranger.now = 12.0
    stranger.broker(written([("orders", 0)], errors={"orders": NOT_AUTHORIZED}))
    assert told(stranger.to_client)["orders", 0][0] == NOT_AUTHORIZED
    owner_is_never_refused(cluster, 60)


def test_whoever_goes_away_before_the_answer_counts_against_nobody_else(cluster):
    for _ in range(5):
        stranger = cluster.dialogue("mallory")
        stranger.client(write({("orders", 0): records(600_000)}))
        assert stranger.to_broker
        stranger.session.client_lost()
    owner_is_never_refused(cluster, 20)
    again = cluster.dialogue("mallory")
    again.now = 20.0
    assert refused(again, ORDERS), "what nobody has confirmed is no way round"
    (decision, _) = cluster.watcher.decisions[-1]
    assert (decision.quota, decision.action, decision.throttle) == ("bytes_in", Action.REFUSE, 0)


@pytest.mark.parametrize("cluster", [Mode.THROTTLE], indirect=True)
def test_where_nothing_is_refused_such_a_user_is_slowed_down(cluster):
    stranger = cluster.dialogue("mallory")
    stranger.client(write({("orders", 0): records(600_000)}))
    assert stranger.to_broker
    stranger.session.client_lost()
    again, owner = cluster.dialogue("mallory"), cluster.dialogue("alice")
    again.now = owner.now = 6.0
    again.client(write(ORDERS))
    assert again.to_broker == write(ORDERS)
    again.broker(written([("orders", 0)]))
    assert throttle(again.to_client) == 4, "until the next tick"
    assert again.session.state is State.MUTED
    assert not refused(owner, ORDERS)
    assert owner.session.state is State.OPEN


def test_what_is_written_counts_with_the_answer_and_then_at_once(cluster):
    d, bytes_in = cluster.dialogue("alice"), cluster.engine.bytes_in
    d.client(write(ORDERS, 1))
    assert d.to_broker
    assert bytes_in.total.count == 0
    d.broker(written([("orders", 0)], 1))
    assert told(d.to_client) == {("orders", 0): (0, None)}
    assert bytes_in.total.count == bytes_in.topic("orders", 0.0).count == 100
    d.client(write(ORDERS, 2))
    assert d.to_broker
    assert bytes_in.total.count == 200, "brokers have let it write before"
    d.broker(written([("orders", 0)], 2))
    assert d.to_client
    other = cluster.dialogue("alice")
    other.client(write(ORDERS, 3))
    assert other.to_broker
    assert bytes_in.total.count == 300, "on every connection"
    stranger = cluster.dialogue("mallory")
    stranger.client(write(ORDERS, 4))
    assert stranger.to_broker
    assert bytes_in.total.count == 300, "of that user alone"
    assert {row.key.topic for row in cluster.rows() if row.key.topic} == {"orders"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_writer_whose_batch_fails_later_gets_back_what_was_charged(cluster, version):
    d, bytes_in = cluster.dialogue("alice"), cluster.engine.bytes_in
    for number in (1, 2):
        send(d, ORDERS, version, number=number)
    for number, error in ((3, 0), (4, TOO_LARGE), (5, 0)):
        d.client(write({("orders", 0): records(100 if not error else 50_000)}, number, version))
    assert d.to_broker
    assert bytes_in.total.count == 200 + 100 + 50_000 + 100
    d.now = 7.0
    for number, error in ((3, 0), (4, TOO_LARGE), (5, 0)):
        d.broker(written([("orders", 0)], number, version, errors={"orders": error}))
    assert d.to_client
    assert bytes_in.total.count == bytes_in.topic("orders", 7.0).count == 400
    assert bytes_in.total.measured(7.0) == pytest.approx(80)
    d.client(write(ORDERS, 6, version))
    assert d.to_broker
    assert bytes_in.total.count == 400, "it has to be confirmed anew"
    d.broker(written([("orders", 0)], 6, version))
    assert told(d.to_client, version)
    assert bytes_in.total.count == 500


def test_of_several_topics_those_are_given_back_that_failed(cluster):
    d, bytes_in = cluster.dialogue("alice"), cluster.engine.bytes_in
    parts = {("orders", 0): records(100), ("bills", 0): records(200), ("bills", 1): records(300)}
    send(d, parts)
    assert bytes_in.total.count == 600
    send(d, parts, errors={"orders": NOT_AUTHORIZED})
    assert (bytes_in.total.count, bytes_in.topic("orders", 0.0).count, bytes_in.topic("bills", 0.0).count) == (1100, 100, 1000)
    send(d, parts, errors={"bills-1": 6})
    assert bytes_in.topic("bills", 0.0).count == 1200, "batch by batch, as orders is not confirmed"


def test_of_a_topic_that_was_written_in_part_the_next_request_is_counted_batch_by_batch(cluster):
    """A request within its limits is not taken apart, so nobody knows the bytes of one of its partitions."""
    d, bytes_in = cluster.dialogue("alice"), cluster.engine.bytes_in
    parts = {("bills", 0): records(200), ("bills", 1): records(300)}
    send(d, parts)
    send(d, parts, errors={"bills-1": 6})
    assert bytes_in.total.count == 1000
    send(d, parts, errors={"bills-1": 6})
    assert bytes_in.total.count == 1200


def test_what_is_judged_batch_by_batch_is_given_back_too(cluster):
    d, bytes_in = cluster.dialogue("alice"), cluster.engine.bytes_in
    send(d, {("orders", 0): records(9000), ("bills", 0): records(100)})
    d.now = 5.0
    answer = send(d, {("orders", 0): records(70), ("bills", 0): records(200), ("bills", 1): records(300)}, errors={"bills-1": 6})
    assert {part: code for part, (code, _) in answer.items()} == {("orders", 0): 19, ("bills", 0): 0, ("bills", 1): 6}
    assert bytes_in.total.count == 9300
    assert cluster.engine.confirmed.find("alice", "orders").confirmed, "it was the proxy that refused it"
    assert not cluster.engine.confirmed.find("alice", "bills").confirmed


def test_a_byte_rate_gets_back_what_was_not_written(world):
    w = world(produce={ALICE: 100})
    d = w.dialogue("alice")
    for number in range(1, 4):
        assert send(d, {("orders", 0): records(1000)}, errors={"orders": TOO_LARGE}, number=number)["orders", 0][0] == TOO_LARGE
        assert d.session.state is State.OPEN
    d.client(write({("orders", 0): records(1000)}, 7))
    d.broker(written([("orders", 0)], 7))
    assert d.to_broker
    assert throttle(d.to_client) == 0


def test_a_client_id_that_somebody_else_claims_is_not_charged_for_what_may_not_be_written(world):
    w = world(produce={Entity(None, "app"): 100}, strangers=True)
    stranger, owner = w.dialogue("mallory"), w.dialogue("alice")
    assert send(stranger, {("orders", 0): records(50_000)}, errors={"orders": NOT_AUTHORIZED})["orders", 0][0] == NOT_AUTHORIZED
    assert send(owner, {("orders", 0): records(1000)})["orders", 0] == (0, None)
    assert owner.session.state is State.OPEN
    owner.client(write({("orders", 0): records(300)}, 2))
    owner.broker(written([("orders", 0)], 2))
    assert owner.to_broker
    assert throttle(owner.to_client) == 3


@pytest.mark.parametrize("version", [9, 13])
def test_the_rest_of_an_unconfirmed_request_is_counted_when_it_is_written(cluster, version):
    w = cluster
    send(w.dialogue("alice"), {("orders", 0): records(9000)}, version)
    d = w.dialogue("bob")
    d.now = 5.0
    d.client(write({("orders", 0): records(100), ("bills", 0): records(200), ("bills", 1): records(300)}, 7, version))
    assert asked(d.to_broker, version) == [("bills", 0), ("bills", 1)]
    assert w.engine.bytes_in.total.count == 9000
    d.broker(written([("bills", 0), ("bills", 1)], 7, version, errors={"bills-1": TOO_LARGE}))
    said = told(d.to_client, version)
    assert {part: code for part, (code, _) in said.items()} == {("orders", 0): 19, ("bills", 0): 0, ("bills", 1): TOO_LARGE}
    assert "500" not in (said["orders", 0][1] or ""), "a topic's figures are not told to whom brokers have not let in"
    assert w.engine.bytes_in.total.count == 9200


# ------------------------------------------------------------------ acks=0


def question_behind(d: Dialogue) -> tuple[bytes, bytes]:
    """What the broker got, and the proxy's own question behind it."""
    got = d.to_broker
    at = last_frame(got)
    assert got[at + 4 : at + 8] == b"\0\3\0\x0c"
    assert read_request(3, 12, got[at:]).topics == ()
    return got[:at], got[at:]


def test_without_an_answer_a_question_behind_it_tells_that_it_was_written(cluster):
    d, frame = cluster.dialogue("alice"), write(ORDERS, 5, acks=0)
    d.client(frame)
    before, question = question_behind(d)
    assert before == frame
    assert cluster.engine.bytes_in.total.count == 0
    d.broker(sizes_told(correlation_id_of(question), (), {}, {}))
    assert d.to_client == b"", "the client asked nothing"
    assert cluster.engine.bytes_in.total.count == 100
    d.client(frame + frame)
    assert d.to_broker == frame + frame, "once for each connection"
    assert cluster.engine.bytes_in.total.count == 300
    rows = [row for row in cluster.rows() if row.key.api_key == 0]
    assert {row.response_bytes for row in rows} == {0}


def test_a_broker_that_closes_the_connection_did_not_write_it(cluster):
    for _ in range(3):
        stranger = cluster.dialogue("mallory")
        stranger.client(*[write({("orders", 0): records(200_000)}, acks=0)] * 2)
        assert stranger.to_broker
        stranger.session.broker_lost(None)
    owner_is_never_refused(cluster, 30)


def test_whoever_closes_behind_such_a_request_has_it_written(cluster):
    """A connection to the broker that is closed with an answer on its way is reset: what is not read yet may be lost."""
    d, frame = cluster.dialogue("alice"), write(ORDERS, 5, acks=0)
    d.client(frame + frame + frame)
    before, question = question_behind(d)
    assert before == frame
    d.session.client_ended()
    assert d.port.closes == 0
    d.broker(sizes_told(correlation_id_of(question), (), {}, {}))
    assert d.to_broker == frame + frame
    assert d.port.closes == 1
    assert cluster.engine.bytes_in.total.count == 300


def test_a_throttle_of_such_a_request_begins_with_the_answer_to_the_question(world):
    w = world(topics=LIMITS, requests={ALICE: 0.1}, strangers=True)
    w.engine.bytes_in.topics_are(["orders"])
    d = w.dialogue("alice")
    d.client(write(ORDERS, 5, acks=0) + write(ORDERS, 6, acks=0))
    question_behind(d)
    assert d.session.state is State.AWAITING
    d.broker(sizes_told(5, (), {}, {}))
    assert d.to_broker == write(ORDERS, 6, acks=0)
    assert d.to_client == b""
    assert d.session.state is State.MUTED
    assert w.engine.bytes_in.total.count == 200


# ------------------------------------------------------------------ names


def many(count: int, name: str = "zz{:06}", acks: int = -1) -> bytes:
    return write({(name.format(i), 0): records(61) for i in range(count)}, acks=acks)


def test_made_up_names_take_no_share_and_have_no_meters(world):
    w = world(topics=TopicLimits(100_000, {"orders": 50_000}), strangers=True, max_frame=100 << 20)
    bytes_in = w.engine.bytes_in
    bytes_in.topics_are(["orders", "clicks", "bills"])
    share = bytes_in.share
    stranger, frame = w.dialogue("mallory"), many(500)
    for _ in range(3):
        stranger.client(frame)
        assert stranger.to_broker == frame
        stranger.broker(written(asked(frame), errors={f"zz{i:06}": UNKNOWN_TOPIC for i in range(500)}))
        assert stranger.to_client
    assert (bytes_in.share, list(bytes_in.standings(0.0)), bytes_in.total.count) == (share, [], 0)
    assert not [row for row in w.rows() if row.key.topic]
    assert w.watcher.decisions == []


def test_a_request_of_more_partitions_than_are_looked_at_closes_its_connection(cluster):
    d = cluster.dialogue("mallory")
    d.client(many(MAX_JUDGED + 1))
    assert f"{MAX_JUDGED + 1} partitions" in d.failures[0]
    assert d.to_broker == b""


@pytest.mark.parametrize("strangers", [False, True])
def test_of_many_topics_over_their_thresholds_some_are_told_of_and_the_others_together(world, strangers):
    names = [f"t{i}" for i in range(50)]
    w = world(topics=TopicLimits(100), strangers=True)
    w.engine.bytes_in.topics_are(names)
    owner = w.dialogue("alice")
    send(owner, {(name, 0): records(1000) for name in names})
    d = w.dialogue("mallory" if strangers else "alice")
    d.now = 5.0
    answer = send(d, {(name, p): records(100) for name in names for p in (0, 1)})
    assert {code for code, _ in answer.values()} == {19}
    assert all("Too many bytes in" in (message or "") for _, message in answer.values())
    decisions = [decision for decision, _ in w.watcher.decisions]
    assert len(decisions) == 11
    assert sum(len(decision.items) for decision in decisions) == 100
    assert str(decisions[-1].entity) == "topic <others>"
    assert w.engine.bytes_in.refused.count == 100 * 100


def test_made_up_names_are_told_to_no_operator(world):
    """Whoever is over what is expected of a user is one entity, whatever topics it names."""
    w = world(topics=TopicLimits(100, {"orders": 50}), strangers=True)
    w.engine.bytes_in.topics_are(["orders"])
    d = w.dialogue("mallory")
    d.client(many(20))
    assert d.to_broker
    d.now = 5.0
    d.client(many(20))
    assert d.to_broker == b""
    ((decision, requester),) = w.watcher.decisions
    assert (str(decision.entity), len(decision.items), requester.topics) == ("user mallory", 20, ())


def test_a_topic_that_nobody_told_of_is_there_once_it_was_written_to(world):
    w = world(topics=TopicLimits(1000), strangers=True)
    w.engine.bytes_in.topics_are(["a"])
    send(w.dialogue("alice"), {("b", 0): records(100)})
    assert w.engine.bytes_in.share == 500


def test_memory_of_what_is_not_answered_is_bounded(cluster):
    d, frame = cluster.dialogue("mallory"), many(500)
    d.client(*[frame] * 50)
    got = d.to_broker
    assert len(got) <= (MAX_UNSETTLED + 500) // 500 * len(frame)
    assert d.session.state is State.AWAITING, "the rest is not looked at before there is an answer"
    while got:
        count = len(got) // len(frame)
        for _ in range(count):
            d.broker(written(asked(frame), errors={f"zz{i:06}": UNKNOWN_TOPIC for i in range(500)}))
        assert d.to_client
        got = d.to_broker
    assert d.session.state is State.OPEN
    assert d.session.client.unsettled == 0


def test_confirmed_requests_of_many_topics_are_bounded_too(world):
    w = world(topics=TopicLimits(10**9))
    d, frame = w.dialogue("alice"), many(500)
    d.client(*[frame] * 50)
    assert d.session.state is State.AWAITING
    answers = 0
    while got := d.to_broker:
        for _ in range(len(got) // len(frame)):
            d.broker(written(asked(frame)))
            answers += 1
        assert d.to_client
    assert answers == 50
    assert (d.session.state, d.session.client.unsettled, len(d.session.client.charged)) == (State.OPEN, 0, 0)


def test_exempt_users_count_what_was_written(world):
    w = world(topics=LIMITS, strangers=True, exempt=Exempt(users=frozenset({"admin"})))
    d = w.dialogue("admin")
    send(d, {("orders", 0): records(9000)}, errors={"orders": TOO_LARGE})
    assert w.engine.bytes_in.total.count == 0
    send(d, {("orders", 0): records(9000)})
    assert w.engine.bytes_in.total.count == 9000
