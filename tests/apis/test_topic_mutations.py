"""What a request charges to the controller mutation quota, and what the broker is asked for it (seed s1, KIP-599)."""

import uuid

import pytest

from proxy.session.session import State
from quota.entity import Entity
from quota.kinds.controller_mutations import MutationLimit
from tests.apis.topic_frames import (
    BEAT,
    FIVE,
    HEARTBEAT,
    create,
    created,
    delete,
    deleted,
    described,
    grow,
    grown,
    metadata,
    sizes_told,
)
from tests.messages import read_request, read_response
from tests.support import ANYBODY, byte_by_byte, correlation_id_of

ID = uuid.UUID(int=77)
EVERYBODY = Entity("<default>", None)


def used(world, now: float = 0.0, user: str = "ANONYMOUS") -> int:
    """Partitions that the window of a user holds, the same for all of `FIVE`."""
    found = world.engine.find(world.engine.controller_mutations, user, "app")
    return round(world.engine.controller_mutations.average(found, now) * 100)


@pytest.fixture
def tired(tired):
    """Here every question is answered by the test."""
    tired.knows_nothing = False
    return tired


@pytest.fixture
def five(world):
    return world(limits={ANYBODY: FIVE})


# ---------------------------------------------------------------------- what a topic costs


@pytest.mark.parametrize("version", range(1, 7))
def test_deleting_costs_the_partitions_that_are_there(five, version):
    d = five.dialogue()
    frame, answer = delete(version, 4, "a", "b", "gone"), deleted(version, 4, "a", "b")
    d.client(frame)
    assert d.session.state is State.ASKING
    assert d.told({"a": 7, "b": 3}) == b""
    assert d.to_broker == frame, "it goes on as it came"
    assert d.to_client == b"", "nobody asked for the answer to the proxy's question"
    d.broker(answer)
    assert d.to_client == answer
    assert used(five) == 10
    assert sum(row.mutations for row in five.rows()) == 10


def test_deleting_by_id_costs_the_same(five):
    d = five.dialogue()
    frame = delete(6, 4, ID, uuid.UUID(int=5))
    d.client(frame)
    d.told({"a": 7}, {ID.bytes: "a"})
    assert d.to_broker == frame
    assert used(five) == 7


def test_names_and_ids_are_asked_for_apart_as_brokers_want_it(five):
    d = five.dialogue()
    frame = delete(6, 4, "b", ID)
    d.client(frame)
    d.told({"b": 2})
    d.told({"a": 7}, {ID.bytes: "a"})
    assert d.to_broker == frame
    assert used(five) == 9


@pytest.mark.parametrize("version", range(4))
def test_adding_partitions_costs_those_that_are_new(five, version):
    d = five.dialogue()
    frame, answer = grow(version, 4, ("a", 10), ("b", 3), ("less", 1), ("gone", 9)), grown(version, 4, "a")
    d.client(frame)
    d.told({"a": 7, "b": 3, "less": 2})
    assert d.to_broker == frame
    d.broker(answer)
    assert d.to_client == answer
    assert used(five) == 3


def test_adding_partitions_only_to_see_whether_it_would_work_asks_nothing(five):
    d = five.dialogue()
    frame = grow(3, 4, ("a", 10), validate_only=True)
    d.client(frame)
    assert d.to_broker == frame


def test_a_topic_that_stands_twice_is_deleted_once(five):
    d = five.dialogue()
    d.client(delete(4, 4, "a", "a"))
    d.told({"a": 7})
    assert d.to_broker
    assert used(five) == 7


@pytest.mark.parametrize("version", [5, 6])
def test_the_second_of_a_topic_that_is_refused_is_refused_too(tired, version):
    """Alone, it would be deleted, and cost nothing."""
    d = tired.dialogue()
    d.client(delete(version, 4, "a", "a", "b"))
    d.told({"a": 3, "b": 1})
    assert d.to_broker == b""
    assert [(r.name, int(r.error_code)) for r in read_response(20, version, d.to_client).responses] == [
        ("a", 89),
        ("a", 89),
        ("b", 89),
    ]


def test_the_same_for_partitions(tired):
    d = tired.dialogue()
    d.client(grow(3, 4, ("a", 9), ("a", 9)))
    d.told({"a": 3})
    assert d.to_broker == b""
    assert [int(r.error_code) for r in read_response(37, 3, d.to_client).results] == [89, 89]


