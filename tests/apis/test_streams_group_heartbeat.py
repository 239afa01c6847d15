"""Internal topics that brokers create for Streams groups are charged to the member whose heartbeat has them created (KIP-1071)."""

import pytest

from proxy.session.session import State
from proxy.session.topologies import LASTS, MOST_OF_A_GROUP, Topologies
from proxy.wire.streams_group_heartbeat import Internal, Subtopology
from quota.decision import Action
from quota.entity import Entity
from quota.kinds.controller_mutations import Algorithm, MutationLimit
from quota.limits import Exempt
from tests.apis.topic_frames import FIVE, beat, delete, deleted, heartbeat, subtopology
from tests.messages import read_response
from tests.support import ANYBODY

BUCKET = MutationLimit(1, 1000, Algorithm.TOKEN_BUCKET)
COUNT = subtopology(sources=("orders",), changelogs=("app-count-changelog",))


def used(world, now: float = 0.0, user: str = "ANONYMOUS") -> int:
    found = world.engine.find(world.engine.controller_mutations, user, "app")
    return round(1000 - world.engine.controller_mutations.standing(found, now).left)


@pytest.fixture
def bucket(world):
    w = world(limits={ANYBODY: BUCKET}, default_partitions=50)
    w.cluster.sizes = {"orders": 12}
    return w


def answered(d, frame: bytes, answer: bytes) -> None:
    """The request goes on as it is, and so does the answer."""
    assert d.to_broker == frame
    d.broker(answer)
    assert d.to_client == answer


def test_a_member_that_joins_is_charged_for_what_is_missing(bucket):
    d = bucket.dialogue()
    frame = heartbeat(4, "app", COUNT)
    d.client(frame)
    d.told()
    answered(d, frame, beat(4))
    assert used(bucket) == 12, "a changelog topic has as many partitions as its source"
    assert sum(row.mutations for row in bucket.rows()) == 12


def test_topics_cost_as_many_partitions_as_there_will_be(bucket):
    d = bucket.dialogue()
    frame = heartbeat(
        4,
        "app",
        subtopology(sources=("orders",), repartitions={"named-repartition": 60}),
        subtopology(repartition_sources=("decided-repartition",), changelogs=("a-changelog", "b-changelog")),
        subtopology(sources=("orders",), changelogs=("c-changelog", "there-changelog")),
    )
    d.client(frame)
    d.told({"there-changelog": 12})
    answered(d, frame, beat(4))
    assert used(bucket) == 60 + 60 + 2 * 60 + 12


def test_nothing_is_charged_for_what_is_there(bucket):
    bucket.cluster.sizes["app-count-changelog"] = 12
    d = bucket.dialogue()
    frame = heartbeat(4, "app", COUNT)
    d.client(frame)
    answered(d, frame, beat(4))
    assert used(bucket) == 0


def test_further_members_cost_nothing(bucket):
    for i in range(3):
        d = bucket.dialogue()
        frame = heartbeat(i, "app", COUNT, member=f"m{i}")
        d.client(frame)
        d.told()
        answered(d, frame, beat(i))
    d = bucket.dialogue()
    d.now = 60.0
    frame = heartbeat(4, "app", COUNT)
    d.client(frame)
    d.told()
    answered(d, frame, beat(4))
    assert used(bucket) == 12


def test_a_heartbeat_that_is_an_error_is_given_back(bucket):
    d = bucket.dialogue()
    frame = heartbeat(4, "app", COUNT)
    for i in range(2):
        d.client(frame)
        d.told()
        answered(d, frame, beat(4, error=29 if not i else 0))
        assert used(bucket) == 12 * i
    assert sum(row.mutations for row in bucket.rows()) == 12


def test_nobody_is_asked_for_a_member_without_a_quota(world):
    d = world().dialogue()
    for frame in (heartbeat(4, "app", COUNT), heartbeat(4, "app", epoch=3)):
        d.client(frame)
        answered(d, frame, beat(4))


def test_topics_that_are_exempt_cost_nothing(world):
    w = world(limits={ANYBODY: BUCKET}, exempt=Exempt(topics=frozenset({"app-count-changelog"})))
    w.cluster.sizes = {"orders": 12}
    d = w.dialogue()
    frame = heartbeat(4, "app", COUNT)
    d.client(frame)
    d.told()
    answered(d, frame, beat(4))
    assert used(w) == 0


def test_a_member_over_the_quota_is_held_then_told_to_try_again(world):
    w = world(limits={ANYBODY: FIVE})
    w.cluster.sizes = {"orders": 600}
    d = w.dialogue()
    first = heartbeat(4, "app", COUNT)
    d.client(first)
    d.told()
    answered(d, first, beat(4))
    d.client(heartbeat(5, "other", subtopology(sources=("orders",), changelogs=("other-changelog",))))
    d.told()
    assert d.session.state is State.HELD
    assert d.to_broker == b""
    d.wake()
    assert d.now == 10.0
    d.told()
    told = read_response(88, 0, d.to_client)
    assert (int(told.error_code), told.throttle_time.total_seconds()) == (14, 0)
    assert "controller mutation quota" in told.error_message
    assert [decision.action for decision, _ in w.watcher.decisions] == [Action.HOLD, Action.REFUSE]
    d.client(frame := heartbeat(6, "app", epoch=3))
    d.told()
    answered(d, frame, beat(6))  # nobody is muted
    assert sum(row.refused.get("controller_mutations", 0) for row in w.rows()) == 1