def test_a_topic_that_was_not_deleted_is_still_known(five):
    five.cluster.sizes = {"a": 3}
    d = five.dialogue()
    d.client(delete(6, 4, "a"))
    d.told({"a": 3})
    assert d.to_broker
    d.broker(deleted(6, 4, "a", error=29))
    assert d.to_client
    assert five.cluster.sizes == {"a": 3}


def test_nobody_is_asked_for_a_client_without_a_quota(world):
    w = world()
    w.cluster.sizes = {"a": 7, "b": 4}
    d = w.dialogue()
    for frame in (delete(6, 4, "a", "new"), grow(3, 5, ("b", 6), ("new", 6))):
        d.client(frame)
        assert d.to_broker == frame
    assert sum(row.mutations for row in w.rows()) == 7 + 1 + 2 + 1, "one each where the size is not known"


def test_a_broker_that_takes_its_time_is_waited_for_and_it_is_said(five):
    d = five.dialogue()
    frame = delete(6, 4, "a", "b")
    d.client(frame)
    question = d.to_broker
    assert d.port.wake == 5.0
    d.wake()
    (by,) = five.watcher.silent
    assert by.topics == ("a", "b")
    assert d.session.state is State.ASKING
    d.now = 600.0
    d.broker(sizes_told(correlation_id_of(question), read_request(3, 12, question).topics, {"a": 7, "b": 3}, {}))
    assert d.to_broker == frame
    assert used(five, 600.0) == 10


@pytest.mark.parametrize("sent", [grow(3, 4, ("a", 1000)), delete(6, 4, "a")], ids=["grow", "delete"])
def test_a_long_poll_in_front_makes_nothing_cheap(five, sent):
    """The broker says nothing of topics before the long poll is over."""
    d = five.dialogue()
    d.client(HEARTBEAT + sent)
    assert d.to_broker.startswith(HEARTBEAT)
    d.wake()
    assert d.to_broker == b""
    d.now = 6.0
    number = correlation_id_of(sent)
    d.broker(BEAT + described(12, number, {"a": 900 if b"\3\xe8" not in sent else 1}))
    assert d.to_client == BEAT
    assert d.to_broker == sent
    assert used(five, 6.0) >= 900


@pytest.mark.parametrize(
    ("sent", "known", "cost"),
    [
        (grow(3, 4, ("a", 1000)), 990, 10),
        (grow(3, 4, ("a", 1000)), None, 1000),
        (delete(6, 4, "a"), 70, 70),
        (delete(6, 4, "a"), None, 1),
    ],
)
def test_an_answer_that_cannot_be_read_leaves_what_was_known_before(five, sent, known, cost):
    five.cluster.sizes = {} if known is None else {"a": known}
    d = five.dialogue()
    d.client(sent)
    question = d.to_broker
    d.broker((12).to_bytes(4, "big") + question[8:12] + b"\xff" * 8)
    assert d.to_broker == sent
    assert used(five) == cost
    assert len(five.watcher.silent) == 1


def test_what_comes_behind_waits_until_the_broker_said(five):
    d = five.dialogue()
    d.client(HEARTBEAT + delete(4, 4, "a") + HEARTBEAT)
    before = d.told({"a": 1})
    assert before == HEARTBEAT, "what came before goes out first"
    assert d.to_broker == b"", "the answers come in their turn"


def test_the_question_waits_for_the_answers_before_it(five):
    d = five.dialogue()
    frame = delete(4, 4, "a")
    d.client(HEARTBEAT + frame + HEARTBEAT)
    assert d.to_broker.startswith(HEARTBEAT)
    d.broker(BEAT + described(12, 4, {"a": 1}))
    assert d.to_client == BEAT
    assert d.to_broker == frame + HEARTBEAT


def test_a_client_that_goes_away_meanwhile_has_its_topics_deleted(five):
    d = five.dialogue()
    frame = delete(4, 4, "a")
    d.client(frame)
    d.session.client_lost()
    d.told({"a": 1})
    assert d.to_broker == frame


def test_the_same_byte_by_byte(world):
    results = []
    for cut in (lambda data: [data], byte_by_byte):
        w = world(limits={ANYBODY: FIVE})
        d = w.dialogue()
        d.client(*cut(delete(6, 4, "a", "b")))
        assert d.to_broker
        d.broker(*cut(described(12, 4, {"a": 3, "b": 4})))
        d.broker(*cut(deleted(6, 4, "a", "b")))
        results.append((d.to_broker, d.to_client, used(w)))
    assert results[0] == results[1]


# ---------------------------------------------------------------------- refuse, throttle


@pytest.mark.parametrize("version", [5, 6])
def test_deleting_too_much_is_refused_in_the_order_of_the_request(five, version):
    d = five.dialogue()
    d.client(delete(version, 4, "a", "b", "gone", "c"))
    d.told({"a": 560, "b": 1, "c": 1})
    sent = read_request(20, version, d.to_broker)
    names = sent.topic_names if version == 5 else tuple(topic.name for topic in sent.topics)
    assert names == ("a", "gone"), "what is not there is the broker's to say"
    d.broker(deleted(version, 4, "a", "gone"))
    answer = read_response(20, version, d.to_client)
    assert [(r.name, int(r.error_code)) for r in answer.responses] == [("a", 0), ("b", 89), ("gone", 0), ("c", 89)]
    assert "controller mutation quota" in answer.responses[1].error_message
    assert answer.throttle_time.total_seconds() == 12


def test_a_topic_id_is_refused_by_its_id(tired):
    d = tired.dialogue()
    d.client(delete(6, 4, ID))
    d.told({"a": 7}, {ID.bytes: "a"})
    (result,) = read_response(20, 6, d.to_client).responses
    assert (result.topic_id, int(result.error_code)) == (ID, 89)


@pytest.mark.parametrize("version", [1, 4])
def test_an_old_client_deletes_everything_and_is_muted(tired, version):
    d = tired.dialogue()
    frame = delete(version, 4, "a")
    d.client(frame)
    d.told({"a": 50})
    assert d.to_broker == frame
    d.broker(deleted(version, 4, "a"))
    assert read_response(20, version, d.to_client).throttle_time.total_seconds() == 12
    assert d.port.wake == pytest.approx(12)
    assert used(tired) == 610


def test_adding_too_much_is_refused(tired):
    d = tired.dialogue()
    d.client(grow(3, 4, ("a", 9), ("same", 3)))
    d.told({"a": 8, "same": 3})
    sent = read_request(37, 3, d.to_broker)
    assert [topic.name for topic in sent.topics] == ["same"]
    d.broker(grown(3, 4, "same", error=37))
    assert [(r.name, int(r.error_code)) for r in read_response(37, 3, d.to_client).results] == [("a", 89), ("same", 37)]


@pytest.mark.parametrize("version", [0, 2])
def test_an_old_client_adds_everything_and_is_told_why_it_waits(tired, version):
    d = tired.dialogue()
    frame = grow(version, 4, ("a", 9))
    d.client(frame)
    d.told({"a": 8})
    assert d.to_broker == frame
    d.broker(grown(version, 4, "a"))
    answer = read_response(37, version, d.to_client)
    assert answer.throttle_time.total_seconds() == 12
    assert "slowed down" in answer.results[0].error_message


def test_creating_what_is_there_is_the_brokers_to_refuse(tired):
    """It costs nothing, so the quota has nothing to say; the broker is asked only now that it matters."""
    d = tired.dialogue()
    d.client(create(7, 4, ("old", 5), ("new", 5)))
    d.told({"old": 3})
    sent = read_request(19, 7, d.to_broker)
    assert [topic.name for topic in sent.topics] == ["old"]
    d.broker(created(7, 4, "old", error=36))
    assert [(t.name, int(t.error_code)) for t in read_response(19, 7, d.to_client).topics] == [("old", 36), ("new", 89)]


def test_the_time_that_the_broker_took_is_part_of_the_wait(five):
    d = five.dialogue()
    d.client(create(7, 4, ("a", 560), ("b", 1)))
    d.told()
    assert d.to_broker
    d.now = 4.0
    d.broker(created(7, 4, "a"))
    assert read_response(19, 7, d.to_client).throttle_time.total_seconds() == pytest.approx(8)
    assert d.port.wake == pytest.approx(12)


def test_a_wait_that_is_over_when_the_broker_answers_is_none(five):
    d = five.dialogue()
    d.client(create(7, 4, ("a", 560), ("b", 1)))
    d.told()
    assert d.to_broker
    d.now = 13.0
    d.broker(created(7, 4, "a"))
    answer = read_response(19, 7, d.to_client)
    assert answer.throttle_time.total_seconds() == 0
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT


# ---------------------------------------------------------------------- what the broker does not do


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (create(7, 4, ("a", 30)), created(7, 4, "a", error=44)),
        (create(2, 4, ("a", 30)), created(2, 4, "a", error=36)),
        (grow(3, 4, ("a", 31)), grown(3, 4, "a", error=29)),
        (delete(6, 4, "a", "a"), deleted(6, 4, "a", error=29)),
    ],
    ids=["a policy says no", "it is there", "not allowed to", "not allowed to delete"],
)
def test_what_the_broker_refuses_is_given_back(five, ask, answer):
    d = five.dialogue()
    d.client(ask)
    if d.session.state is State.ASKING:
        d.told({"a": 1})
    assert d.to_broker == ask
    assert used(five) > 0
    d.broker(answer)
    assert d.to_client == answer
    assert used(five) == 0
    assert sum(row.mutations for row in five.rows()) == 0


def test_an_unknown_error_of_a_newer_broker_passes_and_is_given_back(five):
    d = five.dialogue()
    d.client(create(7, 4, ("abc", 30)))
    assert d.to_broker
    frame = created(7, 4, "abc")
    at = frame.index(b"\4abc") + 4 + 16
    frame = frame[:at] + b"\x27\x0f" + frame[at + 2 :]
    d.broker(frame)
    assert d.to_client == frame
    assert used(five) == 0


def test_a_topic_that_was_created_here_is_known_before_its_broker_knows_it(five):
    d = five.dialogue()
    d.client(create(7, 4, ("a", 560)))
    assert d.to_broker
    d.broker(created(7, 4, "a", partitions=560))
    assert d.to_client
    d.client(create(7, 5, ("a", 1), ("b", 1)))
    d.told()
    assert [topic.name for topic in read_request(19, 7, d.to_broker).topics] == ["a"], "it is there: the broker's to refuse"
    d.broker(created(7, 5, "a", error=36))
    assert d.to_client
    other = five.dialogue()
    other.now = 12.0
    other.client(delete(6, 6, "a"))
    other.told()
    assert other.to_broker
    assert used(five) > 1000, "the deletion is charged with what was created"


@pytest.mark.parametrize(
    ("ask", "answer", "cost"),
    [
        (grow(3, 4, ("a", 9)), grown(3, 4, "a"), 9),
        (grow(3, 4, ("a", 9)), grown(3, 4, "a", error=7), 9),
        (delete(6, 4, "a"), deleted(6, 4, "a"), 1),
    ],
    ids=["grown", "timed out", "deleted"],
)
def test_what_the_broker_did_not_know_and_does_all_the_same_is_charged_then(five, ask, answer, cost):
    """A broker may hear of a new topic later than the controller."""
    d = five.dialogue()
    d.client(ask)
    d.told()
    assert d.to_broker == ask
    assert used(five) == 0
    five.cluster.sizes = {}  # nor does the proxy
    d.broker(answer)
    assert d.to_client == answer
    assert used(five) == cost
    assert sum(row.mutations for row in five.rows()) == cost


def test_what_timed_out_may_have_been_done(five):
    d = five.dialogue()
    d.client(create(7, 4, ("a", 30)))
    assert d.to_broker
    d.broker(created(7, 4, "a", error=7))
    assert d.to_client
    assert used(five) == 30


def test_the_number_that_the_cluster_chose_is_what_counts(five):
    d = five.dialogue()
    d.client(create(7, 4, ("a", -1)))
    assert d.to_broker
    answer = created(7, 4, "a", partitions=12)
    d.broker(answer)
    assert d.to_client == answer
    assert used(five) == 12
    assert five.cluster.default_partitions == 12, "for the next that leaves it to the cluster"


# ---------------------------------------------------------------------- auto-creation


@pytest.mark.parametrize("version", [4, 9, 12, 13])
def test_topics_that_come_by_being_named_are_charged(world, version):
    w = world(limits={ANYBODY: FIVE}, default_partitions=6)
    w.cluster.sizes = {"known": 3}
    d = w.dialogue()
    frame = metadata(version, 4, "known", "there", "new")
    d.client(frame)
    question = d.told({"there": 2})
    assert question == b""
    assert d.to_broker == frame
    assert used(w) == 6