def test_who_waits_as_told_is_admitted(world):
    w = world(limits={ANYBODY: BUCKET})
    w.cluster.sizes = {"orders": 1005}
    d = w.dialogue()
    first = heartbeat(4, "app", COUNT)
    d.client(first)
    d.told()
    answered(d, first, beat(4))
    second = heartbeat(5, "other", subtopology(sources=("orders",), changelogs=("other-changelog",)))
    d.client(second)
    d.told()
    d.wake()
    assert d.now == 5.0
    d.told()
    answered(d, second, beat(5))


def test_many_connections_at_once_create_no_more_than_one(world):
    w = world(limits={ANYBODY: BUCKET})
    w.cluster.sizes = {"orders": 400}
    passed = 0
    for i in range(20):
        d = w.dialogue()
        d.client(heartbeat(4, f"app-{i}", subtopology(sources=("orders",), changelogs=(f"{i}-changelog",))))
        d.told()
        passed += bool(d.to_broker)
    assert passed == 3, "1,200 partitions: the last one overshoots"


def test_a_group_whose_source_comes_later_is_charged_then(bucket):
    """No heartbeat says anything of the topology by then, and it may come on another connection."""
    d = bucket.dialogue()
    late = subtopology(sources=("late",), changelogs=("app-late-changelog",))
    frame = heartbeat(4, "app", late)
    d.client(frame)
    d.told()
    answered(d, frame, beat(4))
    assert used(bucket) == 0, "brokers create nothing while a source topic is missing"
    other = bucket.dialogue()
    other.now = 30.0
    other.client(plain := heartbeat(5, "app", epoch=3))
    other.told({"late": 300})
    answered(other, plain, beat(5))
    assert used(bucket, 30.0) == 300


def test_one_topology_does_not_hide_another_of_the_same_group(bucket):
    d = bucket.dialogue()
    large = subtopology(sources=("late",), repartitions={"app-repartition": 500})
    small = subtopology(sources=("late",), repartitions={"app-repartition": 1})
    for frame in (heartbeat(4, "app", large), heartbeat(4, "app", small)):
        d.client(frame)
        d.told()
        answered(d, frame, beat(4))
    bucket.cluster.sizes["late"] = 1
    d.client(plain := heartbeat(5, "app", epoch=3))
    d.told()
    answered(d, plain, beat(5))
    assert used(bucket) == 500


def test_an_internal_topic_that_is_deleted_is_charged_when_it_comes_again(bucket):
    d = bucket.dialogue()
    d.client(frame := heartbeat(4, "app", COUNT))
    d.told()
    answered(d, frame, beat(4))
    d.client(gone := delete(6, 5, "app-count-changelog"))
    d.told({"app-count-changelog": 12})
    answered(d, gone, deleted(6, 5, "app-count-changelog"))
    d.client(plain := heartbeat(6, "app", epoch=3))
    d.told()
    answered(d, plain, beat(6))
    assert used(bucket) == 36


def test_what_was_charged_too_much_is_given_back_when_the_topic_is_seen(bucket):
    d = bucket.dialogue()
    d.client(frame := heartbeat(4, "app", subtopology(sources=("orders",), repartition_sources=("r",), changelogs=("c",))))
    d.told()
    answered(d, frame, beat(4))
    assert used(bucket) == 100
    d.client(frame)
    d.told({"r": 6, "c": 6})
    answered(d, frame, beat(4))
    assert used(bucket) == 12


def test_a_topic_of_somebody_else_with_that_name_costs_no_more(world):
    w = world(limits={Entity("<default>", None): BUCKET})
    w.cluster.sizes = {"orders": 12}
    d = w.dialogue("alice")
    d.client(frame := heartbeat(4, "app", COUNT))
    d.told()
    answered(d, frame, beat(4))
    d.client(frame)
    d.told({"app-count-changelog": 900})
    answered(d, frame, beat(4))
    assert used(w, user="alice") == 12


def test_a_topology_of_too_many_topics_has_to_try_again(bucket):
    d = bucket.dialogue()
    d.client(heartbeat(4, "app", subtopology(changelogs=tuple(f"c-{i}" for i in range(MOST_OF_A_GROUP)))))
    assert int(read_response(88, 0, d.to_client).error_code) == 14
    assert d.to_broker == b""


# ---------------------------------------------------------------------- what is remembered of groups


def part(name: str, names: int = 9) -> Subtopology:
    """It weighs one more than its names."""
    return Subtopology((), (), tuple(Internal(f"{name}-{i}", 0) for i in range(names)))


def test_a_group_is_forgotten_some_time_after_its_last_heartbeat():
    known = Topologies(1000)
    assert known.join("alice", "app", (part("a"),), 0.0) == (part("a"),)
    assert known.get("alice", "app", 100.0) == (part("a"),)
    assert known.join("alice", "other", (part("b"),), 100.0 + LASTS) == (part("b"),)
    assert known.get("alice", "app", 100.0 + LASTS) == (part("a"),)
    assert known.join("alice", "third", (part("b"),), 100.1 + 2 * LASTS)
    assert known.get("alice", "app", 100.1 + 2 * LASTS) is None


def test_groups_of_the_same_name_are_each_principals_own():
    known = Topologies(1000)
    known.join("alice", "app", (part("a"),), 0.0)
    assert known.get("bob", "app", 0.0) is None
    assert known.join("bob", "app", (part("b"),), 0.0) == (part("b"),)


def test_nobody_uses_up_what_others_need():
    known = Topologies(1000)
    joined = sum(known.join("flood", f"g{i}", (part("a"),), 0.0) is not None for i in range(1000))
    assert joined == 88, "8/9 of it"
    assert known.join("flood", "g0", (part("a"),), 0.0), "what is known needs no room"
    assert known.join("victim", "app", (part("b"),), 0.0)
    assert known.get("flood", "g1", 0.0), "nothing is forgotten to make room"