def test_what_is_known_to_be_there_is_not_asked_for(world):
    w = world(limits={ANYBODY: FIVE})
    w.cluster.sizes = {"a": 3}
    d = w.dialogue()
    frame = metadata(12, 4, "a")
    d.client(frame)
    assert d.to_broker == frame


@pytest.mark.parametrize("frame", [metadata(12, 4, "new", create=False), metadata(12, 4)], ids=["not allowed", "none named"])
def test_a_request_that_creates_nothing_asks_nothing(five, frame):
    d = five.dialogue()
    d.client(frame)
    assert d.to_broker == frame
    assert used(five) == 0


def test_a_client_that_asks_again_for_what_comes_is_charged_once(five):
    d = five.dialogue()
    for moment in (0.0, 0.1, 3.0):
        d.now = moment
        frame = metadata(12, 4, "new")
        d.client(frame)
        d.told()
        assert d.to_broker == frame
        d.broker(described(12, 4, {"new": 0}))
        assert d.to_client
    assert used(five) == 1


def test_what_did_not_come_is_given_back(five):
    d = five.dialogue()
    for moment in (0.0, 6.0, 12.0, 18.0):
        d.now = moment
        d.client(metadata(12, 4, "new"))
        d.told()
        assert d.to_broker
        d.broker(described(12, 4, {"new": 0}))
        assert d.to_client
    found = five.engine.find(five.engine.controller_mutations, "ANONYMOUS", "app")
    left = five.engine.controller_mutations.average(found, 18.0) * 100
    assert left == pytest.approx(1), "the last one only"


VERSIONS = range(14)


def named(version: int, frame: bytes) -> list[str]:
    """The topics of a Metadata request."""
    return [topic.name for topic in read_request(3, version, frame).topics]


def told_of(version: int, frame: bytes) -> dict[str, tuple[int, int]]:
    """Topics of a Metadata response: (error code, partitions)."""
    return {t.name: (int(t.error_code), len(t.partitions)) for t in read_response(3, version, frame).topics}


@pytest.mark.parametrize("version", VERSIONS)
def test_at_the_limit_nothing_comes_by_being_named(tired, version):
    d = tired.dialogue()
    d.client(metadata(version, 4, "new", "there"))
    d.told({"there": 1})
    assert d.to_broker == metadata(version, 4, "there")
    d.broker(described(version, 4, {"there": 1}))
    assert told_of(version, d.to_client) == {"new": (3, 0), "there": (0, 1)}
    d.client(HEARTBEAT)
    assert d.to_broker == HEARTBEAT, "a producer has other topics too: nobody is muted"
    ((decision, by),) = tired.watcher.decisions
    assert (decision.quota, by.topics) == ("controller_mutations", ("new",))
    assert used(tired) == 560
    assert sum(row.refused.get("controller_mutations", 0) for row in tired.rows()) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_at_the_limit_a_request_about_new_topics_alone_is_about_no_topic(tired, version):
    """In version 0 that cannot be said, as no topics are all topics."""
    d = tired.dialogue()
    d.client(metadata(version, 4, "new", "newer"))
    d.told()
    left = named(version, d.to_broker)
    assert left == (["."] if version == 0 else [])
    d.broker(described(version, 4, dict.fromkeys(left, 0)))
    assert told_of(version, d.to_client) == {"new": (3, 0), "newer": (3, 0)}


@pytest.mark.parametrize("version", [1, 4, 13])
def test_new_connections_create_no_more_than_one(tired, version):
    """A new connection for each request is refused there too."""
    for i in range(20):
        d = tired.dialogue()
        d.client(metadata(version, i, f"t-{i}"))
        d.told()
        assert named(version, d.to_broker) == []
    assert used(tired) == 560


@pytest.mark.parametrize("version", [1, 4, 13])
def test_what_fits_is_created_and_every_try_gets_further(world, version):
    """20 topics of 3 partitions with a burst of 50."""
    w = world(limits={ANYBODY: MutationLimit(5, 50)}, default_partitions=3)
    names = [f"t-{i:02}" for i in range(20)]
    there: dict[str, int] = {}
    d = w.dialogue()
    tries = []
    for moment in range(0, 12, 2):
        d.now = float(moment)
        d.client(metadata(version, moment, *names))
        d.told(there)
        sent = named(version, d.to_broker)
        d.broker(described(version, moment, {name: there.get(name, 0) for name in sent}))
        assert told_of(version, d.to_client).keys() == set(names)
        there |= dict.fromkeys(sent, 3)
        tries.append(len(there))
    assert tries[0] == 17, "51 partitions: the last one overshoots"
    assert tries[-1] == 20
    assert next(by.topics for _, by in w.watcher.decisions) == ("t-17", "t-18", "t-19")


def test_a_request_that_creates_ten_thousand_creates_the_burst(world):
    w = world(limits={ANYBODY: FIVE}, default_partitions=10)
    d = w.dialogue()
    names = [f"t-{i}" for i in range(10_000)]
    d.client(metadata(1, 4, *names))
    d.told()
    assert named(1, d.to_broker) == names[:50]
    assert used(w) == 500


def test_names_that_no_topic_can_have_cost_nothing(five):
    d = five.dialogue()
    frame = metadata(12, 4, "a b", ".", "..", "x" * 250, "ünï")
    d.client(frame)
    assert d.to_broker == frame
    assert used(five) == 0


def test_what_the_client_may_not_see_is_the_brokers_to_say(tired):
    d = tired.dialogue()
    frame = metadata(12, 4, "secret", "new")
    d.client(frame)
    question = d.to_broker
    d.broker(described(12, correlation_id_of(question), {"secret": 0, "new": 0}, errors={"secret": 29}))
    assert d.to_broker == metadata(12, 4, "secret")
    d.broker(described(12, 4, {"secret": 0}, errors={"secret": 29}))
    assert told_of(12, d.to_client) == {"secret": (29, 0), "new": (3, 0)}


def name_it(d, name: str, *, there: int = 0) -> None:
    """A Metadata request that would create this topic."""
    d.client(metadata(9, 4, name))
    if d.session.state is State.ASKING:
        d.told({name: there} if there else {})
    assert d.to_broker
    d.broker(described(9, 4, {name: there}))
    assert d.to_client


def test_one_that_came_and_was_deleted_is_not_given_back(world):
    """Create by naming, delete, name again: each of the three was done."""
    w = world(limits={ANYBODY: FIVE}, default_partitions=50)
    d = w.dialogue()
    name_it(d, "x")
    d.now = 3.0
    d.client(delete(6, 5, "x"))
    d.told({"x": 50})
    assert d.to_broker
    d.broker(deleted(6, 5, "x"))
    assert d.to_client
    for d.now in (4.0, 10.0):
        name_it(d, "x")
    assert used(w, 10.0) > 130


def test_one_that_was_seen_meanwhile_is_not_given_back_either(world):
    w = world(limits={ANYBODY: FIVE}, default_partitions=50)
    d, other = w.dialogue(), w.dialogue()
    name_it(d, "x")
    name_it(other, "x", there=50)
    d.now = 10.0
    name_it(d, "x")
    assert used(w, 10.0) > 90


def test_one_that_somebody_creates_in_another_way_is_given_back(world):
    """auto.create.topics.enable may be off: then naming it created nothing."""
    w = world(limits={ANYBODY: FIVE}, default_partitions=50)
    d = w.dialogue()
    name_it(d, "x")
    d.client(create(7, 5, ("x", 8)))
    assert d.to_broker
    d.broker(created(7, 5, "x", partitions=8))
    assert d.to_client
    assert used(w) == 8


def test_what_somebody_else_was_charged_is_nobody_elses(world):
    w = world(limits={EVERYBODY: FIVE}, default_partitions=5)
    alice, bob = w.dialogue("alice"), w.dialogue("bob")
    name_it(alice, "x")
    name_it(bob, "x")
    assert (used(w, user="alice"), used(w, user="bob")) == (5, 5)
    bob.now = 20.0
    name_it(bob, "x")
    assert used(w, user="alice") == 5


def test_somebody_who_makes_up_names_pushes_out_only_their_own(world):
    w = world(limits={EVERYBODY: MutationLimit(1000, 1_000_000)})
    victim, flood = w.dialogue("victim"), w.dialogue("flood")
    name_it(victim, "x")
    for i in range(3):
        flood.client(metadata(9, 4, *(f"made-up-{i}-{j}" for j in range(5_000))))
        flood.told()
        assert flood.to_broker
        flood.broker(described(9, 4, {}))
        assert flood.to_client
    assert len(w.services.expected) <= 10_000
    name_it(victim, "x")
    found = w.engine.find(w.engine.controller_mutations, "victim", "app")
    assert w.engine.controller_mutations.standing(found, 0.0).left == 999_999, "charged once"
